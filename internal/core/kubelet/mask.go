package kubelet

import "github.com/tenon-project/tenon/internal/core/hint"

// eachSubset yields the non-empty subsets of nodes by size, then in the order in which their lists of nodes compare, as
// the kubelet walks them, until yield returns false.
func eachSubset(nodes hint.Mask, yield func(hint.Mask) bool) {
	for size := 1; size <= nodes.Len(); size++ {
		if !pick(nodes, 0, size, yield) {
			return
		}
	}
}

// pick adds size of the nodes to chosen in every way.
func pick(nodes, chosen hint.Mask, size int, yield func(hint.Mask) bool) bool {
	if size == 0 {
		return yield(chosen)
	}
	for rest := nodes; rest.Len() >= size; rest &= rest - 1 {
		lowest := rest & -rest
		if !pick(rest&^lowest, chosen|lowest, size-1, yield) {
			return false
		}
	}
	return true
}
