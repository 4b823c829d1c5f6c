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

func newCPUPolicy(m *topo.Machine, c Config) *cpuPolicy {
	p := &cpuPolicy{cpuLayout: newCPULayout(m), model: c.Model, settings: c.CPU}
	p.reserved = c.CPU.Reserved.Intersect(p.online)
	for cpu := range p.reserved.All() {
		for _, thread := range p.cores[p.coreOf[cpu]].threads {
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
		if len(p.cores[i].threads) != p.perCore {
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

// manages reports whether the policy looks at a pod at all.
func (p *cpuPolicy) manages(pod *Pod) bool {
	if !p.settings.Static || !pod.Guaranteed {
		return false
	}
	return !pod.PodLevel || !p.model.SkipsPodLevel
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

// minNodes is the size of the smallest mask whose capacity holds n CPUs, reserved and given ones included; the number
// of nodes with CPUs when none does.
func (p *cpuPolicy) minNodes(n int) int {
	var least [topo.MaxNUMANodes]uint16
	sizes := least[:0]
	for i := range p.nodes {
		sizes = append(sizes, uint16(p.nodes[i].size))
	}
	sortDescending(sizes)
	for i, size := range sizes {
		if n -= int(size); n <= 0 {
			return i + 1
		}
	}
	return len(p.nodes)
}

// sortDescending is an insertion sort: machines have few nodes, mostly equal ones.
func sortDescending(v []uint16) {
	for i := 1; i < len(v); i++ {
		for j := i; j > 0 && v[j-1] < v[j]; j-- {
			v[j-1], v[j] = v[j], v[j-1]
		}
	}
}

// prefers reports whether a hint of n CPUs for a mask is preferred, when the smallest mask has size least.
func (p *cpuPolicy) prefers(m topo.NodeSet, least int) bool {
	return m.Len() == least || p.settings.AlignBySocket && p.socketAligned(m, least)
}

// socketAligned reports whether m is on no more and no fewer sockets than least nodes need.
func (p *cpuPolicy) socketAligned(m topo.NodeSet, least int) bool {
	perSocket := len(p.nodes) / len(p.sockets)
	if perSocket == 0 {
		return false
	}
	sockets := p.socketsOf(m)
	return sockets.Len() == (least+perSocket-1)/perSocket
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
func (p *cpuPolicy) hints(free, reuse *cpuset.Set, n int) hint.List {
	w := cpuWalk{need: n - reuse.Len(), list: make(hint.List, 0, 1<<min(len(p.nodes), 8))}
	for i := range p.nodes {
		node := &p.nodes[i]
		w.nodes[i] = cpuWalkNode{topo.NodeSet(1) << node.id, node.cpus.CountIn(free)}
		if node.cpus.Overlaps(reuse) {
			w.must |= w.nodes[i].bit
		}
	}
	w.from(len(p.nodes), 0, 0, 0)
	least := p.minNodes(n)
	for i := range w.list {
		w.list[i].Preferred = p.prefers(w.list[i].Mask, least)
	}
	return w.list
}

// cpuWalk goes through all masks.
type cpuWalk struct {
	nodes [topo.MaxNodes]cpuWalkNode
	must  topo.NodeSet
	need  int
	list  hint.List
}

type cpuWalkNode struct {
	bit  topo.NodeSet
	free int
}

// from lists the feasible masks that add nodes i…n-1 to m, which has free CPUs.
func (w *cpuWalk) from(n, i int, m topo.NodeSet, free int) {
	for ; i < n; i++ {
		m, free := m|w.nodes[i].bit, free+w.nodes[i].free
		if free >= w.need && w.must.Within(m) {
			w.list = append(w.list, hint.Hint{Mask: m})
		}
		w.from(n, i+1, m, free)
	}
}
