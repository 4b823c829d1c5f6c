package convert

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
)

// IsMemory reports whether a resource is memory of NUMA nodes: ordinary memory or hugepages of some size.
func IsMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// memory reads what the zones that are NUMA nodes have for pods. Of resources that are there twice the first counts, as
// of zones. Zones are the only source: where there are none, no NUMA node is known to have memory or to lack it, and
// pods are aligned by their CPUs.
func (r *factReader) memory() {
	if r.facts.Machine == nil {
		return
	}
	for id, z := range nodeZones(r.nrt.Zones) {
		for i, amount := range z.Resources {
			again := slices.ContainsFunc(z.Resources[:i],
				func(o v1alpha2.ResourceInfo) bool { return o.Name == amount.Name })
			if again || !IsMemory(corev1.ResourceName(amount.Name)) {
				continue
			}
			q := amount.Allocatable
			if q.Format == "" && q.IsZero() { // not set
				q = amount.Capacity
			}
			if q.Sign() < 0 {
				r.onNRT("zones["+z.Name+"].resources["+amount.Name+"]", q.String(), fmt.Errorf("want 0 or more bytes"))
				continue
			}
			if bytes := q.Value(); bytes > 0 {
				r.facts.Memory = append(r.facts.Memory, ledger.Memory{NUMAID: id, Type: amount.Name, Bytes: bytes})
			}
		}
	}
}

// podMemory is the memory of each type that a pod that is not bound yet asks for, as the scheduler counts it; hugepages
// are rounded up to whole pages. Ordinary memory comes first.
func podMemory(pod *corev1.Pod) []place.Memory {
	var room [ledger.MaxMemoryTypes]corev1.ResourceName
	kinds := room[:0]
	for c := range containers(pod) {
		kinds = memoryIn(memoryIn(kinds, c.Resources.Requests), c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil {
		kinds = memoryIn(memoryIn(kinds, r.Requests), r.Limits)
	}
	kinds = memoryIn(kinds, pod.Spec.Overhead)
	slices.Sort(kinds)
	out := make([]place.Memory, 0, len(kinds))
	for _, name := range slices.Backward(kinds) {
		if bytes := wholePages(string(name), effective(pod, name, valueOf)); bytes > 0 {
			out = append(out, place.Memory{Type: string(name), Bytes: bytes})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// memoryIn adds the types of memory in a list to kinds, each once.
func memoryIn(kinds []corev1.ResourceName, list corev1.ResourceList) []corev1.ResourceName {
	for name := range list {
		if IsMemory(name) && !slices.Contains(kinds, name) {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

func wholePages(kind string, bytes int64) int64 {
	page := ledger.PageSize(kind)
	if bytes > math.MaxInt64-page {
		return math.MaxInt64 / page * page
	}
	return (bytes + page - 1) / page * page
}

// heldMemory is the memory that a status puts on NUMA nodes.
func heldMemory(status annotation.ResourceStatus) []ledger.Memory {
	var list []ledger.Memory
	for _, n := range status.NUMANodeResources {
		for name, q := range n.Resources {
			if IsMemory(name) && q.Sign() > 0 {
				list = append(list, ledger.Memory{NUMAID: int(n.Node), Type: string(name), Bytes: q.Value()})
			}
		}
	}
	slices.SortFunc(list, func(a, b ledger.Memory) int {
		return cmp.Or(cmp.Compare(a.NUMAID, b.NUMAID), cmp.Compare(b.Type, a.Type))
	})
	return list
}
