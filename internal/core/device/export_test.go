package device

import (
	"iter"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// NewClass returns a class of given links, one bit of a NUMA node or none by device, and places.
func NewClass(w []int32, nodes []topo.NodeSet, places []int) *Class {
	return newClass(w, nodes, places)
}

// Untabled returns the class as one of more devices than tables are for.
func (c *Class) Untabled() *Class {
	u := &Class{n: c.n, w: c.w, nodes: c.nodes, places: c.places}
	u.groups = u.findInterchangeable(c.places)
	return u
}

// Select returns the keys of the best k of the free devices of a class; false where there are fewer.
func (c *Class) Select(free uint64, k int, q Demand) (Keys, bool) {
	w := &walk{class: c, open: free, k: k, fine: true, interchangeable: c.peers}
	if c.order == nil {
		w = c.many(free, 0, k)
	}
	return w.best(free, q.orEqual(), func(k Keys) (Keys, bool) { return k, true })
}

// Holdings yields what pods hold, by UID.
func (v *View) Holdings() iter.Seq[*Holding] { return slices.Values(v.holdings) }

// HoldingOf returns what a pod holds; nil for nothing.
func (v *View) HoldingOf(uid string) *Holding {
	if i, ok := v.find(uid); ok {
		return v.holdings[i]
	}
	return nil
}
