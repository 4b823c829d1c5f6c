package kubelet_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func TestModelOf(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "v1", "1.x", "v2.36.0", "v1.32.9", "v0.36.1", "v1.-36", "latest"} {
		if m, ok := kubelet.ModelOf(version); ok {
			t.Errorf("ModelOf(%q) = %+v, want none", version, m)
		}
	}
	for version, minor := range map[string]int{
		"v1.33.0": 33, "v1.34.4": 34, "1.35.4": 35, "v1.36.3-gke.1": 36, "v1.36+": 36, "v1.37.0-rc.1+abc": 37,
	} {
		if m, ok := kubelet.ModelOf(version); !ok || m.Minor != minor || m.Beyond {
			t.Errorf("ModelOf(%q) = %+v, %v; want minor %d", version, m, ok, minor)
		}
	}
	if m, ok := kubelet.ModelOf("v1.41.0"); !ok || m.Minor != 37 || !m.Beyond {
		t.Errorf("a newer kubelet is %+v, %v; want 1.37's model, marked", m, ok)
	}
	newest := model(37)
	newest.Beyond = true
	if m, _ := kubelet.ModelOf("v1.38.1"); m != newest {
		t.Errorf("a newer kubelet is %+v, want %+v", m, newest)
	}
}

// TestModels is the table of differences between the releases.
func TestModels(t *testing.T) {
	t.Parallel()
	flags := map[string]func(kubelet.Model) any{
		"device hints of hosting nodes only": func(m kubelet.Model) any { return m.DeviceHostsOnly },
		"L3 step rounds up":                  func(m kubelet.Model) any { return m.L3RoundsUp },
		"pod-level resources are skipped":    func(m kubelet.Model) any { return m.SkipsPodLevel },
		"pinned containers are checked":      func(m kubelet.Model) any { return m.ChecksPinned },
		"one socket first":                   func(m kubelet.Model) any { return m.OneSocketFirst },
		"empty memory is skipped":            func(m kubelet.Model) any { return m.SkipsEmptyMemory },
	}
	want := map[string][]any{ // 1.33 … 1.37
		"device hints of hosting nodes only": {false, false, false, true, true},
		"L3 step rounds up":                  {false, true, true, true, true},
		"pod-level resources are skipped":    {false, true, true, true, true},
		"pinned containers are checked":      {true, true, true, true, false},
		"one socket first":                   {false, false, false, false, true},
		"empty memory is skipped":            {false, false, false, false, true},
	}
	got := map[string][]any{}
	for name, flag := range flags {
		for minor := 33; minor <= 37; minor++ {
			got[name] = append(got[name], flag(model(minor)))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}

// nodesWithIDs is a machine with one CPU on each of the NUMA nodes.
func nodesWithIDs(t *testing.T, ids ...int) *topo.Machine {
	return grid.Machine{Nodes: len(ids), NodeIDs: ids}.Build(t)
}

func span(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

func TestNodesThatNoKubeletRunsOn(t *testing.T) {
	t.Parallel()
	panics := func(id int64) why.Reason { return why.Reason{Code: why.KubeletPanics, Extra: id} }
	many := func(nodes, allowed int64) why.Reason {
		return why.Reason{Code: why.TooManyNUMANodes, Unit: why.Count, Asked: nodes, Extra: allowed}
	}
	invalid := why.Reason{Code: why.InvalidTopology}
	tests := map[string]struct {
		ids      []int
		topology kubelet.Topology
		memory   bool
		zones    []map[string]int64
		devices  []kubelet.DeviceSet
		want     why.Reason
	}{
		"sparse ids": {ids: []int{0, 8}, topology: kubelet.Topology{Policy: hint.Restricted}},
		"sparse ids, the closest nodes wanted": {
			ids:      []int{0, 8},
			topology: kubelet.Topology{Policy: hint.Restricted, PreferClosest: true}, want: panics(8),
		},
		"single-numa-node ranks nothing": {
			ids:      []int{0, 8},
			topology: kubelet.Topology{Policy: hint.SingleNUMANode, PreferClosest: true},
		},
		"no policy parses no options": {ids: []int{0, 252}, topology: kubelet.Topology{PreferClosest: true}},
		"an id that no mask holds": {
			ids:      []int{0, 252},
			topology: kubelet.Topology{Policy: hint.BestEffort}, want: panics(252),
		},
		"the memory manager makes masks too": {ids: []int{0, 252}, memory: true, want: panics(252)},
		"nine nodes": {
			ids: span(9), topology: kubelet.Topology{Policy: hint.BestEffort},
			want: many(9, 8),
		},
		"nine nodes, allowed": {
			ids:      span(9),
			topology: kubelet.Topology{Policy: hint.BestEffort, MaxNodes: 9},
		},
		"nine nodes and no policy": {ids: span(9)},
		"more than a mask holds": {
			ids:      span(65),
			topology: kubelet.Topology{Policy: hint.BestEffort, MaxNodes: 100}, want: many(65, 64),
		},
		"more than a mask holds, no masks":    {ids: span(65)},
		"more than a mask holds, with memory": {ids: span(65), memory: true, want: many(65, 64)},
		"a zone too few":                      {ids: span(2), zones: memoryZones(1, 5), want: invalid},
		"negative memory":                     {ids: span(1), zones: memoryZones(1, -5), want: invalid},
		"devices on no node of the machine":   {ids: span(2), devices: devices(gpu, 1, 2), want: invalid},
		"fewer devices than work": {
			ids:     span(1),
			devices: []kubelet.DeviceSet{{Resource: gpu, Registered: 1, Healthy: 2}}, want: invalid,
		},
		"a negative number of devices": {
			ids:     span(1),
			devices: []kubelet.DeviceSet{{Resource: gpu, Registered: 1, Healthy: -1}}, want: invalid,
		},
		"devices without a name": {
			ids: span(1), devices: []kubelet.DeviceSet{{Registered: 1}},
			want: invalid,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, got := kubelet.NewNode(nodesWithIDs(t, tt.ids...), kubelet.Config{
				Model: model(36), Topology: tt.topology, Memory: kubelet.Memory{Static: tt.memory},
				CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(0)},
			}, kubelet.Inventory{Zones: tt.zones, Devices: tt.devices})
			if got != tt.want || (n == nil) == got.OK() {
				t.Errorf("NewNode = %v, %+v; want %+v", n != nil, got, tt.want)
			}
		})
	}
}

// TestSixtyFiveNodesArePinnedWithoutMasks: without any policy a machine may have more nodes than a mask holds.
func TestSixtyFiveNodesArePinnedWithoutMasks(t *testing.T) {
	t.Parallel()
	s := node(t, nodesWithIDs(t, span(65)...), kubelet.Config{
		Model: model(36), CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(0)},
	}, kubelet.Inventory{}).Empty()
	p := pod("new", app("c", 3, 5))
	if fits := s.Fits(p); !fits.OK() {
		t.Errorf("Fits = %+v", fits)
	}
	if _, placement := admit(t, s, p); placement[0].CPUs.Len() != 3 {
		t.Errorf("placement %+v, want 3 CPUs", placement)
	}
	if u := s.Usage(64); u.Free.Len() != 1 {
		t.Errorf("node 64 has %v free, want its CPU", u.Free)
	}
}

