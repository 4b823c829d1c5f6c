package main

import (
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

// rating is what a policy said of a node for a kind of pod.
type rating struct {
	round   int // of the cluster
	version uint32
	fits    bool
	score   int64
	gpus    uint64
}

// allocated is which part of the GPUs is allocated, in percent, when the pods that arrived ask for 1 and 1.3 times all
// of them.
type allocated struct{ at100, at130 float64 }

// cluster is the nodes of a trace with a policy that places pods on them.
type cluster struct {
	nodes   []node
	chooser *policy
	rng     *rand.Rand
	round   int        // how often all scores changed, and 1
	ratings [][]rating // by kind and node; of a kind without pods nil
	used    int64      // milli of GPUs
	// barred reports whether a pod may not use a node; nil where each may use all.
	barred func(p *pod, at int) bool
}

// newCluster returns the nodes of a trace without pods.
func newCluster(t *trace, name string, settings fragment.Settings, rng *rand.Rand) (*cluster, error) {
	c := &cluster{nodes: slices.Clone(t.nodes), rng: rng, round: 1, ratings: make([][]rating, len(t.specs))}
	for i := range c.nodes {
		c.nodes[i].Free = slices.Clone(c.nodes[i].Free)
	}
	var err error
	c.chooser, err = newPolicy(name, t, c.nodes, settings)
	return c, err
}

// replay lets the pods of a trace arrive in the order of a seed.
func replay(t *trace, name string, settings fragment.Settings, seed uint64) (result allocated, err error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	pods := t.arrivals(rng)
	c, err := newCluster(t, name, settings, rng)
	if err != nil {
		return result, err
	}
	arrived := int64(0)
	for i := range pods {
		p := &pods[i]
		if err := c.arrive(p); err != nil {
			return result, err
		}
		c.place(p)
		before := arrived
		if arrived += p.demand(); before < t.capacity && arrived >= t.capacity {
			result.at100 = t.percent(c.used)
		}
	}
	result.at130 = t.percent(c.used)
	return result, nil
}

// percent is the part of all GPUs that an amount is.
func (t *trace) percent(milli int64) float64 { return 100 * float64(milli) / float64(t.capacity) }

// arrive lets the policy learn of a pod.
func (c *cluster) arrive(p *pod) error {
	changed, err := c.chooser.arrive(p)
	if changed {
		c.round++
	}
	return err
}

// rate returns what the policy says of a node for a pod that the node has CPUs, memory and the model for; nil if not.
func (c *cluster) rate(p *pod, at int) *rating {
	n := &c.nodes[at]
	if !n.admits(p) {
		return nil
	}
	if c.ratings[p.kind] == nil {
		c.ratings[p.kind] = make([]rating, len(c.nodes))
	}
	r := &c.ratings[p.kind][at]
	if r.round != c.round || r.version != n.version {
		*r = rating{round: c.round, version: n.version}
		r.score, r.gpus, r.fits = c.chooser.score(n, p)
	}
	return r
}

// place puts a pod on the best node, and returns where it is; false where it fits nowhere.
func (c *cluster) place(p *pod) (_ holding, fits bool) {
	var best *rating
	node, equal := 0, 0
	for at := range c.nodes {
		r := c.rate(p, at)
		switch {
		case r == nil || !r.fits || c.barred != nil && c.barred(p, at):
		case best == nil || r.score > best.score:
			best, node, equal = r, at, 1
		case c.chooser.randomTies && r.score == best.score:
			if equal++; c.rng.IntN(equal) == 0 {
				best, node = r, at
			}
		}
	}
	if best == nil {
		return holding{}, false
	}
	return c.put(p, node, best.gpus), true
}

// put places a pod on some GPUs of a node; where there are more than it asks for, on any of these.
func (c *cluster) put(p *pod, at int, gpus uint64) holding {
	n := &c.nodes[at]
	for extra := bits.OnesCount64(gpus) - int(p.GPUs); extra > 0; {
		if drop := uint64(1) << c.rng.IntN(len(n.Free)); gpus&drop != 0 {
			gpus &^= drop
			extra--
		}
	}
	n.take(p, gpus)
	c.used += p.demand()
	return holding{p, at, gpus}
}

// holding is a pod with the node and the GPUs that it has.
type holding struct {
	*pod
	node int
	gpus uint64
}

// admits reports whether a node has the CPUs, the memory and the model for a pod.
func (n *node) admits(p *pod) bool {
	return n.MilliCPU >= p.MilliCPU && n.memory >= p.memory && p.runsOn(n.Model)
}

// fits reports whether a node takes a pod.
func (n *node) fits(p *pod) bool {
	return n.admits(p) && bits.OnesCount64(suitable(n, p)) >= int(p.GPUs)
}

// take gives a pod its share of some GPUs.
func (n *node) take(p *pod, gpus uint64) {
	n.State = n.after(p, gpus)
	n.memory -= p.memory
	n.version++
}

// release takes back what a pod has.
func (n *node) release(h holding) {
	n.Free = slices.Clone(n.Free)
	for i := range n.Free {
		if h.gpus>>i&1 == 1 {
			n.Free[i] += h.Milli
		}
	}
	n.MilliCPU += h.MilliCPU
	n.memory += h.memory
	n.version++
}
