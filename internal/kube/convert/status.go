package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Status is what an offer writes on its pod: exclusive CPUs, or the shared pools that it is constrained to with its CPU
// request spread over them in proportion to their size; and on each NUMA node its memory, beside its CPU there, where
// memory took part in the decision. The zero value, which is not written, is an
// offer of neither.
func Status(m *topo.Machine, v *ledger.View, r *place.Request, o ledger.Offer) annotation.ResourceStatus {
	var s annotation.ResourceStatus
	if o.Entry.CPUList != "" {
		s.CPUSet = o.Entry.CPUList
		s.NUMANodeResources = exclusiveResources(m, &o)
	} else {
		s.CPUSharedPools, s.NUMANodeResources = pools(m, v, r, o.Entry.NUMAIDs)
	}
	for _, held := range o.Entry.Amounts {
		for _, n := range s.NUMANodeResources {
			if int(n.Node) == held.NUMAID {
				n.Resources[corev1.ResourceName(held.Resource)] = *resource.NewQuantity(held.N, resource.BinarySI)
			}
		}
	}
	return s
}

// exclusiveResources are the CPUs of an offer by NUMA node, of those where it has CPUs or memory; none when memory took
// no part: the CPU set says it all then.
func exclusiveResources(m *topo.Machine, o *ledger.Offer) []annotation.NUMANodeResource {
	if len(o.Entry.Amounts) == 0 {
		return nil
	}
	var list []annotation.NUMANodeResource
	for _, n := range m.CPUNodes() {
		on, id := m.NUMACPUs(n), m.NUMAID(n)
		cpus := int64(o.CPUs.CountIn(&on))
		holds := func(a align.Amount) bool { return a.NUMAID == id }
		if cpus > 0 || slices.ContainsFunc(o.Entry.Amounts, holds) {
			list = append(list, cpuOn(id, *resource.NewQuantity(cpus, resource.DecimalSI)))
		}
	}
	return list
}

func cpuOn(numaID int, amount resource.Quantity) annotation.NUMANodeResource {
	return annotation.NUMANodeResource{Node: int32(numaID), Resources: corev1.ResourceList{corev1.ResourceCPU: amount}}
}

func pools(m *topo.Machine, v *ledger.View, r *place.Request, numaIDs []int) (list []annotation.CPUSharedPool,
	amounts []annotation.NUMANodeResource,
) {
	pool := v.SharedPool()
	var nodes []topo.NUMA
	var sizes []int64
	for _, id := range numaIDs {
		n, ok := m.NUMAByID(id)
		if !ok {
			continue
		}
		on := m.NUMACPUs(n)
		nodes, sizes = append(nodes, n), append(sizes, int64(pool.CountIn(&on)))
	}
	for i, milli := range spread(r.RequestMilli, sizes) {
		id := m.NUMAID(nodes[i])
		list = append(list, annotation.CPUSharedPool{
			Socket: int32(m.SocketID(m.NUMASocket(nodes[i]))),
			Node:   int32(id),
		})
		amounts = append(amounts, cpuOn(id, *resource.NewMilliQuantity(milli, resource.DecimalSI)))
	}
	return list, amounts
}

// spread splits an amount in proportion to sizes, as the ledger does: what does not divide goes to the first part with
// a size, all of it to the first one where none has.
func spread(amount int64, sizes []int64) []int64 {
	parts := make([]int64, len(sizes))
	var total int64
	for _, s := range sizes {
		total += s
	}
	first, rest := -1, amount
	for i, s := range sizes {
		if s == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		parts[i] = amount * s / total
		rest -= parts[i]
	}
	if len(parts) > 0 {
		parts[max(first, 0)] += rest
	}
	return parts
}