// TestManyNodes: what a kubelet of 36 nodes answers, and where it never does.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	var spec topo.Spec
	for i := range 36 {
		spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: i})
	}
	for i := range 16 {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: i, L3: -1, Socket: i / 8, NUMA: i / 8})
	}
	c := kubelet.Config{
		Model: model(36), CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(0)},
		Topology: kubelet.Topology{Policy: hint.Restricted, MaxNodes: 64},
	}
	s := node(t, grid.Build(t, spec), c, kubelet.Inventory{Devices: devices(gpu, 2, 0, 1)}).Empty()
	p := pod("new", and(app("c", 8, 0), gpu, 1))
	next, placement := admit(t, s, p)
	if placement[0].Hint != (hint.Hint{Mask: 0b10, Preferred: true}) || !s.Fits(p).OK() {
		t.Errorf("placement %+v, Fits %+v; want node 1", placement, s.Fits(p))
	}
	if cost := mergeCost(s, p); cost > time.Millisecond {
		t.Errorf("the merge costs %v", cost)
	}
	if fits := next.Fits(pod("next", app("c", 8, 0))); fits.Code != why.KubeletTopologyAffinity {
		t.Errorf("a second pod: %+v", fits)
	}
	// Masks of devices were walked over all nodes before 1.36, and those of memory always are.
	c.Model = model(35)
	hangs := node(t, grid.Build(t, spec), c, kubelet.Inventory{Devices: devices(gpu, 2, 0, 1)}).Empty()
	if _, _, refusal := hangs.Admit(p); refusal == nil || refusal.Reason.Code != why.KubeletWouldHang ||
		refusal.Status != "" {
		t.Errorf("1.35: %+v, want a hang", refusal)
	}
	if fits := hangs.Fits(p); fits.Code != why.KubeletWouldHang {
		t.Errorf("1.35: Fits = %+v", fits)
	}
	if cost := mergeCost(hangs, p); cost != math.MaxInt64 {
		t.Errorf("1.35: the merge costs %v", cost)
	}
}

