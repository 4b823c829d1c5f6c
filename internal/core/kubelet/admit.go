package kubelet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Refusal is a pod that the kubelet would not run.
type Refusal struct {
	// Status is status.reason of the rejected pod: TopologyAffinityError, SMTAlignmentError, UnexpectedAdmissionError.
	// It is "" with KubeletWouldHang and KubeletPanics: the kubelet never answers.
	Status string
	// Container is the one that failed; "" for pod scope.
	Container string
	Reason    why.Reason
	// Uncertain: the kubelet may admit the pod all the same, see Given.
	Uncertain bool
}

// statuses has the reason that the kubelet writes to a pod's status for each code.
var statuses = map[why.Code]string{ //nolint:gochecknoglobals // never written
	why.KubeletTopologyAffinity: TopologyAffinityError,
	why.KubeletSMTAlignment:     SMTAlignmentError,
	why.KubeletAdmission:        UnexpectedAdmissionError,
}

// Statuses by which the kubelet rejects.
const (
	TopologyAffinityError    = "TopologyAffinityError"
	SMTAlignmentError        = "SMTAlignmentError"
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
)

// refuse returns the pod's rejection, with the status that the kubelet writes for such a reason.
func (a *admission) refuse(container string, reason why.Reason) *Refusal {
	return &Refusal{Status: statuses[reason.Code], Container: container, Reason: reason, Uncertain: a.uncertain}
}

// Admit predicts the admission of p: the state with it and what it gets, with an entry for every container, or why the
// kubelet refuses it, with the state after it has taken back what earlier containers got: that is s, but for groups of
// memory nodes, which such blocks may have changed for good. A pod that s holds already is admitted from what it has,
// as after a restart of the kubelet; refused, it keeps that.
func (s *State) Admit(p *Pod) (*State, Placement, *Refusal) {
	a := s.admission(p)
	if refusal := a.run(nil); refusal != nil {
		if len(a.given) == 0 || a.own != nil {
			return s, nil, refusal
		}
		return a.state().Without(p.UID), nil, refusal
	}
	return a.state(), a.given, nil
}

// admission is one pod on its way through the kubelet. The state that it started from does not change.
type admission struct {
	start *State
	node  *Node
	pod   *Pod
	// own is what an earlier admission gave the pod, as the kubelet's checkpoints remember it; nil for nothing.
	own Placement
	// cpus, memory and devices are copies of the managers' states, from which each container takes what it gets. They
	// also have what init containers leave for later containers.
	cpus    *cpuAdmission
	memory  memoryAdmission
	devices deviceAdmission
	// given is what the containers before have got, and the one under way up to now, in the order of the pod.
	given Placement
	// room is shared by the managers.
	room room
	// uncertain is set once what comes from here on follows from something that is not known, see Given.
	uncertain bool
}

// admission begins the admission of a pod on copies of the managers' states.
func (s *State) admission(p *Pod) *admission {
	a := &admission{start: s, node: s.node, pod: p, uncertain: s.Uncertain(p)}
	a.own, _ = s.Placement(p.UID)
	a.cpus = s.cpus.admit(p, &a.room)
	a.memory = memoryAdmission{node: s.node, pod: p, memoryState: s.memory.clone(), room: &a.room}
	a.devices = deviceAdmission{node: s.node, given: slices.Clone(s.devices), room: &a.room}
	sets := len(s.devices)
	counts := make([]int, 6*sets)
	a.devices.reuse, a.devices.free, a.devices.counts = counts[:sets], counts[sets:sets:2*sets], counts[2*sets:]
	a.given = make(Placement, 0, len(p.Containers))
	return a
}

// watch is called for each merge, before its answer takes effect; a nil container means the whole pod.
type watch func(c *Container, lists []hint.Named)

// run admits container by container. It reports each merge to w, unless that is nil.
func (a *admission) run(w watch) *Refusal {
	topology := &a.node.config.Topology
	a.room.enough = breadth(w == nil && topology.Policy == hint.SingleNUMANode)
	var whole hint.Answer
	if topology.Policy != hint.None && topology.PodScope {
		answer, reason := a.merge(nil, w)
		if !reason.OK() {
			return a.refuse("", reason)
		}
		whole = answer
	}
	for i := range a.pod.Containers {
		c := &a.pod.Containers[i]
		a.uncertain = a.uncertain || slices.ContainsFunc(a.devices.open, c.asksDevice)
		answer := whole
		if topology.Policy != hint.None && !topology.PodScope {
			own, reason := a.merge(c, w)
			if !reason.OK() {
				return a.refuse(c.Name, reason)
			}
			answer = own
		}
		a.given = append(a.given, Given{Container: c.Name, Hint: answer.Hint, Uncertain: a.uncertain})
		if reason := a.allocate(c, &a.given[i]); !reason.OK() {
			return a.refuse(c.Name, reason)
		}
	}
	return nil
}

