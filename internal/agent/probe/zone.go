package probe

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// zones lists every NUMA node with its distances, those without CPUs or memory too.
func zones(m *topo.Machine) v1alpha2.ZoneList {
	var list v1alpha2.ZoneList
	for n := range topo.NUMA(m.NumNUMA()) {
		z := v1alpha2.Zone{Name: convert.ZoneName(m.NUMAID(n)), Type: annotation.ZoneTypeNode}
		for o := range topo.NUMA(m.NumNUMA()) {
			z.Costs = append(z.Costs, v1alpha2.CostInfo{
				Name: convert.ZoneName(m.NUMAID(o)), Value: int64(m.Distance(n, o)),
			})
		}
		list = append(list, z)
	}
	return list
}

// memoryKey is one type of memory on one NUMA node, by its kernel id.
type memoryKey struct {
	node int
	kind string
}

// heldMemory is what pods hold by Tenon's own records. A pod that the kubelet's memory manager has recorded is left
// out: it is counted there.
func heldMemory(in Input) map[memoryKey]int64 {
	held := map[memoryKey]int64{}
	for _, pod := range in.Pods {
		if convert.Ended(pod.Pod) || len(in.State.Memory.Pods[convert.NodeUID(pod.Pod)]) > 0 {
			continue
		}
		for _, n := range pod.Allocation.NUMANodeResources {
			for name, q := range n.Resources {
				if name != corev1.ResourceCPU {
					held[memoryKey{int(n.Node), string(name)}] += q.Value()
				}
			}
		}
	}
	return held
}

// resources are the amounts of one NUMA node. Capacity is what the machine has, allocatable what is left of it beside
// reservations, available what is left of that beside all that pods have there: exclusive CPUs, requests that are
// constrained to the node, the kubelet's memory blocks and devices. What batch pods are granted is its own amount.
func resources(in Input, n topo.NUMA, v *ledger.View, held map[memoryKey]int64, devices []deviceGroup,
) v1alpha2.ResourceInfoList {
	var list v1alpha2.ResourceInfoList
	m := in.Machine
	if cpus := m.NUMACPUs(n).Intersect(m.Online()); !cpus.IsEmpty() {
		allocatable, milli := free(v, m.NUMAID(n))
		info := amount(string(corev1.ResourceCPU), resource.DecimalSI, int64(cpus.Len()), allocatable, 0)
		info.Available = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		list = append(list, info)
	}
	list = append(list, memoryOf(in, n, held)...)
	batch := in.Batch[m.NUMAID(n)]
	for _, name := range slices.Sorted(maps.Keys(batch)) {
		q := batch[name]
		free := max(0, q.Value()-held[memoryKey{m.NUMAID(n), string(name)}])
		list = append(list, amount(string(name), q.Format, q.Value(), q.Value(), free))
	}
	return append(list, deviceResources(devices, m.NUMAID(n))...)
}

func amount(name string, format resource.Format, capacity, allocatable, available int64) v1alpha2.ResourceInfo {
	return v1alpha2.ResourceInfo{
		Name:        name,
		Capacity:    *resource.NewQuantity(capacity, format),
		Allocatable: *resource.NewQuantity(allocatable, format),
		Available:   *resource.NewQuantity(available, format),
	}
}

// memoryOf returns ordinary memory, then hugepages by size. Where the kubelet's memory manager counts, its amounts
// hold; else allocatable is what hugepages and the kubelet's reservation leave.
func memoryOf(in Input, n topo.NUMA, held map[memoryKey]int64) v1alpha2.ResourceInfoList {
	m, id := in.Machine, in.Machine.NUMAID(n)
	var list v1alpha2.ResourceInfoList
	add := func(kind string, capacity, allocatable int64) {
		reserved := in.Kubelet.Memory.Reserved[int32(id)][corev1.ResourceName(kind)]
		allocatable = max(0, allocatable-reserved.Value())
		available := allocatable
		if in.State.Memory.Policy == annotation.KubeletMemoryStatic {
			if counted, ok := in.State.Memory.Zones[id].Types[kind]; ok {
				allocatable = min(counted.Allocatable, capacity)
				available = min(counted.Free, allocatable)
			}
		}
		available = max(0, available-held[memoryKey{id, kind}])
		list = append(list, amount(kind, resource.BinarySI, capacity, allocatable, available))
	}
	pages := m.Hugepages(n)
	ordinary := m.MemoryBytes(n)
	for size, count := range pages {
		ordinary -= size * count
	}
	if m.MemoryBytes(n) > 0 {
		add(string(corev1.ResourceMemory), m.MemoryBytes(n), max(0, ordinary))
	}
	for _, size := range slices.Sorted(maps.Keys(pages)) {
		add(corev1.ResourceHugePagesPrefix+resource.NewQuantity(size, resource.BinarySI).String(), size*pages[size],
			size*pages[size])
	}
	return list
}

// deviceResources counts the devices of a NUMA node, by resource. A device that stands on several nodes counts on each
// of them, as the kubelet's hints have it.
func deviceResources(devices []deviceGroup, numaID int) v1alpha2.ResourceInfoList {
	sums := map[string]deviceGroup{}
	for _, g := range devices {
		if slices.Contains(g.numa, numaID) {
			s := sums[g.resource]
			sums[g.resource] = deviceGroup{
				total: s.total + g.total, unhealthy: s.unhealthy + g.unhealthy, free: s.free + g.free,
			}
		}
	}
	var list v1alpha2.ResourceInfoList
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		list = append(list, amount(name, resource.DecimalSI, int64(s.total), int64(s.total-s.unhealthy), int64(s.free)))
	}
	return list
}

// free reads what a NUMA node gives to pods out of the account, whose machine has the online CPUs alone: the node is
// found by its kernel id.
func free(v *ledger.View, numaID int) (allocatable, availableMilli int64) {
	m := v.Machine()
	if m == nil {
		return 0, 0
	}
	n, ok := m.NUMAByID(numaID)
	if !ok {
		return 0, 0
	}
	facts, cpus := v.Facts(), m.NUMACPUs(n)
	usable := cpus.Minus(facts.NodeReserved).Minus(facts.System).Minus(facts.Isolated).
		Minus(facts.Model.Config.CPU.Reserved)
	open := v.Allocatable().Intersect(usable)
	return int64(usable.Len()), max(0, 1000*int64(open.Len())-v.Summary().Nodes[n].Promised)
}