// TestHugepagesOfAnUnknownSizeCrashTheKubelet: its memory manager looks the size up in a table that lacks it.
func TestHugepagesOfAnUnknownSizeCrashTheKubelet(t *testing.T) {
	t.Parallel()
	want := why.Reason{Code: why.KubeletPanics, Resource: "hugepages-1Gi", Unit: why.Bytes, Extra: -1}
	for _, policy := range []hint.Policy{hint.None, hint.BestEffort, hint.SingleNUMANode} {
		for _, whole := range []bool{false, true} {
			c := static(policy)
			c.Topology.PodScope = whole
			s := node(t, even(t, 2, 16), c, kubelet.Inventory{Zones: memoryZones(2, 100)}).Empty()
			huge := app("c", 2, 10)
			huge.Memory = append([]kubelet.Amount{{Name: "hugepages-1Gi"}}, huge.Memory...)
			p := pod("new", huge)
			if fits := s.Fits(p); fits != want {
				t.Errorf("%v: Fits = %+v, want %+v", policy, fits, want)
			}
			if _, _, refusal := s.Admit(p); refusal == nil || refusal.Reason != want || refusal.Status != "" {
				t.Errorf("%v: Admit = %+v, want %+v without a status", policy, refusal, want)
			}
		}
	}
}

func TestEqualNodesAreOne(t *testing.T) {
	t.Parallel()
	build := func(change func(*kubelet.Config, *kubelet.Inventory)) *kubelet.Node {
		c := static(hint.Restricted)
		inv := kubelet.Inventory{Zones: memoryZones(2, 100), Devices: devices(gpu, 2, 0, 1)}
		change(&c, &inv)
		return node(t, even(t, 2, 16), c, inv)
	}
	same := build(func(*kubelet.Config, *kubelet.Inventory) {})
	var pool topo.Pool[*kubelet.Node]
	pool.Intern(same)
	for name, change := range map[string]func(*kubelet.Config, *kubelet.Inventory){
		"nothing":           func(*kubelet.Config, *kubelet.Inventory) {},
		"the order of sets": func(_ *kubelet.Config, inv *kubelet.Inventory) { inv.Devices = devices(gpu, 2, 1, 0) },
		"a set in two parts": func(_ *kubelet.Config, inv *kubelet.Inventory) {
			inv.Devices = append(devices(gpu, 1, 0, 1), devices(gpu, 1, 1, 0)...)
		},
	} {
		if n := build(change); !n.Equal(same) || pool.Intern(n) != same {
			t.Errorf("%s changed: the node is another one", name)
		}
	}
	for name, change := range map[string]func(*kubelet.Config, *kubelet.Inventory){
		"the release":       func(c *kubelet.Config, _ *kubelet.Inventory) { c.Model = model(35) },
		"an option":         func(c *kubelet.Config, _ *kubelet.Inventory) { c.CPU.AlignL3 = true },
		"the reserved CPUs": func(c *kubelet.Config, _ *kubelet.Inventory) { c.CPU.Reserved = cpuset.Of(0) },
		"the scope":         func(c *kubelet.Config, _ *kubelet.Inventory) { c.Topology.PodScope = true },
		"the memory policy": func(c *kubelet.Config, _ *kubelet.Inventory) { c.Memory.Static = false },
		"a zone":            func(_ *kubelet.Config, inv *kubelet.Inventory) { inv.Zones = memoryZones(2, 90) },
		"a device":          func(_ *kubelet.Config, inv *kubelet.Inventory) { inv.Devices[0].Registered = 3 },
		"where a device is": func(_ *kubelet.Config, inv *kubelet.Inventory) { inv.Devices[0].Nodes = 0 },
		"a name of a device": func(_ *kubelet.Config,
			inv *kubelet.Inventory,
		) {
			inv.Devices[0].Resource = "example.com/x"
		},
	} {
		if n := build(change); n.Equal(same) || pool.Intern(n) != n {
			t.Errorf("%s changed: the node counts as the same", name)
		}
	}
}

