package kubelet

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// take chooses n CPUs of from as the policy's options say. It may return fewer, or ones outside of from, where the
// kubelet does.
func (p *cpuPolicy) take(from cpuset.Set, n int) (cpuset.Set, cpuFault) {
	if p.settings.DistributeAcrossNUMA {
		group := 1
		if p.settings.FullPCPUsOnly {
			group = p.perCore
		}
		return p.distribute(from, n, group)
	}
	return p.pack(from, n, p.settings.AlignL3)
}

// pack takes n CPUs of from, the largest units first and the fullest of them first: whole sockets and NUMA nodes, with
// l3 whole L3 groups or a share of one, whole cores, single CPUs. n ≤ 0 is nothing.
func (p *cpuPolicy) pack(from cpuset.Set, n int, l3 bool) (cpuset.Set, cpuFault) {
	t := cpuTaking{policy: p, free: from.Intersect(p.online), need: n}
	if n <= 0 {
		return t.taken, cpuOK
	}
	if n > t.free.Len() {
		return t.taken, cpuShort
	}
	t.wholeUnits()
	if l3 {
		t.shareL3()
	}
	if !p.settings.DistributeAcrossCores {
		t.wholeCores()
	}
	t.singles()
	if t.need > 0 {
		return cpuset.Set{}, cpuShort
	}
	return t.taken, cpuOK
}

// cpuTaking is one run of pack. Each step fixes its order when it starts; a step without need takes nothing.
//
// Where units do not nest (a socket on two NUMA nodes that another socket shares) or a unit is larger than the average,
// a unit can be listed twice or be "wholly free" while a pod has CPUs of it. The kubelet takes it all the same and
// counts all of it, so need is not what taken lacks.
type cpuTaking struct {
	policy *cpuPolicy
	free   cpuset.Set
	taken  cpuset.Set
	need   int
}

// grab takes a unit, as a whole or not at all.
func (t *cpuTaking) grab(cpus *cpuset.Set, size int) {
	if size > t.need {
		return
	}
	t.taken.Include(cpus)
	t.free = t.free.Minus(*cpus)
	t.need -= size
}

// ranked is a unit with its number of free CPUs.
type ranked struct {
	unit uint16
	free uint16
}

// byFree orders units with fewer free CPUs first: the kubelet fills those that are in use already.
func byFree(a, b ranked) int { return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.unit, b.unit)) }

// mayTake reports whether the need is as large as one of the units.
func (t *cpuTaking) mayTake(units []cpuUnit) bool {
	for i := range units {
		if units[i].size <= t.need {
			return true
		}
	}
	return false
}

// order lists those units that have a free CPU, by (free CPUs, id).
func (t *cpuTaking) order(units []cpuUnit) []ranked {
	order := make([]ranked, 0, len(units))
	for i := range units {
		if free := units[i].cpus.CountIn(&t.free); free > 0 {
			order = append(order, ranked{uint16(i), uint16(free)})
		}
	}
	slices.SortFunc(order, byFree)
	return order
}

// inside lists, outer unit by outer unit, the units that have a free CPU in their parts of it, by (free CPUs anywhere,
// id).
func (t *cpuTaking) inside(outer []ranked, parts func(outer uint16) []cpuPart, units []cpuUnit) []ranked {
	var order []ranked
	for _, o := range outer {
		first := len(order)
		for _, part := range parts(o.unit) {
			if part.cpus.Overlaps(&t.free) {
				order = append(order, ranked{part.unit, uint16(units[part.unit].cpus.CountIn(&t.free))})
			}
		}
		slices.SortFunc(order[first:], byFree)
	}
	return order
}

// sockets returns the sockets in the order in which the kubelet takes them.
func (t *cpuTaking) sockets() []ranked {
	p := t.policy
	if p.socketFirst {
		return t.order(p.sockets)
	}
	return t.inside(t.order(p.nodes), func(node uint16) []cpuPart { return p.nodes[node].sockets }, p.sockets)
}

// nodes returns the NUMA nodes in the order in which the kubelet takes them.
func (t *cpuTaking) nodes() []ranked {
	p := t.policy
	if !p.socketFirst {
		return t.order(p.nodes)
	}
	return t.inside(t.order(p.sockets), func(socket uint16) []cpuPart { return p.sockets[socket].nodes }, p.nodes)
}

// l3s returns the caches in the order of their NUMA nodes.
func (t *cpuTaking) l3s() []ranked {
	return t.inside(t.nodes(), func(node uint16) []cpuPart { return t.policy.nodes[node].l3s }, t.policy.l3s)
}

// coreGroups are the units inside which cores are ordered, and their order.
func (t *cpuTaking) coreGroups() ([]cpuUnit, []ranked) {
	if t.policy.socketFirst {
		return t.policy.nodes, t.nodes()
	}
	return t.policy.sockets, t.sockets()
}

// wholeUnits takes a socket for wholly free when as many CPUs are free as a socket has on average.
func (t *cpuTaking) wholeUnits() {
	if !t.policy.socketFirst {
		t.wholeNodes()
	}
	if t.mayTake(t.policy.sockets) {
		for _, s := range t.sockets() {
			if int(s.free) == t.policy.perSocket {
				socket := &t.policy.sockets[s.unit]
				t.grab(&socket.cpus, socket.size)
			}
		}
	}
	if t.policy.socketFirst {
		t.wholeNodes()
	}
}

// wholeNodes takes NUMA nodes of which all CPUs are free, while the pod needs that many.
func (t *cpuTaking) wholeNodes() {
	if !t.mayTake(t.policy.nodes) {
		return
	}
	for _, n := range t.nodes() {
		if node := &t.policy.nodes[n.unit]; int(n.free) == node.size {
			t.grab(&node.cpus, node.size)
		}
	}
}