// allocate asks the managers in the kubelet's order: devices, CPUs, memory.
func (a *admission) allocate(c *Container, g *Given) why.Reason {
	if reason := a.allocateDevices(c, g); !reason.OK() {
		return reason
	}
	cpus, fault := a.cpus.allocate(c, g.Hint.Mask)
	if fault != cpuOK {
		return a.node.cpus.reason(&a.cpus.available, c.CPUs, fault)
	}
	g.CPUs = cpus
	return a.allocateMemory(c, g)
}

// allocateDevices gives a container what it has of an earlier admission, or takes devices by the merged hint. The
// kubelet refuses a container that has another number than it asks for.
func (a *admission) allocateDevices(c *Container, g *Given) why.Reason {
	has := a.own.Find(c.Name)
	for _, ask := range c.Devices {
		at, known := a.node.kindOf(ask.Name)
		if !known {
			continue
		}
		if g.Devices == nil {
			g.Devices = make([]Devices, 0, len(c.Devices))
		}
		k := &a.node.kinds[at]
		if kept := has.devicesOf(ask.Name); len(kept) > 0 {
			sum := int64(0)
			for _, d := range kept {
				sum += int64(d.Count)
			}
			if sum != ask.N {
				return devicesRefused(why.OtherAmountHeld, ask.N, sum)
			}
			if k.healthy == 0 {
				return devicesRefused(why.DevicesUnhealthy, ask.N, 0)
			}
			g.Devices = append(g.Devices, kept...)
			continue
		}
		if reason := a.devices.allocate(k, ask.N, g); !reason.OK() {
			return reason
		}
	}
	a.devices.keepReusable(c.Role, g.Devices)
	return why.Reason{}
}

// allocateMemory gives a container the blocks that it has of an earlier admission, or takes some by the merged hint.
func (a *admission) allocateMemory(c *Container, g *Given) why.Reason {
	if has := a.own.Find(c.Name); has != nil && len(has.Memory) > 0 && a.node.managesMemory(a.pod) {
		g.Memory = slices.Clone(has.Memory)
		a.memory.keepReusable(c, g.Memory)
		return why.Reason{}
	}
	blocks, reason := a.memory.allocate(c, g.Hint, a.given[:len(a.given)-1])
	g.Memory = blocks
	return reason
}

// state returns the state after the admission: the managers' states, and the pod as a holder of what its containers
// got. Devices are counted by what has changed, as containers may share what init containers had.
func (a *admission) state() *State {
	s := a.start
	next := *s
	next.cpus, next.memory, next.devices = a.cpus.state(), a.memory.memoryState, a.devices.given
	next.memory.released = nil
	h := holder{uid: a.pod.UID, given: a.given, devices: slices.Clone(next.devices)}
	h.devices.add(s.devices, -1)
	if i, known := s.find(h.uid); known {
		h.devices.add(s.held[i].devices, 1)
	}
	next.insert(h)
	next.count()
	return &next
}

// devicesOf returns what a container has of one resource; g may be nil.
func (g *Given) devicesOf(resource string) []Devices {
	if g == nil {
		return nil
	}
	var list []Devices
	for _, d := range g.Devices {
		if d.Resource == resource && d.Count > 0 {
			list = append(list, d)
		}
	}
	return list
}

// reason returns why the CPU manager does not allocate. Nodes whose kubelet's release is not known (minor 0) are
// counted alone, with reasons of the scheduler instead of the kubelet's.
func (p *cpuPolicy) reason(available *cpuset.Set, cpus int, fault cpuFault) why.Reason {
	r := why.Reason{Code: why.KubeletAdmission, Resource: why.CPU, Unit: why.CPUs, Asked: int64(cpus)}
	if p.model.Minor == 0 {
		if r.Code = why.InsufficientKubeletCPU; fault == cpuOddThreads {
			r.Code, r.Extra = why.SMTAlignment, int64(p.perCore)
		} else if r.Free = int64(available.Len()); p.settings.FullPCPUsOnly {
			whole := available.Minus(p.unaligned)
			r.Free = int64(whole.Len())
		}
		return r
	}
	switch fault {
	case cpuOddThreads, cpuNoWholeCores:
		r.Code, r.Extra = why.KubeletSMTAlignment, int64(p.perCore)
	case cpuHangs:
		r.Code = why.KubeletWouldHang
	default:
		r.Extra = int64(why.CPUsShort)
	}
	return r
}
