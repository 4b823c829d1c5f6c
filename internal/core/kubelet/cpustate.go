package kubelet

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
)

// cpuState is what the CPU manager of a node has given to whom. It is an immutable value; the map of pods is a sorted
// list, because copying it is what a new state costs.
type cpuState struct {
	policy *cpuPolicy
	// available are the CPUs of the shared pool without the reserved ones: those that may be given.
	available cpuset.Set
	// free counts available CPUs by dense NUMA index.
	free []uint16
	pods []cpuPod // ascending UID
}

// cpuPod is what one pod has.
type cpuPod struct {
	uid    string
	grants []cpuGrant // in the order in which they were given
	// told: the kubelet's report says so, or somebody's prediction, not our own emulation of its allocation.
	told bool
}

// cpuGrant is what one container has.
type cpuGrant struct {
	container string
	cpus      cpuset.Set
}

// empty is the state in which nobody has anything.
func (p *cpuPolicy) empty() *cpuState {
	s := &cpuState{policy: p, available: p.online.Minus(p.reserved)}
	s.count()
	return s
}

func (s *cpuState) count() {
	s.free = make([]uint16, len(s.policy.capacity))
	for i := range s.policy.nodes {
		node := &s.policy.nodes[i]
		s.free[node.id] = uint16(node.cpus.CountIn(&s.available))
	}
}

func (s *cpuState) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(s.pods, uid, func(p cpuPod, uid string) int { return cmp.Compare(p.uid, uid) })
}

// grants returns what a pod has, in the order in which it was given; nil for an unknown one.
func (s *cpuState) grants(uid string) []cpuGrant {
	if i, ok := s.find(uid); ok {
		return s.pods[i].grants
	}
	return nil
}

// without returns s where the pod has nothing.
//
// The kubelet frees what the pod had, even CPUs that another pod has too: on machines whose cores differ it gives CPUs
// twice (kubernetes#140495). Where one of both pods was told, the other keeps them.
func (s *cpuState) without(uid string) *cpuState {
	i, ok := s.find(uid)
	if !ok {
		return s
	}
	gone := s.pods[i]
	freed := gone.cpus()
	for j := range s.pods {
		if j != i && (gone.told || s.pods[j].told) {
			freed = freed.Minus(s.pods[j].cpus())
		}
	}
	next := &cpuState{policy: s.policy, pods: slices.Delete(slices.Clone(s.pods), i, i+1)}
	next.available = s.available.Union(freed.Intersect(s.policy.online).Minus(s.policy.reserved))
	next.count()
	return next
}

// with returns s where the pod has grants, as somebody tells, whatever it had before. No grants: it has nothing.
func (s *cpuState) with(uid string, grants []cpuGrant) *cpuState {
	s = s.without(uid)
	if len(grants) == 0 {
		return s
	}
	return s.add(cpuPod{uid: uid, grants: slices.Clone(grants), told: true})
}

// add puts a pod in that has no entry.
func (s *cpuState) add(p cpuPod) *cpuState {
	i, _ := s.find(p.uid)
	next := &cpuState{policy: s.policy, available: s.available.Minus(p.cpus())}
	next.pods = make([]cpuPod, 0, len(s.pods)+1)
	next.pods = append(append(append(next.pods, s.pods[:i]...), p), s.pods[i:]...)
	next.count()
	return next
}

func (p *cpuPod) cpus() cpuset.Set {
	var all cpuset.Set
	for i := range p.grants {
		all.Include(&p.grants[i].cpus)
	}
	return all
}

func (p *cpuPod) of(container string) (*cpuset.Set, bool) {
	for i := range p.grants {
		if p.grants[i].container == container {
			return &p.grants[i].cpus, true
		}
	}
	return nil, false
}

// admit starts the admission of a pod.
func (s *cpuState) admit(pod *Pod) *cpuAdmission {
	a := &cpuAdmission{policy: s.policy, start: s, pod: pod, available: s.available}
	a.own.uid = pod.UID
	if i, ok := s.find(pod.UID); ok {
		a.own = s.pods[i]
		a.own.grants = slices.Clip(a.own.grants)
	}
	return a
}

// cpuAdmission is one pod on its way through the CPU manager, container by container in spec order. The state that it
// started from does not change.
type cpuAdmission struct {
	policy    *cpuPolicy
	start     *cpuState
	pod       *Pod
	own       cpuPod
	available cpuset.Set
	// reuse are the CPUs of the pod's regular init containers that later containers of it may take.
	reuse cpuset.Set
	// changed: allocate gave something.
	changed bool
}