// TestReportsThatContradict: what a kubelet reports is recorded, whatever it is.
func TestReportsThatContradict(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 2, 16), static(hint.Restricted), kubelet.Inventory{
		Zones: memoryZones(2, 100), Devices: devices(gpu, 2, 0, 1),
	}).Empty()
	var strange cpuset.Set
	for _, c := range []int{0, 2, 3, 900} { // reserved, two free ones, and one that is not there
		strange.Add(c)
	}
	report := kubelet.Placement{{
		Container: "c", CPUs: strange,
		Memory: []kubelet.Block{
			{Type: "memory", Nodes: 0b101, Bytes: 500}, {Type: "hugepages-1Gi", Nodes: 1, Bytes: 5}, {Type: "memory"},
		},
		Devices: []kubelet.Devices{
			{Resource: gpu, Nodes: 1, Count: 5},
			{Resource: gpu, Nodes: 0b110, Count: 1},
			{Resource: "example.com/x", Count: 1},
			{Resource: gpu, Nodes: 2, Count: -7},
		},
	}}
	one := s.With(pod("one", app("c", 4, 500)), report)
	two := one.With(pod("two"), report)
	free := s.FreeCPUs()
	if got, want := two.FreeCPUs(), free.Minus(cpuset.Of(2, 3)); got != want {
		t.Errorf("free CPUs %v, want %v", got, want)
	}
	u := two.Usage(0)
	if u.Memory[0].Free != 0 || u.Assignments != 2 || u.Group != 0b01 {
		t.Errorf("node 0 is %+v, want nothing free and two assignments", u)
	}
	if d := two.Devices(); d[0].Free != 0 || d[1].Free != 0 {
		t.Errorf("devices %+v, want none free", d)
	}
	if placement, ok := two.Placement("one"); !ok || cmp.Diff(report, placement, sameSets) != "" {
		t.Errorf("pod one has %+v", placement)
	}
	if _, ok := two.Placement("three"); ok || two.Without("three") != two {
		t.Error("an unknown pod has a placement")
	}
	back := two.Without("one")
	if got, want := back.FreeCPUs(), free.Minus(cpuset.Of(2, 3)); got != want {
		t.Errorf("without one of both, free CPUs are %v, want %v", got, want)
	}
	back = back.Without("two")
	if diff := cmp.Diff(viewOf(s), viewOf(back), sameSets); diff != "" {
		t.Errorf("without both (-want +got):\n%s", diff)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 2, 16), static(hint.Restricted), kubelet.Inventory{
		Zones: memoryZones(2, 100), Devices: devices(gpu, 1, 0, 1),
	}).Empty()
	good := s.Explain(pod("good", and(app("a", 2, 10), gpu, 1), app("b", 2, 10)))
	if good.Refusal != nil || len(good.Placement) != 2 || len(good.Steps) != 2 || good.Steps[1].Given == nil {
		t.Fatalf("explained as %+v", good)
	}
	var names []string
	for _, l := range good.Steps[0].Lists {
		names = append(names, fmt.Sprint(l.Resource, " ", l.List))
	}
	want := []string{
		gpu + " [{{0} true} {{1} true} {{0,1} false}]", "cpu [{{0} true} {{1} true} {{0,1} false}]",
		"memory [{{0} true} {{1} true} {{0,1} false}]",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	if cost := good.Steps[0].Cost; cost != 27*170*time.Nanosecond {
		t.Errorf("the merge of 27 candidates costs %v", cost)
	}
	bad := s.Explain(pod("bad", app("a", 2, 10), and(app("b", 2, 10), gpu, 2)))
	if bad.Refusal == nil || bad.Placement != nil || len(bad.Steps) != 2 || bad.Steps[0].Given == nil ||
		bad.Steps[1].Given != nil {
		t.Fatalf("explained as %+v", bad)
	}
	if text := bad.Steps[1].Table.String(); text == "" || bad.Steps[1].Table.Answer.Admitted {
		t.Errorf("table %q, %+v", text, bad.Steps[1].Table.Answer)
	}
	late := s.Explain(pod("late", app("a", 2, 900)))
	if late.Refusal == nil || late.Refusal.Status != kubelet.UnexpectedAdmissionError ||
		!late.Steps[0].Table.Answer.Admitted ||
		late.Steps[0].Given != nil {
		t.Errorf("a pod that fails in the allocation is explained as %+v", late)
	}
}

