package fragment

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
)

const (
	length       = 80 // specs of a sequence
	overOffer    = 3  // a sequence ends when it has offered this many times what is free
	maxSequences = 10_000
	maxSpecs     = 1 << 16 // of a generation
	maxWeight    = 1 << 40 // of a spec
	ofDemand     = 6       // times the part of the demand for GPUs that specs with several have: see Settings
	weightBits   = 26      // of the sum of the weights, after scaling
	thousand     = 1000
	microPerGPU  = 1_000_000
	micro        = microPerGPU / Whole // per milli
)

// Weighted is a spec with how often it is expected, beside the others.
type Weighted struct {
	Spec
	Weight int64 // more than 0
}

// Settings are the parameters of a generation.
type Settings struct {
	Sequences int // that are offered to each state
	// MultiGPU is how many thousandths of FGD's measure, over the specs with several GPUs, are added to a value. Where
	// these specs ask for more than a sixth of all GPUs it is multiplied by six times that part: few sequences contain
	// what they need, and a node that has lost a GPU to a smaller pod is lost to them.
	MultiGPU int64
	Seed     uint64 // of the sequences
}

// Standard returns the settings with which the figures of the documentation were measured.
func Standard() Settings { return Settings{Sequences: 80, MultiGPU: 20, Seed: 1} }

// Memo remembers values of a Generation by shape, and by the shape's hash. It may forget a value at any time, and must
// be safe for concurrent use.
type Memo interface {
	Recall(h Shape, hash uint64) (int64, bool)
	// Keep remembers a value that was asked for, Prepare one that has not been asked for yet.
	Keep(h Shape, hash uint64, value int64)
	Prepare(h Shape, hash uint64, value int64)
	// Asked yields the shapes whose values were asked for.
	Asked(yield func(Shape) bool)
}

// Generation values states by one set of specs. It never changes, and may be used from any number of goroutines. It
// computes a value whenever its memo does not remember it. A remembered value costs no allocation.
type Generation struct {
	settings  Settings
	specs     []Weighted // ascending. Invariant: the sum of weights is below 2<<weightBits.
	multi     []Weighted // those with several GPUs; weights times GPUs
	added     int64      // of FGD's measure over multi, in thousandths
	sequences []uint16   // of specs; length for each
	minCPU    int64      // of the specs with GPUs
	minMilli  int64
	gpuWeight int64 // of the specs with GPUs
	// spared is, by model, how much less limited specs are expected to take of a free GPU than of one of the model that
	// they need most, in micro-GPUs. Invariant: at least one is 0; all are where no spec with GPUs is limited.
	spared [64]uint64
	memo   Memo
}

// New returns the generation of some specs and of what the cluster has free, with an empty memo of its own. The order
// of the specs does not matter.
func New(specs []Weighted, free Supply, settings Settings, memo Memo) (*Generation, error) {
	if n := len(specs); n == 0 || n > maxSpecs {
		return nil, fmt.Errorf("%d specs; must be from 1 to %d", n, maxSpecs)
	}
	if n := settings.Sequences; n < 1 || n > maxSequences {
		return nil, fmt.Errorf("Sequences is %d; must be from 1 to %d", n, maxSequences)
	}
	if n := settings.MultiGPU; n < 0 || n > thousand {
		return nil, fmt.Errorf("MultiGPU is %d; must be from 0 to %d", n, thousand)
	}
	g := &Generation{memo: memo, settings: settings, specs: slices.Clone(specs), minCPU: 1<<63 - 1, minMilli: Whole}
	sum, demand, multi := uint64(0), int64(0), int64(0)
	for i, s := range g.specs {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("spec %d: %w", i, err)
		}
		if s.Weight < 1 || s.Weight > maxWeight {
			return nil, fmt.Errorf("spec %d: Weight is %d; must be from 1 to %d", i, s.Weight, int64(maxWeight))
		}
		sum += uint64(s.Weight)
	}
	slices.SortFunc(g.specs, func(a, b Weighted) int { return a.compare(b.Spec) })
	shift := max(bits.Len64(sum)-weightBits, 0)
	for i := range g.specs {
		s := &g.specs[i]
		s.Weight = max(s.Weight>>shift, 1)
		g.consider(*s)
		demand += s.Weight * s.GPUs * s.Milli
		if s.GPUs > 1 {
			multi += s.Weight * s.GPUs * s.Milli
		}
	}
	g.added = max(settings.MultiGPU, settings.MultiGPU*ofDemand*multi/max(demand, 1))
	g.spare(free, uint64(demand))
	g.draw()
	return g, nil
}

// consider adds a spec to the sums of the generation.
func (g *Generation) consider(s Weighted) {
	if s.GPUs == 0 {
		return
	}
	g.minCPU, g.minMilli = min(g.minCPU, s.MilliCPU), min(g.minMilli, s.Milli)
	g.gpuWeight += s.Weight
	if s.GPUs > 1 {
		s.Weight *= s.GPUs
		g.multi = append(g.multi, s)
	}
}

