package ledger

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// unplaced is what pods have of NUMA nodes although no placement of theirs says so.
type unplaced struct {
	milli []int64 // CPU by NUMA node, in milli-CPUs; nil for none
	holds []align.Hold
}

// placeByReport computes where pods without placement have their CPUs and memory, by the amounts that another exporter
// reports as used on each NUMA node without the pods that use them. From these amounts it deducts what pods with a
// placement have, except for newer ones than the report. Each pod without one then takes what it requests of what is
// left: from the NUMA node with the least that suffices, else from several. So each pod counts once. What is left over
// then is held by no pod: its pods have gone.
func (v *View) placeByReport() (u unplaced) {
	m := v.facts.Machine
	used := map[why.Resource][]int64{}
	for _, h := range align.Holds(m, v.facts.Used) {
		if used[h.Resource] == nil {
			used[h.Resource] = make([]int64, m.NumNUMA())
		}
		used[h.Resource][h.Node] += h.N
	}
	for resource, left := range used {
		searching := v.deductPlaced(resource, left)
		if resource == why.CPU && len(searching) > 0 {
			u.milli = make([]int64, len(left))
		}
		for _, n := range searching {
			claim(left, n, func(node topo.NUMA, part int64) {
				if resource == why.CPU {
					u.milli[node] += part
					return
				}
				u.holds = append(u.holds, align.Hold{
					Node: node, Amount: align.Amount{NUMAID: m.NUMAID(node), Resource: resource, N: part},
				})
			})
		}
	}
	return u
}

// placed is what a pod with a placement has of a resource: amounts by NUMA node, and one that is on any of some nodes.
type placed struct {
	created    int64
	sum        int64
	on         []int64
	anyOf      topo.NodeSet
	anyOfMilli int64
}

// deductPlaced deducts from what is used of a resource, by NUMA node, what pods with a placement have. It returns what
// the others request. Where all pods together have more than is used, the report is older than the newest of those with
// a placement: these are not deducted. Reservations are no pods.
func (v *View) deductPlaced(resource why.Resource, left []int64) (searching []int64) {
	var known []placed
	unreported, pins := int64(0), v.kubeletStatic
	for _, n := range left {
		unreported -= n
	}
	for _, a := range v.accounts {
		if a.Reserves {
			continue
		}
		p, pinned := v.placed(a, resource, len(left)), v.pinned(a)
		switch {
		case resource == why.CPU && !pinned.IsEmpty():
			pins = pins.Minus(pinned)
			v.addCPUs(&p, pinned)
			known = append(known, p)
		case p.sum > 0:
			known = append(known, p)
		case a.tenant != nil && a.CPUList == "" && a.nodes == 0:
			if p.sum = lasting(a.tenant.Pod, resource); p.sum > 0 {
				searching = append(searching, p.sum)
			}
		}
		unreported += p.sum
	}
	if resource == why.CPU { // of pods that are not known
		p := placed{on: make([]int64, len(left))}
		v.addCPUs(&p, pins)
		unreported += p.sum
		p.deduct(left)
	}
	slices.SortStableFunc(known, func(a, b placed) int { // a pod without a time is not created yet
		return cmp.Compare(uint64(b.created-1), uint64(a.created-1))
	})
	for _, p := range known {
		if p.sum <= unreported {
			unreported -= p.sum
		} else {
			p.deduct(left)
		}
	}
	return searching
}

// placed returns what the placement of a pod says about a resource.
func (v *View) placed(a *account, resource why.Resource, nodes int) placed {
	p := placed{on: make([]int64, nodes)}
	if a.tenant != nil {
		p.created = a.tenant.Created
	}
	if resource == why.CPU {
		v.addCPUs(&p, a.cpus)
		if a.nodes != 0 {
			p.anyOf, p.anyOfMilli = a.nodes, min(a.milli, mostMilli)
			p.sum += p.anyOfMilli
		}
		return p
	}
	for _, h := range a.holds {
		if h.Resource == resource {
			p.on[h.Node] += h.N
			p.sum += h.N
		}
	}
	return p
}

// addCPUs adds exclusive CPUs.
func (v *View) addCPUs(p *placed, cpus cpuset.Set) {
	for n := range p.on {
		here := v.facts.Machine.NUMACPUs(topo.NUMA(n))
		milli := 1000 * int64(here.CountIn(&cpus))
		p.on[n] += milli
		p.sum += milli
	}
}

// deduct deducts what the pod has.
func (p *placed) deduct(left []int64) {
	for n := range left {
		left[n] -= p.on[n]
	}
	milli := p.anyOfMilli
	for m := p.anyOf; m != 0; m &= m - 1 {
		n := m.First()
		part := min(max(left[n], 0), milli)
		left[n], milli = left[n]-part, milli-part
	}
}

// pinned returns the CPUs that the kubelet gave to a pod that Tenon does not decide about, as far as these are known.
func (v *View) pinned(a *account) cpuset.Set {
	var cpus cpuset.Set
	if v.facts.Mode == Follow && v.facts.Model.Predicts() {
		if s := v.tenancy.Assignment(a.UID); s != nil {
			cpus = s.Placement.CPUs()
		}
	}
	for _, g := range v.given {
		if g.UID == a.UID && !a.decides() {
			cpus.Include(&g.CPUs)
		}
	}
	return cpus.Intersect(v.kubeletStatic)
}

// lasting returns what a pod has of a resource once its init containers have ended: exclusive CPUs, or the memory of a
// Guaranteed pod.
func lasting(p *kubelet.Pod, resource why.Resource) (n int64) {
	if resource == why.CPU {
		return 1000 * int64(p.CPUs())
	}
	for _, c := range p.Containers {
		for _, ask := range c.Memory {
			if p.Guaranteed && c.Role != kubelet.Init && ask.Name == string(resource) {
				n += ask.N
			}
		}
	}
	return n
}

// claim takes n of what is left: from the entry with the least that suffices, else from several. It calls f with each
// part.
func claim(left []int64, n int64, f func(topo.NUMA, int64)) {
	best := -1
	for i := range left {
		if left[i] >= n && (best < 0 || left[i] < left[best]) {
			best = i
		}
	}
	if best >= 0 {
		left[best] -= n
		f(topo.NUMA(best), n)
		return
	}
	for i := range left {
		if part := min(left[i], n); part > 0 {
			left[i], n = left[i]-part, n-part
			f(topo.NUMA(i), part)
		}
	}
}
