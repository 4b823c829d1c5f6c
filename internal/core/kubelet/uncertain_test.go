package kubelet_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// pairOf is a machine with 2 NUMA nodes of 4 CPUs and 10 bytes each, and a kubelet that aligns where it can.
func pairOf(tb testing.TB, policy hint.Policy, devices ...kubelet.DeviceSet) *kubelet.Node {
	tb.Helper()
	m := grid.Machine{Sockets: 2, Cores: 4}.Build(tb)
	model, _ := kubelet.ModelOf("v1.36.3")
	zone := map[string]int64{"memory": 10}
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: model, CPU: kubelet.CPU{Static: true}, Memory: kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: policy},
	}, kubelet.Inventory{Zones: []map[string]int64{zone, zone}, Devices: devices})
	if !reason.OK() {
		tb.Fatalf("NewNode: %+v", reason)
	}
	return node
}

func amounts(name string, n int64) []kubelet.Amount { return []kubelet.Amount{{Name: name, N: n}} }

// admitted is what a pod gets, which must fit.
func admitted(tb testing.TB, s *kubelet.State, p *kubelet.Pod) (*kubelet.State, kubelet.Placement) {
	tb.Helper()
	next, placement, refusal := s.Admit(p)
	if refusal != nil {
		tb.Fatalf("pod %s: %+v", p.UID, refusal)
	}
	return next, placement
}

// TestMemoryThatIsReleasedInRandomOrderIsNotPredictedAsExact: b has memory of both NUMA nodes, c of one of them. The
// kubelet releases stale pods in the order of a Go map, and takes back from the lowest node first: where b goes before
// c, four bytes of node 1 remain allocated for ever, and a pod of 18 bytes is rejected.
func TestMemoryThatIsReleasedInRandomOrderIsNotPredictedAsExact(t *testing.T) {
	t.Parallel()
	node := pairOf(t, hint.BestEffort, kubelet.DeviceSet{Resource: "d", Nodes: 1, Registered: 1, Healthy: 1})
	pod := func(uid string, bytes int64, devices ...kubelet.Amount) *kubelet.Pod {
		return &kubelet.Pod{UID: uid, Guaranteed: true, Containers: []kubelet.Container{{
			Name: "c", Memory: amounts("memory", bytes), Devices: devices,
		}}}
	}
	s, _ := admitted(t, node.Empty(), pod("a", 12))
	s, _ = admitted(t, s, pod("b", 6))
	s, placement := admitted(t, s.Without("a"), pod("c", 4, amounts("d", 1)...))
	if got := placement[0]; got.Uncertain || got.Memory[0].Nodes != 1 {
		t.Fatalf("c has %+v, want memory of node 0 for certain", got)
	}
	probe := pod("p", 18)
	verdicts := map[bool]bool{}
	for _, order := range [][2]string{{"b", "c"}, {"c", "b"}} {
		one := s.Without(order[0])
		if one.Uncertain(probe) {
			t.Errorf("after %s alone nothing depends on the order", order[0])
		}
		both := one.Without(order[1])
		_, placement, refusal := both.Admit(probe)
		verdicts[refusal == nil] = true
		if refusal != nil && !refusal.Uncertain {
			t.Errorf("%v: refused for certain: %+v", order, refusal)
		}
		if refusal == nil && !placement[0].Uncertain {
			t.Errorf("%v: admitted as certain", order)
		}
		if !both.Uncertain(probe) || both.Uncertain(&kubelet.Pod{UID: "q", Guaranteed: true}) {
			t.Errorf("%v: want pods with memory, and only those, to be uncertain", order)
		}
		if next, _, _ := one.Admit(pod("e", 1)); next.Without(order[1]).Uncertain(probe) {
			t.Errorf("%v: the kubelet released %s before it admitted another pod", order, order[0])
		}
	}
	if len(verdicts) != 2 {
		t.Errorf("verdicts %v: want the order to decide", verdicts)
	}
	reported := node.Empty()
	for _, uid := range []string{"b", "c"} {
		held, _ := s.Placement(uid)
		reported = reported.With(pod(uid, 0), held)
	}
	if !reported.Uncertain(probe) {
		t.Error("a report does not say which pod came first, and the split of b's memory depends on it")
	}
}

// TestWhatFollowsDevicesTakenByChanceIsNotPredictedAsExact: an init container leaves more devices than the next
// container takes; which, is the order of a Go map.
func TestWhatFollowsDevicesTakenByChanceIsNotPredictedAsExact(t *testing.T) {
	t.Parallel()
	node := pairOf(t, hint.BestEffort, kubelet.DeviceSet{Resource: "d", Nodes: 1, Registered: 2, Healthy: 2},
		kubelet.DeviceSet{Resource: "d", Nodes: 2, Registered: 2, Healthy: 2})
	container := func(name string, role kubelet.Role, cpus int, devices int64) kubelet.Container {
		c := kubelet.Container{Name: name, Role: role, CPUs: cpus}
		if devices > 0 {
			c.Devices = amounts("d", devices)
		}
		return c
	}
	p := &kubelet.Pod{UID: "p", Guaranteed: true, Containers: []kubelet.Container{
		container("init", kubelet.Init, 0, 4), container("first", kubelet.App, 1, 1),
		container("plain", kubelet.App, 1, 0), container("second", kubelet.App, 1, 1),
		container("last", kubelet.App, 1, 0),
	}}
	s, placement := admitted(t, node.Empty(), p)
	want := map[string]bool{"second": true, "last": true}
	for _, g := range placement {
		if g.Uncertain != want[g.Container] {
			t.Errorf("container %s is uncertain: %v, want %v", g.Container, g.Uncertain, want[g.Container])
		}
	}
	next := &kubelet.Pod{UID: "q", Guaranteed: true, Containers: []kubelet.Container{container("c", kubelet.App, 1, 0)}}
	if !s.Uncertain(next) {
		t.Error("which CPUs are left follows from devices that were taken by chance")
	}
	for i := range placement { // as a report says it
		placement[i].Uncertain = false
		for j := range placement[i].Devices {
			placement[i].Devices[j].Open = false
		}
	}
	if s.With(p, placement).Uncertain(next) {
		t.Error("a report shows what was taken")
	}
}
