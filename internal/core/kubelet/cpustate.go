package kubelet

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
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

// cpuPod is a pod with CPUs of its own.
type cpuPod struct {
	uid    string
	grants []cpuGrant // in the order in which they were given
	// external: the grants come from the kubelet's report or from a prediction, not from our own emulation of its
	// allocation.
	external bool
}

// cpuGrant is the CPUs of one container.
type cpuGrant struct {
	container string
	cpus      cpuset.Set
}

// empty returns the state without pods.
func (p *cpuPolicy) empty() *cpuState {
	return p.state(p.online.Minus(p.reserved), nil)
}

// state returns a state with these CPUs free and these pods, which are sorted by UID.
func (p *cpuPolicy) state(available cpuset.Set, pods []cpuPod) *cpuState {
	return &cpuState{policy: p, available: available, free: p.count(&available), pods: pods}
}

// count counts the CPUs of a set by dense NUMA index.
func (p *cpuPolicy) count(cpus *cpuset.Set) []uint16 {
	counts := make([]uint16, len(p.capacity))
	for i := range p.nodes {
		counts[p.nodes[i].id] = uint16(p.nodes[i].cpus.CountIn(cpus))
	}
	return counts
}

// find returns the position of a pod, or the one where it would be inserted and false.
func (s *cpuState) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(s.pods, uid, func(p cpuPod, uid string) int { return cmp.Compare(p.uid, uid) })
}

// without returns s where the pod has nothing.
//
// The kubelet frees what the pod had, even CPUs that another pod has too: on machines whose cores differ it gives CPUs
// twice (kubernetes#140495). Where the grants of one of the two pods are external, the other keeps them.
func (s *cpuState) without(uid string) *cpuState {
	i, ok := s.find(uid)
	if !ok {
		return s
	}
	gone := s.pods[i]
	freed := gone.cpus()
	for j := range s.pods {
		if j != i && (gone.external || s.pods[j].external) {
			freed = freed.Minus(s.pods[j].cpus())
		}
	}
	freed = freed.Intersect(s.policy.online).Minus(s.policy.reserved)
	return s.policy.state(s.available.Union(freed), slices.Delete(slices.Clone(s.pods), i, i+1))
}

// with returns s with external grants for the pod, in place of what it had before. No grants: it has nothing.
func (s *cpuState) with(uid string, grants []cpuGrant) *cpuState {
	s = s.without(uid)
	if len(grants) == 0 {
		return s
	}
	p := cpuPod{uid: uid, grants: slices.Clone(grants), external: true}
	i, _ := s.find(uid)
	return s.policy.state(s.available.Minus(p.cpus()), slices.Insert(slices.Clip(s.pods), i, p))
}

// cpus returns the CPUs of all containers.
func (p *cpuPod) cpus() cpuset.Set {
	var all cpuset.Set
	for i := range p.grants {
		all.Include(&p.grants[i].cpus)
	}
	return all
}

// cpusOf returns the CPUs of one container; false if it has none of its own.
func (p *cpuPod) cpusOf(container string) (*cpuset.Set, bool) {
	for i := range p.grants {
		if p.grants[i].container == container {
			return &p.grants[i].cpus, true
		}
	}
	return nil, false
}
