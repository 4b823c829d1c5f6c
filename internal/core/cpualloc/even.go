package cpualloc

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// even is a request for an even split (DistributeEvenly): k NUMA nodes give floor CPUs each, and the rest goes, one
// group at a time, to the node with the most left. This is the kubelet's criterion (KEP-2902,
// distribute-cpus-across-numa) in closed form: among sets of k nodes the largest leave the least deviation behind.
// The zero value means no even split: nodes are filled one after the other.
type even struct {
	k, floor, group, count int
}

// evenSplit finds the smallest k that can be split evenly. The request is packed when there is none, and when count is
// not a multiple of the group.
func (v *solver) evenSplit() even {
	group := 1
	if v.req.Bind == FullPCPUs {
		group = v.threads
	}
	if v.req.Strategy != DistributeEvenly || v.req.Count%group != 0 {
		return even{}
	}
	var sorted [maxNodes]int
	weights := sorted[:0]
	for i := range v.mask.All() {
		weights = append(weights, v.node[i].all.open)
	}
	slices.Sort(weights)
	slices.Reverse(weights)
	most := min(len(weights), v.req.Count/group) // more nodes than groups would leave some without
	if v.req.SingleNUMANode {
		most = min(most, 1)
	}
	for k := 1; k <= most; k++ {
		e := even{k: k, group: group, count: v.req.Count}
		e.floor = e.count / (k * group) * group
		if groups := e.groups(weights[:k]); groups >= 0 && groups >= e.extra() {
			return e
		}
	}
	return even{}
}

// extra is how many nodes give one group more than the floor.
func (e *even) extra() int { return (e.count - e.floor*e.k) / e.group }

// groups counts the groups that nodes of these weights have above the floor; -1 when one is below it.
func (e *even) groups(weights []int) int {
	total := 0
	for _, w := range weights {
		if w < e.floor {
			return -1
		}
		total += (w - e.floor) / e.group
	}
	return total
}

// shares writes the share of each of the nodes. Of nodes with equally much left the lowest gets the group, whatever its
// cores look like: shares are a matter of counts.
func (v *solver) shares(nodes topo.NodeSet, share *[maxNodes]int) {
	e := &v.even
	for i := range nodes.All() {
		share[i] = e.floor
	}
	for range e.extra() {
		fullest := nodes.First()
		for i := range nodes.All() {
			if v.node[i].all.open-share[i] > v.node[fullest].all.open-share[fullest] {
				fullest = i
			}
		}
		share[fullest] += e.group
	}
}