// spare computes which part of a free GPU of each model is expected to be taken by specs that are limited to some
// models, until pods have asked for all that the cluster has free. By then the specs limited to a set of models have
// asked for their part of the demand, times that amount; each free GPU of the set is expected to lose an equal part
// to them. A model's parts of all sets that contain it are added up, to a whole GPU at most; of a set without free
// GPUs it is that.
func (g *Generation) spare(free Supply, demand uint64) {
	asked, all := map[Models]uint64{}, uint64(0)
	for i := range g.specs {
		if s := &g.specs[i]; s.Models != 0 && s.GPUs > 0 {
			asked[s.Models] += uint64(s.Weight * s.GPUs * s.Milli)
		}
	}
	for _, n := range free {
		all += uint64(n)
	}
	var taken [64]uint64
	for models, amount := range asked {
		has := uint64(0)
		for m, n := range free {
			if models.allows(Model(m)) {
				has += uint64(n)
			}
		}
		part := uint64(microPerGPU)
		if has > 0 {
			above, below := bits.Mul64(all*microPerGPU/has, amount)
			part, _ = bits.Div64(above, below, demand)
		}
		for m := range taken {
			if models.allows(Model(m)) {
				taken[m] += min(part, microPerGPU-taken[m])
			}
		}
	}
	most := slices.Max(taken[:])
	for m := range taken {
		g.spared[m] = most - taken[m]
	}
}

// draw fills the sequences. At each position the sequences divide the weights evenly among themselves, in an order that
// differs by position: what is rare occurs as often as it should (Latin hypercube sampling). Equal random numbers give
// specs that are beside each other in their order, so generations with similar weights have similar sequences.
func (g *Generation) draw() {
	upTo := make([]uint64, len(g.specs)) // sum of the weights, of all specs up to this one
	sum := uint64(0)
	for i, s := range g.specs {
		sum += uint64(s.Weight)
		upTo[i] = sum
	}
	n := g.settings.Sequences
	g.sequences = make([]uint16, n*length)
	random, stratum := rand.New(rand.NewPCG(g.settings.Seed, 0)), ^uint64(0)/uint64(n)
	for position := range length {
		for i, j := range random.Perm(n) {
			at, _ := bits.Mul64(uint64(j)*stratum+random.Uint64()/uint64(n), sum)
			spec, _ := slices.BinarySearch(upTo, at+1)
			g.sequences[i*length+position] = uint16(spec)
		}
	}
}

// Lost is FGD's measure of a state over some specs: how much of what is free they cannot use on average, in micro-GPUs.
func Lost(specs []Weighted, s State) int64 {
	var h Shape
	h.set(s, Spec{}, 0)
	return fragmentation(specs, &h)
}

// fragmentation is the mean of what each spec cannot use, in micro-GPUs: all that is free where it asks for no GPU or
// does not fit, else the GPUs that are too small.
func fragmentation(specs []Weighted, h *Shape) int64 {
	lost, weights, all := int64(0), int64(0), h.sum()
	for i := range specs {
		s := &specs[i]
		small, first := int64(0), 0
		for ; first < h.n && int64(h.free[first]) < s.Milli; first++ {
			small += int64(h.free[first])
		}
		if s.GPUs == 0 || s.MilliCPU > h.milliCPU || !s.Models.allows(h.model) || int64(h.n-first) < s.GPUs {
			small = all
		}
		lost += s.Weight * small
		weights += s.Weight
	}
	if weights == 0 {
		return 0
	}
	return lost/weights*micro + lost%weights*micro/weights // lost*micro can be more than an int64 holds
}

// Demand is how many of a million pods with GPUs ask for so many.
func (g *Generation) Demand(gpus int64) (share int64) {
	for i := range g.multi {
		if s := &g.multi[i]; s.GPUs == gpus {
			share += s.Weight / s.GPUs
		}
	}
	return share * microPerGPU / max(g.gpuWeight, 1)
}

// Value is what a state is expected to leave idle, with what is added for the specs that sequences rarely contain, and
// with what specs that are limited to models spare of it.
func (g *Generation) Value(s State) int64 {
	var h Shape
	h.set(s, Spec{}, 0)
	return g.value(&h)
}

// value returns the value of a shape, remembered or computed; 0 for a node without GPUs.
func (g *Generation) value(h *Shape) int64 {
	if h.n == 0 {
		return 0
	}
	hash := h.hash()
	value, remembered := g.memo.Recall(*h, hash)
	if !remembered {
		value = g.compute(h)
		g.memo.Keep(*h, hash, value)
	}
	return value
}

// Renew computes the values that an earlier generation was asked for, so that a cluster is soon valued by this one. The
// work is what the first pod would wait for else: 0.1 ms for each state.
func (g *Generation) Renew(earlier *Generation) {
	for h := range earlier.memo.Asked {
		g.memo.Prepare(h, h.hash(), g.compute(&h))
	}
}

// compute returns the value of a shape as the sum of three terms. value remembers it.
func (g *Generation) compute(h *Shape) int64 {
	value := g.idle(h) * micro / int64(g.settings.Sequences)
	value += fragmentation(g.multi, h) * g.added / thousand
	return value + h.sum()*int64(g.spared[h.model])/Whole
}
