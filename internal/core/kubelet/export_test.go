package kubelet

import "github.com/tenon-project/tenon/internal/core/hint"

// CountMerge merges by counters what a container of p asks of s, or all of p for "", and counts the combinations of
// hints. It returns false where counters decide no merge, and for a pod that s holds.
func (s *State) CountMerge(p *Pod, container string) (answer hint.Answer, candidates uint64, decided bool) {
	var asking *Container
	for i := range p.Containers {
		if p.Containers[i].Name == container {
			asking = &p.Containers[i]
		}
	}
	n, w := s.node, &scratch{}
	q := n.question(p, asking)
	_, held := s.find(p.UID)
	if held || n.capacity == nil || len(n.types) > maxTypes || !w.sums.add(n, &q) || w.sums.byLists {
		return hint.Answer{}, 0, false
	}
	c := counters{node: n, free: s.free, merge: &w.merge}
	candidates = 1
	for hints := range c.free.Lengths(c.request(&w.sums, every)) {
		candidates *= max(hints, 1)
	}
	return c.verdict(&w.sums, every), candidates, true
}
