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

type memoryBook struct {
	amounts map[memoryOf]view.Memory
	groups  map[int][]int // by the kernel's id of a NUMA node
}

// memoryOf is a type of memory of a NUMA node, by the kernel's id.
type memoryOf struct {
	numa int
	kind string
}

// newMemoryBook reads memory. Free is what the kubelet has recorded, else what the account leaves, else the zones.
func newMemoryBook(v *ledger.View, t *v1alpha2.NodeResourceTopology) memoryBook {
	b := memoryBook{amounts: map[memoryOf]view.Memory{}, groups: map[int][]int{}}
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
				b.amounts[memoryOf{id, r.Name}] = view.Memory{
					Capacity: reported(r.Capacity), Allocatable: reported(r.Allocatable), Free: reported(r.Available),
				}
			}
		}
	}
	m, rows := v.Machine(), v.Summary().Rows
	for i := range rows {
		for _, n := range m.CPUNodes() {
			key := memoryOf{m.NUMAID(n), string(rows[i].Resource)}
			if memory, ok := b.amounts[key]; ok {
				memory.Free = view.BytesText(rows[i].Free[n])
				b.amounts[key] = memory
			}
		}
	}
	text, _ := annotationOf(t, annotation.NUMAStateKey)
	if state, _, err := annotation.ParseNUMAState(text); text != "" && err == nil {
		b.recorded(state)
	}
	return b
}

func (b memoryBook) recorded(state annotation.NUMAState) {
	for id, m := range state.Memory {
		for name, q := range m.Allocatable {
			key, free := memoryOf{int(id), string(name)}, m.Free[name]
			b.amounts[key] = view.Memory{
				Capacity:    b.amounts[key].Capacity,
				Allocatable: q.String(),
				Free:        free.String(),
			}
		}
		if len(m.Group) > 1 {
			for _, n := range m.Group {
				b.groups[int(id)] = append(b.groups[int(id)], int(n))
			}
		}
	}
}

func reported(q resource.Quantity) string {
	if q.Format == "" && q.IsZero() {
		return "" // not reported
	}
	return q.String()
}

func (b memoryBook) fill(n *view.NUMA) {
	n.MemoryGroup = b.groups[n.Node]
	for key, m := range b.amounts {
		switch {
		case key.numa != n.Node:
		case key.kind == string(corev1.ResourceMemory):
			n.Memory, n.MemoryAllocatable, n.MemoryFree = m.Capacity, m.Allocatable, m.Free
		case m.Capacity != "" && m.Capacity != "0":
			if n.Hugepages == nil {
				n.Hugepages = map[string]view.Memory{}
			}
			n.Hugepages[key.kind] = m
		}
	}
}
