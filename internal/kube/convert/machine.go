package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Machine builds the machine that a CPU topology describes. It refuses what contradicts itself and machines on which
// CPU sets cannot be allocated: those with more than topo.MaxCPUNodes NUMA nodes with CPUs.
func Machine(d annotation.CPUTopologyDetail, arch string) (*topo.Machine, error) {
	return machineOf(d, arch, nil)
}

// machineOf adds what the zones of a NodeResourceTopology know of the machine's shape: distances, and NUMA nodes without
// CPUs. Amounts of memory stay in the zones: nodes that differ by a few pages share one machine.
func machineOf(d annotation.CPUTopologyDetail, arch string, zones []v1alpha2.Zone) (*topo.Machine, error) {
	spec := topo.Spec{Arch: arch, CPUs: make([]topo.CPUSpec, 0, len(d.Detail)), NUMA: numaSpecs(zones)}
	for _, c := range d.Detail {
		l3 := -1
		if c.L3 != nil {
			l3 = int(*c.L3)
		}
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: int(c.ID), Core: int(c.Core), L3: l3, Die: -1,
			Socket: int(c.Socket), NUMA: int(c.Node),
		})
	}
	m, err := topo.New(spec)
	if err != nil {
		return nil, err
	}
	if n := len(m.CPUNodes()); n > topo.MaxCPUNodes {
		return nil, fmt.Errorf("machine has %d NUMA nodes with CPUs, at most %d are supported", n, topo.MaxCPUNodes)
	}
	return m, nil
}

// machineReader builds the machine of a topology annotation and the zones beside it.
type machineReader func(text, arch string, zones []v1alpha2.Zone) (*topo.Machine, error)

func readMachine(text, arch string, zones []v1alpha2.Zone) (*topo.Machine, error) {
	detail, _, err := annotation.ParseCPUTopologyDetail(text)
	if err != nil {
		return nil, err
	}
	return machineOf(detail, arch, zones)
}

// numaSpecs reads the zones that are NUMA nodes; others, and distances that do not name every one of them, are left
// out: zones may have another writer, and CPU sets do not depend on them.
func numaSpecs(zones []v1alpha2.Zone) []topo.NUMASpec {
	var specs []topo.NUMASpec
	costs := map[int]v1alpha2.CostList{}
	for _, z := range zones {
		id, ok := zoneID(z.Name)
		if !ok || z.Type != annotation.ZoneTypeNode {
			continue
		}
		if _, again := costs[id]; again {
			continue
		}
		costs[id] = z.Costs
		specs = append(specs, topo.NUMASpec{ID: id})
	}
	slices.SortFunc(specs, func(a, b topo.NUMASpec) int { return cmp.Compare(a.ID, b.ID) })
	for i := range specs {
		specs[i].Distances = distances(specs, costs[specs[i].ID])
	}
	return specs
}

// zoneID reads the kernel's id out of node-<id>.
func zoneID(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, annotation.ZoneNamePrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(text, 10, 16)
	return int(id), err == nil
}

// ZoneName is the name of the zone of a NUMA node.
func ZoneName(numaID int) string { return annotation.ZoneNamePrefix + strconv.Itoa(numaID) }

// distances is a full row in the order of specs, or nil.
func distances(specs []topo.NUMASpec, costs v1alpha2.CostList) []int {
	row := make([]int, len(specs))
	for _, c := range costs {
		id, ok := zoneID(c.Name)
		if !ok || c.Value <= 0 || c.Value > 255 { // the firmware's table has one byte per distance
			return nil
		}
		if i, ok := slices.BinarySearchFunc(specs, id, func(s topo.NUMASpec, id int) int { return cmp.Compare(s.ID, id) }); ok {
			row[i] = int(c.Value)
		}
	}
	if slices.Contains(row, 0) {
		return nil
	}
	return row
}

// Topology describes a machine's online CPUs. Cores are written as dense indices: the kernel's repeat per socket.
func Topology(m *topo.Machine) annotation.CPUTopologyDetail {
	online := m.Online()
	d := annotation.CPUTopologyDetail{Detail: make([]annotation.CPUInfo, 0, online.Len())}
	for i := range online.All() {
		c := topo.CPU(i)
		l3 := int32(m.L3Of(c))
		d.Detail = append(d.Detail, annotation.CPUInfo{
			ID: int32(m.CPUID(c)), Core: int32(m.CoreOf(c)),
			Socket: int32(m.SocketID(m.SocketOf(c))), Node: int32(m.NUMAID(m.NUMAOf(c))), L3: &l3,
		})
	}
	return d
}

// FirstCPUs are the n CPUs that a kubelet takes when it is told an amount and not which: whole cores, lowest socket and
// lowest core first, then single threads. All online CPUs when the machine has no more than n.
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
