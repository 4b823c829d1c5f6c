package main

import (
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

// rating is what a policy said of a node for a kind of pod.
type rating struct {
	round  int // 1 and more, one for each time that all scores changed
	placed uint32
	fits   bool
	score  int64
	gpus   uint64
}

// allocated is which part of the GPUs is allocated, in percent, when the pods that arrived ask for 1 and 1.3 times all
// of them.
type allocated struct{ at100, at130 float64 }

// replay lets the pods of a trace arrive in the order of a seed.
func replay(t *trace, name string, settings fragment.Settings, seed uint64) (result allocated, err error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	nodes, pods := slices.Clone(t.nodes), t.arrivals(rng)
	for i := range nodes {
		nodes[i].Free = slices.Clone(nodes[i].Free)
	}
	chooser, err := newPolicy(name, t, nodes, settings)
	if err != nil {
		return result, err
	}
	ratings, round := make([][]rating, len(t.specs)), 1
	arrived, used := int64(0), int64(0)
	percent := func() float64 { return 100 * float64(used) / float64(t.capacity) }
	for i := range pods {
		p := &pods[i]
		changed, err := chooser.arrive(p)
		if err != nil {
			return result, err
		}
		if changed {
			round++
		}
		if ratings[p.kind] == nil {
			ratings[p.kind] = make([]rating, len(nodes))
		}
		known, best, equal := ratings[p.kind], -1, 0
		for at := range nodes {
			n, r := &nodes[at], &known[at]
			if n.MilliCPU < p.MilliCPU || n.memory < p.memory || !p.runsOn(n.Model) {
				continue
			}
			if r.round != round || r.placed != n.placed {
				*r = rating{round: round, placed: n.placed}
				r.score, r.gpus, r.fits = chooser.score(n, p)
			}
			switch {
			case !r.fits:
			case best < 0 || r.score > known[best].score:
				best, equal = at, 1
			case chooser.randomTies && r.score == known[best].score:
				if equal++; rng.IntN(equal) == 0 {
					best = at
				}
			}
		}
		if best >= 0 {
			nodes[best].take(p, known[best].gpus, rng)
			used += p.demand()
		}
		before := arrived
		if arrived += p.demand(); before < t.capacity && arrived >= t.capacity {
			result.at100 = percent()
		}
	}
	result.at130 = percent()
	return result, nil
}

// take places a pod on some GPUs; where there are more than it asks for, on any of these.
func (n *node) take(p *pod, gpus uint64, rng *rand.Rand) {
	for extra := bits.OnesCount64(gpus) - int(p.GPUs); extra > 0; {
		if drop := uint64(1) << rng.IntN(len(n.Free)); gpus&drop != 0 {
			gpus &^= drop
			extra--
		}
	}
	n.State = n.after(p, gpus)
	n.memory -= p.memory
	n.placed++
}
