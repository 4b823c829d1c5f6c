package kubelet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// cpuAdmission is one pod on its way through the CPU manager, container by container in spec order. The state that it
// started from does not change.
type cpuAdmission struct {
	policy *cpuPolicy
	start  *cpuState
	pod    *Pod
	// own is what the pod has: grants of an earlier admission, then those of this one. The grants of start are shared
	// until allocate appends one.
	own       cpuPod
	available cpuset.Set // CPUs that no pod has, without those that the pod got meanwhile
	// reuse are the CPUs of the pod's regular init containers that later containers of it may take.
	reuse cpuset.Set
	room  *room // of the hints
	// changed: allocate gave something.
	changed bool
}

// admit begins the admission of a pod by the CPU manager. A pod that is known keeps its grants.
func (s *cpuState) admit(pod *Pod, r *room) *cpuAdmission {
	a := &cpuAdmission{policy: s.policy, start: s, pod: pod, available: s.available, room: r}
	a.own.uid = pod.UID
	if i, ok := s.find(pod.UID); ok {
		a.own = s.pods[i]
		a.own.grants = slices.Clip(a.own.grants)
	}
	return a
}

// hints are those for one container: nil when the policy has no preference, empty when no NUMA nodes are feasible.
func (a *cpuAdmission) hints(c *Container) hint.List {
	n := a.policy.request(a.pod, c)
	if n == 0 {
		return nil
	}
	if has, ok := a.own.cpusOf(c.Name); ok {
		if has.Len() != n {
			return hint.List{}
		}
		return a.policy.hints(has, &cpuset.Set{}, n, a.room)
	}
	return a.policy.hints(&a.available, &a.reuse, n, a.room)
}

// podHints are those for the whole pod, under pod scope. CPUs that some containers have already may be used again.
func (a *cpuAdmission) podHints() hint.List {
	n := a.policy.podRequest(a.pod)
	if n == 0 {
		return nil
	}
	var has cpuset.Set
	for i := range a.pod.Containers {
		c := &a.pod.Containers[i]
		cpus, ok := a.own.cpusOf(c.Name)
		if !ok {
			continue
		}
		if cpus.Len() != a.policy.request(a.pod, c) {
			return hint.List{}
		}
		has.Include(cpus)
	}
	if has.Len() == n {
		return a.policy.hints(&has, &cpuset.Set{}, n, a.room)
	}
	reuse := a.reuse.Union(has)
	return a.policy.hints(&a.available, &reuse, n, a.room)
}

// allocate gives a container its CPUs: inside m as far as that goes, the rest from anywhere; m = 0 is anywhere at once.
// It returns what the container has; the empty set without a fault when the policy does not care for it.
func (a *cpuAdmission) allocate(c *Container, m topo.NodeSet) (cpuset.Set, cpuFault) {
	n := a.policy.request(a.pod, c)
	if n == 0 {
		return cpuset.Set{}, cpuOK
	}
	has, given := a.own.cpusOf(c.Name)
	if !given || a.policy.model.ChecksPinned {
		if fault := a.policy.smt(&a.available, n); fault != cpuOK {
			return cpuset.Set{}, fault
		}
	}
	if given {
		a.keepReusable(c, has)
		return *has, cpuOK
	}
	cpus, fault := a.take(n, m)
	if fault != cpuOK {
		return cpuset.Set{}, fault
	}
	a.available = a.available.Minus(cpus)
	if !a.changed {
		a.own.grants = slices.Grow(a.own.grants, len(a.pod.Containers))
	}
	a.own.grants = append(a.own.grants, cpuGrant{c.Name, cpus})
	a.changed = true
	a.keepReusable(c, &cpus)
	return cpus, cpuOK
}

// take chooses n CPUs of those that are available or reusable: inside m first, each part as the policy packs it.
func (a *cpuAdmission) take(n int, m topo.NodeSet) (cpuset.Set, cpuFault) {
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

// keepReusable keeps what later containers may take from this one: all of a regular init container, nothing of others.
func (a *cpuAdmission) keepReusable(c *Container, cpus *cpuset.Set) {
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

// state returns the CPU manager's state after the admission; the one before if nothing was given.
func (a *cpuAdmission) state() *cpuState {
	if !a.changed {
		return a.start
	}
	pods := slices.Clone(a.start.pods)
	i, known := a.start.find(a.pod.UID)
	if !known {
		pods = slices.Insert(pods, i, cpuPod{})
	}
	pods[i] = a.own
	return a.policy.state(a.available, pods)
}
