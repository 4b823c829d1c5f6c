package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/hint"
)

// count answers q from counters; false where only hint lists do.
func (a *admission) count(q *question) (hint.Answer, bool) {
	n := a.node
	if n.capacity == nil || a.own != nil {
		return hint.Answer{}, false
	}
	var r hint.Request
	if q.cpus > 0 {
		r.Asks = append(r.Asks, hint.Ask{Amount: int64(q.cpus), Reuse: a.cpus.reuseByNode()})
	}
	for _, ask := range q.devices {
		i, known := n.kindOf(ask.Name)
		if !known || n.kinds[i].hosts == 0 {
			continue
		}
		if ask.N == 0 {
			return hint.Answer{}, false // counters take it for no request, the kubelet offers every mask
		}
		own := hint.Ask{Resource: i + 1, Amount: ask.N}
		if q.container != nil {
			own.Reuse = widen(a.devices.reuse[n.kinds[i].first:n.kinds[i].last])
		}
		r.Asks = append(r.Asks, own)
	}
	if len(q.memory) > 0 {
		r.Memory = make([]int64, len(n.types))
		for _, ask := range q.memory {
			t, known := n.typeOf(ask.Name)
			if !known || ask.N == 0 {
				return hint.Answer{}, false
			}
			r.Memory[t] = ask.N
		}
		for _, b := range a.memory.reuse {
			t, _ := n.typeOf(b.Type)
			r.Blocks = append(r.Blocks, hint.Block{Type: t, Nodes: b.Nodes, Bytes: b.Bytes})
		}
	}
	w := n.scratch()
	answer := a.counters().Verdict(&r, &w.merge)
	n.pool.Put(w)
	return answer, answer.Certainty != hint.ByLists
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

// reuseByNode counts the CPUs that init containers leave, by NUMA node; nil for none.
func (a *cpuAdmission) reuseByNode() []int64 {
	if a.reuse.IsEmpty() {
		return nil
	}
	count := make([]int64, len(a.policy.capacity))
	for i := range a.policy.nodes {
		u := &a.policy.nodes[i]
		count[u.id] = int64(u.cpus.CountIn(&a.reuse))
	}
	return count
}

// widen returns counts as a Request wants them, nil if all are 0.
func widen(counts []int) []int64 {
	var wide []int64
	for i, count := range counts {
		if count > 0 {
			if wide == nil {
				wide = make([]int64, len(counts))
			}
			wide[i] = int64(count)
		}
	}
	return wide
}
