package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// cpuFault is why the CPU manager gives nothing.
type cpuFault uint8

const (
	cpuOK cpuFault = iota
	// cpuOddThreads: full-pcpus-only and the request is not a multiple of the threads of a core (SMTAlignmentError).
	cpuOddThreads
	// cpuNoWholeCores: full-pcpus-only and fewer CPUs than requested are on cores without a reserved CPU
	// (SMTAlignmentError).
	cpuNoWholeCores
	// cpuShort: fewer CPUs are free than asked.
	cpuShort
	// cpuMiscount: distribute-cpus-across-numa lost count ("accounting error").
	cpuMiscount
	// cpuHangs: the kubelet would never answer.
	cpuHangs
)

// cpuPolicy is the CPU manager of one machine under one kubelet: what never changes. It is immutable.
type cpuPolicy struct {
	*cpuLayout
	model    Model
	settings CPU
	reserved cpuset.Set
	// unaligned are the CPUs of cores that have a reserved CPU: full-pcpus-only does not count them.
	unaligned cpuset.Set
}

// newCPUPolicy returns the CPU manager's policy on a machine. Threads beside a reserved CPU are not aligned.
func newCPUPolicy(m *topo.Machine, c Config) *cpuPolicy {
	p := &cpuPolicy{cpuLayout: newCPULayout(m), model: c.Model, settings: c.CPU}
	p.reserved = c.CPU.Reserved.Intersect(p.online)
	for cpu := range p.reserved.All() {
		for _, thread := range p.cores[p.coreOf[cpu]] {
			p.unaligned.Add(int(thread))
		}
	}
	return p
}

// ReservedCPUs returns the CPUs that a kubelet without reservedSystemCPUs keeps for itself: the sum of kubeReserved and
// systemReserved in milli-CPU, rounded up to whole CPUs and taken from all online CPUs as its options say.
// c.CPU.Reserved is not read. false: the kubelet would not start, because nothing or more than the machine is reserved.
func ReservedCPUs(m *topo.Machine, c Config, milliCPU int64) (cpuset.Set, bool) {
	p := &cpuPolicy{cpuLayout: newCPULayout(m), model: c.Model, settings: c.CPU}
	if milliCPU <= 0 || milliCPU > int64(p.online.Len())*1000 {
		return cpuset.Set{}, false
	}
	n := int((milliCPU + 999) / 1000)
	set, fault := p.take(p.online, n)
	return set, fault == cpuOK && set.Len() == n
}

// uniform reports whether the packed order gives as many CPUs as are asked, and free ones only: cores and sockets are
// of one size each, and no unit is listed twice because it is in two larger ones.
func (p *cpuPolicy) uniform() bool {
	for i := range p.cores {
		if len(p.cores[i]) != p.perCore {
			return false
		}
	}
	for i := range p.sockets {
		if p.sockets[i].size != p.perSocket || !p.socketFirst && len(p.sockets[i].nodes) > 1 {
			return false
		}
	}
	listed := 0
	for i := range p.nodes {
		if p.socketFirst && len(p.nodes[i].sockets) > 1 {
			return false
		}
		listed += len(p.nodes[i].l3s)
	}
	return !p.settings.AlignL3 || listed == len(p.l3s)
}

// manages reports whether the static policy gives the pod CPUs of its own.
func (p *cpuPolicy) manages(pod *Pod) bool {
	return p.settings.Static && pod.Guaranteed && !(pod.PodLevel && p.model.SkipsPodLevel)
}

// request is the CPUs of a container that are its own, 0 for none.
func (p *cpuPolicy) request(pod *Pod, c *Container) int {
	if !p.manages(pod) {
		return 0
	}
	return c.CPUs
}

// podRequest is the CPUs that the pod needs at once, 0 for none.
func (p *cpuPolicy) podRequest(pod *Pod) int {
	if !p.manages(pod) {
		return 0
	}
	return pod.peakCPUs()
}

// socketAligned reports whether m is on no more and no fewer sockets than least nodes need.
func (p *cpuPolicy) socketAligned(m topo.NodeSet, least int) bool {
	perSocket, sockets := len(p.nodes)/len(p.sockets), p.socketsOf(m)
	return perSocket > 0 && sockets.Len() == (least+perSocket-1)/perSocket
}

// socketsOf is the set of positions in sockets.
func (p *cpuPolicy) socketsOf(m topo.NodeSet) cpuset.Set {
	var sockets cpuset.Set
	for i := range p.nodes {
		if m.Has(topo.NUMA(p.nodes[i].id)) {
			for _, part := range p.nodes[i].sockets {
				sockets.Add(int(part.unit))
			}
		}
	}
	return sockets
}

// within returns the online CPUs inside m: of its nodes, or with align-by-socket of its sockets.
func (p *cpuPolicy) within(m topo.NodeSet) cpuset.Set {
	var cpus cpuset.Set
	if p.settings.AlignBySocket {
		for s := range p.socketsOf(m).All() {
			cpus.Include(&p.sockets[s].cpus)
		}
		return cpus
	}
	for i := range p.nodes {
		if m.Has(topo.NUMA(p.nodes[i].id)) {
			cpus.Include(&p.nodes[i].cpus)
		}
	}
	return cpus
}

// hints lists the masks of nodes that hold n CPUs of free and reuse, with all of reuse: 2^nodes masks are walked, so
// the caller bounds the nodes. The list is not nil; its order says nothing.
func (p *cpuPolicy) hints(free, reuse *cpuset.Set, n int, r *room) hint.List {
	var all, must topo.NodeSet
	for i := range p.nodes {
		node := &p.nodes[i]
		all |= 1 << node.id
		if node.cpus.Overlaps(reuse) {
			must |= 1 << node.id
		}
	}
	left, need := p.count(free), int64(n-reuse.Len())
	list, least := r.list(all,
		func(m topo.NodeSet) bool { return sumOn(p.capacity, m) >= int64(n) },
		func(m topo.NodeSet) bool { return must.Within(m) && sumOn(left, m) >= need })
	for i := range list {
		list[i].Preferred = list[i].Preferred || p.settings.AlignBySocket && p.socketAligned(list[i].Mask, least)
	}
	return list
}
