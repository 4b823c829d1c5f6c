package cpualloc

import "github.com/tenon-project/tenon/internal/core/topo"

// prefer decides how the preferred CPUs are used: as many of them as the request can hold, before every other wish.
//
// Under SingleNUMANode it narrows v.mask to the nodes that hold the request and the most preferred CPUs; their base
// CPUs then differ by node and force none.
func (v *solver) prefer(counts []NodeCount) {
	if v.req.SingleNUMANode {
		v.keepHolding(counts)
	}
	if v.state.Preferred.IsEmpty() {
		return
	}
	var per [maxNodes]int
	total, best := 0, 0
	for i := range v.mask.All() {
		per[i] = min(v.preferredIn(i), v.req.Count)
		total += per[i]
		best = max(best, per[i])
	}
	if v.req.SingleNUMANode {
		total = best
		for i := range v.mask.All() {
			if per[i] < best {
				v.mask &^= 1 << i
			}
		}
	}
	switch {
	case total == 0:
	case total >= v.req.Count:
		v.source = preferredOnly
	case v.requires(FullPCPUs) && total%v.threads != 0:
		// Cores of different sizes: what is left to take would be no multiple of the full size, and whole cores for it
		// may not exist on the chosen nodes. Preference yields to the request.
		v.source = fromFree
	default:
		v.source = preferredFirst
	}
}

// keepHolding drops the nodes that cannot hold the request alone.
func (v *solver) keepHolding(counts []NodeCount) {
	for i := range v.mask.All() {
		if counts[i].offers(v.req) < int64(v.req.Count) {
			v.mask &^= 1 << i
		}
	}
}

// preferredIn counts the preferred CPUs of a node that the bind policy can use.
func (v *solver) preferredIn(n topo.NUMA) int {
	total := 0
	for _, c := range v.m.NUMACores(n) {
		preferred := 0
		for _, cpu := range v.m.CoreCPUs(c) {
			if v.state.Preferred.Has(int(cpu)) {
				preferred++
			}
		}
		if preferred > 0 {
			total += v.canPrefer(preferred, wholeSize(v.m, c))
		}
	}
	return total
}
