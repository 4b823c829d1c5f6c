package place_test

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// promise is a request of milli-CPU that is confined to a set of NUMA nodes.
type promise struct {
	nodes uint
	milli int64
}

// promisesOf reads what pods were promised from the entries of v.
func promisesOf(v *ledger.View) []promise {
	var out []promise
	for e := range v.Entries() {
		p := promise{milli: e.MilliCPU}
		for i, n := range v.Machine().CPUNodes() {
			for _, id := range e.NUMAIDs {
				if e.Role == qos.SharedPool && id == v.Machine().NUMAID(n) {
					p.nodes |= 1 << i
				}
			}
		}
		if p.nodes != 0 {
			out = append(out, p)
		}
	}
	return out
}

// poolsOf is the size of each NUMA node's shared pool, in milli-CPU.
func poolsOf(v *ledger.View) []int64 {
	pool := v.SharedPool()
	var out []int64
	for _, n := range v.Machine().CPUNodes() {
		cpus := v.Machine().NUMACPUs(n)
		out = append(out, 1000*int64(cpus.CountIn(&pool)))
	}
	return out
}

// pact is what pods were promised of pools, and what they get of that.
type pact struct {
	pools    []int64
	promises []promise
	served   int64
	keeps    map[string]bool // memory of keepWithout
}

func newPact(pools []int64, promises []promise) *pact {
	return &pact{pools, promises, served(pools, promises...), map[string]bool{}}
}

// promised is the sum of all promises.
func (p *pact) promised() int64 {
	total := int64(0)
	for _, promise := range p.promises {
		total += promise.milli
	}
	return total
}

// promisable reports whether a pod that is confined to NUMA nodes gets its request and no other pod less.
func (p *pact) promisable(nodes uint, milli int64) bool {
	return served(p.pools, append(slices.Clone(p.promises), promise{nodes, milli})...) == p.served+milli
}

// keepWithout reports whether pods get as much of their promises when so many CPUs leave the pool of each NUMA node.
func (p *pact) keepWithout(taken []int) bool {
	key := fmt.Sprint(taken)
	keeps, known := p.keeps[key]
	if !known {
		pools := slices.Clone(p.pools)
		for i, n := range taken {
			pools[i] -= 1000 * int64(n)
		}
		keeps = served(pools, p.promises...) == p.served
		p.keeps[key] = keeps
	}
	return keeps
}

// served is the most that pods can get of their promises together: a maximum flow from pods to pools, found by
// augmenting paths. It knows nothing of the ledger's account.
func served(pools []int64, promises ...promise) int64 {
	type edge struct{ pod, node int }
	flow := make([]int64, len(promises)*len(pools))
	on := func(pod, node int) *int64 { return &flow[pod*len(pools)+node] }
	left, owed := append([]int64{}, pools...), []int64{}
	total := int64(0)
	for _, p := range promises {
		owed = append(owed, p.milli)
	}
	for first := range promises {
		for owed[first] > 0 {
			// A path leads from the pod to a node, back to a pod that uses the node, on to another node, and so on.
			from := map[int]edge{} // node: by which pod, which uses which other node; -1 for the first pod
			queue := []edge{{first, -1}}
			end := -1
			for len(queue) > 0 && end < 0 {
				at := queue[0]
				queue = queue[1:]
				for nodes := promises[at.pod].nodes; nodes != 0 && end < 0; nodes &= nodes - 1 {
					node := bits.TrailingZeros(nodes)
					if _, seen := from[node]; seen {
						continue
					}
					from[node] = at
					if left[node] > 0 {
						end = node
					}
					for pod := range promises {
						if *on(pod, node) > 0 {
							queue = append(queue, edge{pod, node})
						}
					}
				}
			}
			if end < 0 {
				break
			}
			amount := min(owed[first], left[end])
			for node := end; from[node].node >= 0; node = from[node].node {
				amount = min(amount, *on(from[node].pod, from[node].node))
			}
			left[end] -= amount
			owed[first] -= amount
			total += amount
			for node := end; node >= 0; node = from[node].node {
				*on(from[node].pod, node) += amount
				if before := from[node].node; before >= 0 {
					*on(from[node].pod, before) -= amount
				}
			}
		}
	}
	return total
}