// hints are those for one container: nil when the policy does not care, empty when nothing will do.
func (a *cpuAdmission) hints(c *Container) hint.List {
	n := a.policy.request(a.pod, c)
	if n == 0 {
		return nil
	}
	if has, ok := a.own.of(c.Name); ok {
		return a.keep(has, n)
	}
	return a.policy.hints(&a.available, &a.reuse, n)
}

// podHints are those for the whole pod.
func (a *cpuAdmission) podHints() hint.List {
	n := a.policy.podRequest(a.pod)
	if n == 0 {
		return nil
	}
	var has cpuset.Set
	for i := range a.pod.Containers {
		c := &a.pod.Containers[i]
		cpus, ok := a.own.of(c.Name)
		if !ok {
			continue
		}
		if cpus.Len() != a.policy.request(a.pod, c) {
			return hint.List{}
		}
		has.Include(cpus)
	}
	if has.Len() == n {
		return a.keep(&has, n)
	}
	reuse := a.reuse.Union(has)
	return a.policy.hints(&a.available, &reuse, n)
}

// keep are the hints for n CPUs that are already given.
func (a *cpuAdmission) keep(has *cpuset.Set, n int) hint.List {
	if has.Len() != n {
		return hint.List{}
	}
	return a.policy.hints(has, &cpuset.Set{}, n)
}

// allocate gives a container its CPUs: inside m as far as that goes, the rest from anywhere; m = 0 is anywhere at once.
// It returns what the container has; the empty set without a fault when the policy does not care for it.
func (a *cpuAdmission) allocate(c *Container, m hint.Mask) (cpuset.Set, cpuFault) {
	n := a.policy.request(a.pod, c)
	if n == 0 {
		return cpuset.Set{}, cpuOK
	}
	has, given := a.own.of(c.Name)
	if !given || a.policy.model.Minor < 37 {
		if fault := a.policy.smt(&a.available, n); fault != cpuOK {
			return cpuset.Set{}, fault
		}
	}
	if given {
		a.settle(c, has)
		return *has, cpuOK
	}
	cpus, fault := a.take(n, m)
	if fault != cpuOK {
		return cpuset.Set{}, fault
	}
	a.available = a.available.Minus(cpus)
	a.own.grants = append(a.own.grants, cpuGrant{c.Name, cpus})
	a.changed = true
	a.settle(c, &cpus)
	return cpus, cpuOK
}

func (a *cpuAdmission) take(n int, m hint.Mask) (cpuset.Set, cpuFault) {
	from := a.available.Union(a.reuse)
	var taken cpuset.Set
	if m != 0 {
		inside := from.Intersect(a.policy.within(m))
		var fault cpuFault
		if taken, fault = a.policy.take(inside, min(n, inside.Len())); fault != cpuOK {
			return cpuset.Set{}, fault
		}
	}
	rest, fault := a.policy.take(from.Minus(taken), n-taken.Len())
	if fault != cpuOK {
		return cpuset.Set{}, fault
	}
	return taken.Union(rest), cpuOK
}

// settle keeps what later containers may take from this one: all of a regular init container, nothing of others.
func (a *cpuAdmission) settle(c *Container, cpus *cpuset.Set) {
	if c.Role == Init {
		a.reuse.Include(cpus)
	} else {
		a.reuse = a.reuse.Minus(*cpus)
	}
}

// smt is the check of full-pcpus-only, before any allocation.
func (p *cpuPolicy) smt(available *cpuset.Set, n int) cpuFault {
	if !p.settings.FullPCPUsOnly {
		return cpuOK
	}
	if n%p.perCore != 0 {
		return cpuOddThreads
	}
	if whole := available.Minus(p.unaligned); n > whole.Len() {
		return cpuNoWholeCores
	}
	return cpuOK
}

// state is the node's state with what the pod has now.
func (a *cpuAdmission) state() *cpuState {
	if !a.changed {
		return a.start
	}
	next := a.start
	if i, ok := next.find(a.pod.UID); ok {
		pods := slices.Clone(next.pods)
		pods[i] = a.own
		next = &cpuState{policy: a.policy, available: a.available, pods: pods}
		next.count()
		return next
	}
	return next.add(a.own)
}
