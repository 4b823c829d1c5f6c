package app

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
)

// Lost returns what says how much of a node's free GPUs or, of one without GPUs, of the free CPUs of its NUMA nodes is
// unusable. GPUs are valued by the pods that the scheduler has seen, CPUs by the pods that have CPUs of their own now.
func (l liveAccounts) Lost() func(whatif.Trial, *corev1.Node, int64) int64 {
	devices, _ := l.Core.Plugins[deviceshare.Name].(*deviceshare.Plugin)
	asked := map[int64]int64{} // pods by the number of their CPUs
	for _, name := range l.Store.Nodes() {
		v := l.Store.View(name)
		for e := range v.Entries() {
			cpus := v.CPUsOf(e.UID)
			if n := cpus.Len(); n > 0 && !e.Reserves {
				asked[int64(n)]++
			}
		}
	}
	return func(t whatif.Trial, node *corev1.Node, milliCPU int64) int64 {
		v := t.Account(node.Name)
		if lost, gpus := devices.Lost(v, milliCPU); gpus {
			return lost
		}
		return lostCPUs(v, asked)
	}
}

// lostCPUs is FGD's measure with NUMA nodes in place of GPUs, in thousandths of a NUMA node: a pod takes a part of one,
// or equal parts of as few as hold its CPUs.
// The result is 0 for a node with fewer than two NUMA nodes: its CPUs cannot be in the wrong one.
func lostCPUs(v *ledger.View, asked map[int64]int64) int64 {
	m := v.Machine()
	if m == nil || len(m.CPUNodes()) < 2 {
		return 0
	}
	// NUMA nodes of different sizes count as parts of the largest one.
	size := int64(0)
	for _, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n)
		size = max(size, int64(cpus.Len()))
	}
	state, usable := fragment.State{MilliCPU: math.MaxInt64}, v.Allocatable()
	for _, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n)
		free := cpus.Intersect(usable)
		state.Free = append(state.Free, int64(free.Len())*fragment.Whole/size)
	}
	var specs []fragment.Weighted
	for cpus, pods := range asked {
		nodes := (cpus + size - 1) / size
		specs = append(specs, fragment.Weighted{
			Spec:   fragment.Spec{GPUs: nodes, Milli: cpus * fragment.Whole / (nodes * size)},
			Weight: pods,
		})
	}
	return fragment.Lost(specs, state) * fragment.Whole / 1_000_000
}