func TestExplainOnePodScope(t *testing.T) {
	t.Parallel()
	c := static(hint.Restricted)
	c.Topology.PodScope = true
	s := node(t, even(t, 2, 16), c, kubelet.Inventory{Zones: memoryZones(2, 100)}).Empty()
	e := s.Explain(pod("new", app("a", 2, 10), app("b", 2, 10)))
	if len(e.Steps) != 3 || e.Steps[0].Container != "" || len(e.Steps[0].Lists) != 2 || e.Steps[1].Lists != nil ||
		e.Steps[2].Given == nil || e.Steps[2].Container != "b" {
		t.Errorf("explained as %+v", e)
	}
}

// mergeCost is how long the kubelet takes for the merges of a pod.
func mergeCost(s *kubelet.State, p *kubelet.Pod) time.Duration {
	var sum time.Duration
	for _, step := range s.Explain(p).Steps {
		sum += step.Cost
	}
	return sum
}

func TestMergeCost(t *testing.T) {
	t.Parallel()
	three := and(and(app("c", 1, 1), gpu, 1), "example.com/nic", 1)
	for _, tt := range []struct {
		policy hint.Policy
		nodes  int
		least  time.Duration
		most   time.Duration
	}{
		{hint.None, 8, 0, 0},
		{hint.SingleNUMANode, 8, 500 * time.Microsecond, time.Millisecond}, // 8^4
		{hint.Restricted, 2, 10 * time.Microsecond, 20 * time.Microsecond},
		{hint.Restricted, 8, 10 * time.Minute, 15 * time.Minute}, // 255^4: kubernetes#131738 took 21 minutes
	} {
		inv := kubelet.Inventory{Zones: memoryZones(tt.nodes, 1000)}
		for i := range tt.nodes {
			inv.Devices = append(append(inv.Devices, devices(gpu, 2, i)...), devices("example.com/nic", 2, i)...)
		}
		n := node(t, even(t, tt.nodes, 32), static(tt.policy), inv)
		if got := mergeCost(n.Empty(), pod("new", three)); got < tt.least || got > tt.most {
			t.Errorf("%v on %d nodes costs %v, want %v to %v", tt.policy, tt.nodes, got, tt.least, tt.most)
		}
	}
}

// TestMasksOfTooManyNodesNeverEnd: no list is made of them, whatever the policy.
func TestMasksOfTooManyNodesNeverEnd(t *testing.T) {
	t.Parallel()
	for _, policy := range []hint.Policy{hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
		c := static(policy)
		c.Topology.MaxNodes = 64
		n := node(t, even(t, 20, 4), c, kubelet.Inventory{Zones: memoryZones(20, 100), Devices: devices(gpu, 1, 3)})
		p := pod("new", and(app("c", 2, 10), gpu, 1))
		if got := mergeCost(n.Empty(), p); got != math.MaxInt64 {
			t.Errorf("%v: the merge costs %v", policy, got)
		}
		if got := n.Empty().Fits(p); got.Code != why.KubeletWouldHang {
			t.Errorf("%v: Fits = %+v", policy, got)
		}
	}
}

// TestAMergeOfMinutesIsRefused: CPUs, memory, GPUs and hugepages of 8 NUMA nodes take the kubelet 12 minutes.
func TestAMergeOfMinutesIsRefused(t *testing.T) {
	t.Parallel()
	zones := memoryZones(8, 1000)
	for i := range zones {
		zones[i]["hugepages-2Mi"] = 100
	}
	huge := func(c kubelet.Container) kubelet.Container {
		c.Memory = append([]kubelet.Amount{{Name: "hugepages-2Mi", N: 10}}, c.Memory...)
		return c
	}
	for _, policy := range []hint.Policy{hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
		s := node(t, even(t, 8, 32), static(policy),
			kubelet.Inventory{Zones: zones, Devices: devices(gpu, 2, 0, 1, 2, 3, 4, 5, 6, 7)}).Empty()
		three, four := pod("three", and(app("c", 2, 10), gpu, 1)), pod("four", and(huge(app("c", 2, 10)), gpu, 1))
		if reason := s.Fits(three); !reason.OK() {
			t.Errorf("%v, three resources: %+v", policy, reason)
		}
		want := why.Reason{Code: why.KubeletWouldHang, Extra: 718}
		if policy == hint.SingleNUMANode {
			want = why.Reason{}
		}
		if got := s.Fits(four); got != want {
			t.Errorf("%v, four resources: Fits = %+v, want %+v", policy, got, want)
		}
		e := s.Explain(four)
		if (e.Refusal != nil) != !want.OK() || len(e.Steps) != 1 || !want.OK() && e.Steps[0].Cost < 10*time.Minute {
			t.Errorf("%v: explained as %+v", policy, e)
		}
	}
}

