package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Status is what an offer writes on its pod: exclusive CPUs, or the shared pools that it is constrained to with its CPU
// request spread over them in proportion to their size. The zero value, which is not written, is an offer of neither.
func Status(m *topo.Machine, v *ledger.View, r *place.Request, o ledger.Offer) annotation.ResourceStatus {
	if o.Entry.CPUList != "" {
		return annotation.ResourceStatus{CPUSet: o.Entry.CPUList}
	}
	var s annotation.ResourceStatus
	pool := v.SharedPool()
	var nodes []topo.NUMA
	var sizes []int64
	for _, id := range o.Entry.NUMAIDs {
		n, ok := m.NUMAByID(id)
		if !ok {
			continue
		}
		on := m.NUMACPUs(n)
		nodes, sizes = append(nodes, n), append(sizes, int64(pool.CountIn(&on)))
	}
	for i, milli := range spread(r.RequestMilli, sizes) {
		n := nodes[i]
		id := int32(m.NUMAID(n))
		s.CPUSharedPools = append(s.CPUSharedPools,
			annotation.CPUSharedPool{Socket: int32(m.SocketID(m.NUMASocket(n))), Node: id})
		s.NUMANodeResources = append(s.NUMANodeResources, annotation.NUMANodeResource{
			Node:      id,
			Resources: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
		})
	}
	return s
}

// spread splits an amount in proportion to sizes, as the ledger does: what does not divide goes to the first part with a
// size, all of it to the first one where none has.
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
