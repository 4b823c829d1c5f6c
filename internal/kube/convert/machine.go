package convert

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Machine builds the machine that a CPU topology describes. It refuses what contradicts itself and machines on which
// CPU sets cannot be allocated: those with more than topo.MaxNodes NUMA nodes with CPUs. zones is what a
// NodeResourceTopology knows of its shape: distances, and NUMA nodes without CPUs. Amounts of memory are not part of
// it: nodes that differ by a few pages share one machine.
func Machine(d annotation.CPUTopologyDetail, arch string, zones []topo.NUMASpec) (*topo.Machine, error) {
	spec := topo.Spec{Arch: arch, CPUs: make([]topo.CPUSpec, 0, len(d.Detail)), NUMA: zones}
	for _, c := range d.Detail {
		l3 := -1
		if c.L3 != nil {
			l3 = int(*c.L3)
		}
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: int(c.ID), Core: int(c.Core), L3: l3, Socket: int(c.Socket), NUMA: int(c.Node),
		})
	}
	m, err := topo.New(spec)
	if err != nil {
		return nil, err
	}
	if m.TooWide() {
		return nil, fmt.Errorf("machine has %d NUMA nodes with CPUs, at most %d are supported", len(m.CPUNodes()),
			topo.MaxNodes)
	}
	return m, nil
}

// Topology describes a machine's online CPUs. Cores are written as dense indices: the kernel's repeat per socket.
// Caches have the kernel's ids, after which the kubelet orders them, and none where they are not known.
func Topology(m *topo.Machine) annotation.CPUTopologyDetail {
	online := m.Online()
	d := annotation.CPUTopologyDetail{Detail: make([]annotation.CPUInfo, 0, online.Len())}
	for i := range online.All() {
		c := topo.CPU(i)
		info := annotation.CPUInfo{
			ID: int32(m.CPUID(c)), Core: int32(m.CoreOf(c)),
			Socket: int32(m.SocketID(m.SocketOf(c))), Node: int32(m.NUMAID(m.NUMAOf(c))),
		}
		if id := m.L3ID(m.L3Of(c)); id >= 0 && id <= math.MaxInt32 {
			l3 := int32(id)
			info.L3 = &l3
		}
		d.Detail = append(d.Detail, info)
	}
	return d
}

// FirstCPUs returns the n CPUs that a kubelet reserves when only an amount is configured: whole cores, lowest socket
// and lowest core first, then single threads. All online CPUs when the machine has no more than n.
func FirstCPUs(m *topo.Machine, n int) cpuset.Set {
	cores := make([]topo.Core, m.NumCores())
	for i := range cores {
		cores[i] = topo.Core(i)
	}
	slices.SortStableFunc(cores, func(a, b topo.Core) int { return cmp.Compare(m.CoreSocket(a), m.CoreSocket(b)) })
	online := m.Online()
	var taken cpuset.Set
	for _, core := range cores {
		for _, c := range m.CoreCPUs(core) {
			if taken.Len() >= n {
				return taken
			}
			if online.Has(int(c)) {
				taken.Add(int(c))
			}
		}
	}
	return taken
}
