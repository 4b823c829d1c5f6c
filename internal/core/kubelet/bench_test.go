package kubelet_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// busy is a node of 8 NUMA nodes with 32 CPUs each, of which some is given, with 4 GPUs and 2 NICs on each.
func busy(tb testing.TB, policy hint.Policy) *kubelet.State {
	const nodes = 8
	inv := kubelet.Inventory{Zones: memoryZones(nodes, 64<<30)}
	for i := range nodes {
		inv.Devices = append(inv.Devices,
			kubelet.DeviceSet{Resource: "example.com/gpu", Nodes: 1 << i, Registered: 4, Healthy: 4},
			kubelet.DeviceSet{Resource: "example.com/nic", Nodes: 1 << i, Registered: 2, Healthy: 2})
	}
	s := node(tb, even(tb, nodes, 32), static(policy), inv).Empty()
	for i := range 12 {
		next, _, refusal := s.Admit(pod(fmt.Sprintf("held-%d", i), and(app("c", 10, 12<<30), "example.com/gpu", 1)))
		if refusal != nil {
			tb.Fatalf("pod %d: %+v", i, refusal)
		}
		s = next
	}
	return s
}

func BenchmarkFits(b *testing.B) {
	one := pod("new", app("c", 8, 8<<30))
	devices := pod("new", and(and(app("c", 8, 8<<30), "example.com/gpu", 2), "example.com/nic", 1))
	wide := pod("new", app("c", 40, 70<<30))
	full := pod("new", app("c", 30, 8<<30))
	three := pod("new", app("a", 4, 4<<30), app("b", 4, 4<<30), app("c", 2, 1<<30))
	for _, policy := range []hint.Policy{hint.Restricted, hint.SingleNUMANode, hint.BestEffort} {
		s := busy(b, policy)
		for name, p := range map[string]*kubelet.Pod{
			"cpu+memory": one, "cpu+memory+devices": devices, "two-nodes": wide, "refused": full,
			"three-containers": three,
		} {
			b.Run(fmt.Sprintf("policy=%s/numa=8/pod=%s", policy, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Fits(p)
				}
			})
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	p := pod("new")
	for _, name := range []string{"a", "b", "c"} {
		p.Containers = append(p.Containers, and(and(app(name, 4, 4<<30), "example.com/gpu", 1), "example.com/nic", 1))
	}
	for _, policy := range []hint.Policy{hint.None, hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
		s := busy(b, policy)
		b.Run(fmt.Sprintf("policy=%s/numa=8/containers=3/kinds=2", policy), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Admit(p)
			}
		})
	}
}
