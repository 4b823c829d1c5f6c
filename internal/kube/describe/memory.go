package describe

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/view"
)

// memoryBook is what is known of the memory of NUMA nodes, by the kernel's id and the type.
type memoryBook struct {
	amounts map[int]map[string]view.Memory
	groups  map[int][]int
}

// newMemoryBook reads memory. What is free is what the kubelet's memory manager has recorded, else what the account
// leaves, else what the zones say.
func newMemoryBook(v *ledger.View, t *v1alpha2.NodeResourceTopology) memoryBook {
	b := memoryBook{amounts: map[int]map[string]view.Memory{}, groups: map[int][]int{}}
	if t == nil {
		return b
	}
	for _, z := range t.Zones {
		var id int
		if _, err := fmt.Sscanf(z.Name, "node-%d", &id); err != nil {
			continue
		}
		for _, r := range z.Resources {
			if r.Name == string(corev1.ResourceMemory) || strings.HasPrefix(r.Name, corev1.ResourceHugePagesPrefix) {
				b.put(id, r.Name, view.Memory{
					Capacity: amount(r.Capacity), Allocatable: amount(r.Allocatable),
					Free: amount(r.Available),
				})
			}
		}
	}
	b.account(v)
	text, _ := annotationOf(t, annotation.NUMAStateKey)
	if state, _, err := annotation.ParseNUMAState(text); text != "" && err == nil {
		b.recorded(state)
	}
	return b
}

func (b memoryBook) put(id int, kind string, m view.Memory) {
	if b.amounts[id] == nil {
		b.amounts[id] = map[string]view.Memory{}
	}
	b.amounts[id][kind] = m
}

// account takes what the pods leave that hold memory of NUMA nodes.
func (b memoryBook) account(v *ledger.View) {
	m, summary := v.Machine(), v.Summary()
	for i := range summary.Rows {
		row := &summary.Rows[i]
		for _, n := range m.CPUNodes() {
			id := m.NUMAID(n)
			if memory, ok := b.amounts[id][string(row.Resource)]; ok {
				memory.Free = view.BytesText(row.Free[n])
				b.put(id, string(row.Resource), memory)
			}
		}
	}
}

// recorded takes what the kubelet's memory manager counts.
func (b memoryBook) recorded(state annotation.NUMAState) {
	for id, m := range state.Memory {
		for name, q := range m.Allocatable {
			memory := b.amounts[int(id)][string(name)]
			free := m.Free[name]
			memory.Allocatable, memory.Free = q.String(), free.String()
			b.put(int(id), string(name), memory)
		}
		if len(m.Group) > 1 {
			for _, n := range m.Group {
				b.groups[int(id)] = append(b.groups[int(id)], int(n))
			}
		}
	}
}

func amount(q resource.Quantity) string {
	if q.Format == "" && q.IsZero() {
		return "" // not reported
	}
	return q.String()
}

// fill writes the memory of a NUMA node into its view.
func (b memoryBook) fill(n *view.NUMA) {
	for kind, m := range b.amounts[n.Node] {
		if kind == string(corev1.ResourceMemory) {
			n.Memory, n.MemoryAllocatable, n.MemoryFree = m.Capacity, m.Allocatable, m.Free
			continue
		}
		if m.Capacity == "" || m.Capacity == "0" {
			continue
		}
		if n.Hugepages == nil {
			n.Hugepages = map[string]view.Memory{}
		}
		n.Hugepages[kind] = m
	}
	n.MemoryGroup = b.groups[n.Node]
}
