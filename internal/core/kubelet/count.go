package kubelet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// count answers q from counters; false where only hint lists do.
func (a *admission) count(q *question) (hint.Answer, bool) {
	n := a.node
	if n.capacity == nil || a.own != nil || a.reuses() {
		return hint.Answer{}, false
	}
	w := n.scratch()
	defer n.pool.Put(w)
	t := &w.sums
	if t.clear(); !t.add(n, q) || t.byLists {
		return hint.Answer{}, false
	}
	c := counters{node: n, free: a.counters(), merge: &w.merge}
	return c.verdict(t, every), true
}

// reuses reports whether init containers have left anything that later containers use again.
func (a *admission) reuses() bool {
	return !a.cpus.reuse.IsEmpty() || len(a.memory.reuse) > 0 ||
		slices.ContainsFunc(a.devices.reuse, func(n int) bool { return n > 0 })
}

// counters are those of the state as it is now.
func (a *admission) counters() *hint.Summary {
	if len(a.given) == 0 {
		return a.start.free
	}
	free := make([]uint16, a.node.nodes)
	for i := range a.node.cpus.nodes {
		u := &a.node.cpus.nodes[i]
		free[u.id] = uint16(u.cpus.CountIn(&a.cpus.available))
	}
	return a.node.summary(free, a.devices.given, &a.memory.memoryState)
}