// TestFitsAllocatesNothing where counters decide.
func TestFitsAllocatesNothing(t *testing.T) {
	for _, policy := range []hint.Policy{hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
		s := busy(t, policy)
		for name, p := range map[string]*kubelet.Pod{
			"one container":           pod("new", app("c", 8, 8<<30)),
			"one container, refused":  pod("new", app("c", 30, 8<<30)),
			"devices too":             pod("new", and(and(app("c", 8, 8<<30), gpu, 2), "example.com/nic", 1)),
			"three of them":           pod("new", app("a", 4, 4<<30), app("b", 4, 4<<30), app("c", 2, 1<<30)),
			"two with devices":        pod("new", and(app("a", 4, 4<<30), gpu, 1), and(app("b", 4, 4<<30), gpu, 1)),
			"one that spans two":      pod("new", app("c", 40, 70<<30)),
			"one of whom memory runs": pod("new", app("c", 4, 1<<50)),
		} {
			// The race detector makes a sync.Pool forget at random, so one run without allocations is enough.
			least := math.Inf(1)
			for range 50 {
				least = min(least, testing.AllocsPerRun(1, func() { s.Fits(p) }))
			}
			if least != 0 {
				t.Errorf("%v, %s: %v allocations", policy, name, least)
			}
		}
	}
}

// TestOneNodeAnswersMany: states share what Fits counts with, and goroutines ask at once.
func TestOneNodeAnswersMany(t *testing.T) {
	t.Parallel()
	s := busy(t, hint.Restricted)
	next, _ := admit(t, s, pod("more", app("c", 12, 8<<30)))
	fits, not := pod("new", app("a", 4, 4<<30), app("b", 4, 4<<30)),
		pod("new", app("a", 4, 4<<30), app("b", 300, 4<<30))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				if reason := s.Fits(fits); !reason.OK() {
					t.Errorf("Fits = %+v", reason)
				}
				if reason := next.Fits(not); reason.Code != why.KubeletTopologyAffinity {
					t.Errorf("Fits = %+v, want a refusal", reason)
				}
			}
		})
	}
	wait.Wait()
}

// Agents report again and again what a pod has. Its memory must not move to another node of its group by that.
func TestAReportOfTheSameLeavesMemoryWhereItIs(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 2, 8), static(hint.BestEffort), kubelet.Inventory{Zones: memoryZones(2, 100)}).Empty()
	first, second := pod("first", app("c", 1, 120)), pod("second", app("c", 1, 30))
	s, _ = admit(t, s, first)    // 100 of node 0, 20 of node 1
	s, pl := admit(t, s, second) // 30 of node 1
	s = s.Without("first")
	want := []int64{s.Usage(0).Memory[0].Free, s.Usage(1).Memory[0].Free}
	s = s.With(second, pl)
	if got := []int64{s.Usage(0).Memory[0].Free, s.Usage(1).Memory[0].Free}; !slices.Equal(got, want) || got[0] != 100 {
		t.Errorf("free on both nodes after the report: %v, want %v as before", got, want)
	}
}

// TestMemoryThatWasGivenTwiceComesBackOnce has two pods on a node with memory for one, as reports at different times
// say. When one of them goes, the other still has its own.
func TestMemoryThatWasGivenTwiceComesBackOnce(t *testing.T) {
	t.Parallel()
	n := node(t, even(t, 1, 16), static(hint.None), kubelet.Inventory{Zones: memoryZones(1, 4<<30)})
	given := kubelet.Placement{{Container: "c", Memory: []kubelet.Block{{Type: "memory", Nodes: 1, Bytes: 3 << 30}}}}
	a, b, next := pod("a", app("c", 2, 3<<30)), pod("b", app("c", 2, 3<<30)), pod("next", app("c", 2, 2<<30))
	both := n.Empty().With(a, given).With(b, given)
	for uid, s := range map[string]*kubelet.State{
		"a": both.Without("a"), "b": both.Without("b"),
		"a and b": both.Without("a").Without("b"),
	} {
		want := why.KubeletAdmission
		if uid == "a and b" {
			want = why.None
		}
		if got := s.Fits(next); got.Code != want {
			t.Errorf("without %s: got %+v, want %v", uid, got, want)
		}
	}
}
