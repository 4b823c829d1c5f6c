package fragment

import (
	"cmp"
	"slices"
)

const (
	maxLearnt = 128     // specs of a histogram that are used
	firstUnit = 1 << 24 // weight of an arrival at the start; it grows to twice that, then all weights are halved
	growth    = 595_423 // 2^(1/5000) − 1 in units of 2^−32: weights halve in 5,000 arrivals
	forgotten = 5       // half-lives after which a spec that arrived once is dropped
	ofGPUs    = 25      // arrivals without GPUs after which as much is due as after one with
	early     = 400 * ofGPUs
)

// Histogram is how often each spec arrived, of late: an arrival counts half as much as one 5,000 arrivals later.
type Histogram struct {
	weights map[Spec]int64
	unit    int64 // weight of an arrival now
	seen    int64 // arrivals; one with GPUs is ofGPUs
}

// NewHistogram returns a histogram that expects pods with one GPU and 8 CPUs until others have arrived.
func NewHistogram() *Histogram {
	return &Histogram{weights: map[Spec]int64{{MilliCPU: 8000, GPUs: 1, Milli: Whole}: firstUnit}, unit: firstUnit}
}

// Count counts an arrival, and reports whether a new generation is due: every 25 arrivals with GPUs up to 400, then
// every 250. Those without make one due, too, but 25 times as seldom: they move values little, and are many.
func (h *Histogram) Count(s Spec) (due bool) {
	h.weights[s] += h.unit
	if h.unit += h.unit * growth >> 32; h.unit >= 2*firstUnit {
		h.unit /= 2
		for spec, weight := range h.weights {
			if weight /= 2; weight < h.unit>>forgotten {
				delete(h.weights, spec)
			} else {
				h.weights[spec] = weight
			}
		}
	}
	before, every := h.seen, int64(25*ofGPUs)
	if h.seen++; s.GPUs > 0 {
		h.seen += ofGPUs - 1
	}
	if h.seen > early {
		every = 250 * ofGPUs
	}
	return h.seen/every > before/every
}

// Notice is how many more arrivals a generation that is due may take to be computed: fewer than until the next is due.
func (h *Histogram) Notice() int {
	if h.seen < early {
		return 24
	}
	return 100
}

// Specs returns the heaviest specs, at most 128.
func (h *Histogram) Specs() []Weighted {
	all := make([]Weighted, 0, len(h.weights))
	for spec, weight := range h.weights {
		all = append(all, Weighted{spec, weight})
	}
	slices.SortFunc(all, func(a, b Weighted) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), a.compare(b.Spec))
	})
	return all[:min(len(all), maxLearnt)]
}
