package kubelet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// devices are one set of n on each of some nodes.
func devices(resource string, n int, nodes ...int) []kubelet.DeviceSet {
	var sets []kubelet.DeviceSet
	for _, i := range nodes {
		sets = append(sets, kubelet.DeviceSet{Resource: resource, Nodes: 1 << i, Registered: n, Healthy: n})
	}
	return sets
}

const gpu = "example.com/gpu"

// TestAdmissions are the cases that surprise people, one by one. Each node has 2 threads per core and one socket per
// NUMA node; CPUs 0 and 1 are reserved.
func TestAdmissions(t *testing.T) {
	t.Parallel()
	type given struct {
		Mask      topo.NodeSet
		Preferred bool
		CPUs      int // how many
		Memory    topo.NodeSet
		Devices   []kubelet.Devices
	}
	tests := map[string]struct {
		nodes, cpus int // NUMA nodes, CPUs of each
		bytes       int64
		config      func(*kubelet.Config)
		devices     []kubelet.DeviceSet
		before      []*kubelet.Pod // that the node holds
		pod         *kubelet.Pod
		want        []given
		status      string
		container   string
		reason      why.Reason
	}{
		"restricted refuses two GPUs on two nodes where CPUs need one": {
			nodes: 2, cpus: 16, bytes: 100, devices: devices(gpu, 1, 0, 1),
			pod:    pod("new", and(app("c", 4, 10), gpu, 2)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.DifferentWidths)},
		},
		"best-effort takes both nodes for them and prefers nothing": {
			nodes: 2, cpus: 16, bytes: 100, devices: devices(gpu, 1, 0, 1),
			config: func(c *kubelet.Config) { c.Topology.Policy = hint.BestEffort; c.Memory.Static = false },
			pod:    pod("new", and(app("c", 4, 10), gpu, 2)),
			want: []given{{Mask: 0b11, CPUs: 4, Devices: []kubelet.Devices{
				{Resource: gpu, Nodes: 1, Count: 1}, {Resource: gpu, Nodes: 2, Count: 1},
			}}},
		},
		"1.36 follows the one GPU node, though CPUs need two": {
			nodes: 4, cpus: 8, devices: devices(gpu, 1, 3),
			config: func(c *kubelet.Config) { c.Topology.Policy = hint.BestEffort; c.Memory.Static = false },
			pod:    pod("new", and(app("c", 10, 0), gpu, 1)),
			want:   []given{{Mask: 0b1000, CPUs: 10, Devices: []kubelet.Devices{{Resource: gpu, Nodes: 8, Count: 1}}}},
		},
		"1.35 offers GPU masks without a GPU beside it, and takes two nodes without it": {
			nodes: 4, cpus: 8, devices: devices(gpu, 1, 3),
			config: func(c *kubelet.Config) {
				c.Topology.Policy, c.Memory.Static, c.Model = hint.BestEffort, false, model(35)
			},
			pod:  pod("new", and(app("c", 10, 0), gpu, 1)),
			want: []given{{Mask: 0b0011, CPUs: 10, Devices: []kubelet.Devices{{Resource: gpu, Nodes: 8, Count: 1}}}},
		},
		"reserved CPUs count as capacity: a pod as large as a node is refused for ever": {
			nodes: 2, cpus: 16, bytes: 100,
			config: func(c *kubelet.Config) { c.CPU.Reserved = cpuset.Of(0, 8) },
			pod:    pod("new", app("c", 16, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 16,
				Extra: int64(why.NotNarrow),
			},
		},
		"and best-effort puts it on both": {
			nodes: 2, cpus: 16, bytes: 100,
			config: func(c *kubelet.Config) { c.CPU.Reserved, c.Topology.Policy = cpuset.Of(0, 8), hint.BestEffort },
			pod:    pod("new", app("c", 16, 10)),
			want:   []given{{Mask: 0b11, CPUs: 16, Memory: 0b11}},
		},
		"memory that fits nowhere passes the merge and fails in the allocation": {
			nodes: 2, cpus: 16, bytes: 100,
			pod:    pod("new", app("c", 4, 300)),
			status: kubelet.UnexpectedAdmissionError, container: "c",
			reason: why.Reason{
				Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: 300,
				Extra: int64(why.MemoryGroupShort),
			},
		},
		"without a topology policy too": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.Policy = hint.None },
			pod:    pod("new", app("c", 4, 300)),
			status: kubelet.UnexpectedAdmissionError, container: "c",
			reason: why.Reason{
				Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: 300,
				Extra: int64(why.MemoryShort),
			},
		},
		"without a topology policy memory chooses its own nodes": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.Policy = hint.None },
			before: []*kubelet.Pod{pod("old", app("c", 2, 80))},
			pod:    pod("new", app("c", 20, 30)),
			want:   []given{{CPUs: 20, Memory: 0b10}},
		},
		"a node in a group gives no memory alone": {
			nodes: 2, cpus: 16, bytes: 100,
			before: []*kubelet.Pod{pod("old", app("c", 18, 150))},
			pod:    pod("new", app("c", 2, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.Memory, Unit: why.Bytes, Asked: 10,
				Extra: int64(why.NotNarrow),
			},
		},
		"what is asked of a group comes from the group": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.Policy = hint.BestEffort },
			before: []*kubelet.Pod{pod("old", app("c", 18, 150))},
			pod:    pod("new", app("c", 2, 40)),
			want:   []given{{Mask: 0b11, CPUs: 2, Memory: 0b11}},
		},
		"memory that needs a wider mask than the others refuses where it matters": {
			nodes: 2, cpus: 16, bytes: 100,
			pod:    pod("new", app("c", 4, 150)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.DifferentWidths)},
		},
		"single-numa-node names the resource that needs more": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.Policy = hint.SingleNUMANode },
			pod:    pod("new", app("c", 20, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 20,
				Extra: int64(why.ManyNodes),
			},
		},
		"containers are served one by one, and the third fails": {
			nodes: 2, cpus: 16, bytes: 100,
			before: []*kubelet.Pod{pod("old", app("c", 8, 10))},
			pod:    pod("new", app("a", 2, 10), app("b", 15, 10), app("c", 6, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 6,
				Extra: int64(why.NoRoom),
			},
		},
		"pod scope puts all on one set of nodes": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.PodScope = true },
			pod: pod("new", app("a", 8, 10), app("b", 8, 10)),
			want: []given{
				{Mask: 0b10, Preferred: true, CPUs: 8, Memory: 0b10},
				{Mask: 0b10, Preferred: true, CPUs: 8, Memory: 0b10},
			},
		},
		"a container whose memory no node has alone gets a wider mask than the pod, and the next one fails": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Topology.PodScope = true },
			pod:    pod("new", app("a", 2, 150), app("b", 2, 100)),
			status: kubelet.UnexpectedAdmissionError, container: "b",
			reason: why.Reason{
				Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: 100,
				Extra: int64(why.MemoryGroupShort),
			},
		},
		"pod scope refuses the pod and not a container": {
			nodes: 2, cpus: 16, bytes: 100,
			config: func(c *kubelet.Config) { c.Topology.PodScope, c.Topology.Policy = true, hint.SingleNUMANode },
			pod:    pod("new", app("a", 10, 10), app("b", 10, 10)),
			status: kubelet.TopologyAffinityError,
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 20,
				Extra: int64(why.ManyNodes),
			},
		},
		"an app container takes what its init container had": {
			nodes: 2, cpus: 16, bytes: 100, devices: devices(gpu, 2, 0, 1),
			pod: pod("new", before(kubelet.Init, and(app("i", 14, 90), gpu, 2)), and(app("c", 10, 60), gpu, 1)),
			want: []given{
				{
					Mask: 0b01, Preferred: true, CPUs: 14, Memory: 0b01,
					Devices: []kubelet.Devices{{Resource: gpu, Nodes: 1, Count: 2}},
				},
				{
					Mask: 0b01, Preferred: true, CPUs: 10, Memory: 0b01,
					Devices: []kubelet.Devices{{Resource: gpu, Nodes: 1, Count: 1}},
				},
			},
		},
		"an app container that cannot contain its init container's CPUs is refused": {
			nodes: 2, cpus: 16, bytes: 100,
			pod:    pod("new", before(kubelet.Init, app("i", 4, 10)), app("c", 16, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 16,
				Extra: int64(why.NotNarrow),
			},
		},
		"a sidecar keeps its own": {
			nodes: 1, cpus: 16, bytes: 100,
			pod:    pod("new", before(kubelet.Sidecar, app("s", 8, 10)), app("c", 8, 10)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Resource: why.CPU, Unit: why.CPUs, Asked: 8,
				Extra: int64(why.NoRoom),
			},
		},
		"full-pcpus-only refuses half a core": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.CPU.FullPCPUsOnly = true },
			pod:    pod("new", app("c", 3, 10)),
			status: kubelet.SMTAlignmentError, container: "c",
			reason: why.Reason{Code: why.KubeletSMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: 3, Extra: 2},
		},
		"a Burstable pod gets devices and no CPUs": {
			nodes: 2, cpus: 16, bytes: 100, devices: devices(gpu, 1, 1),
			pod: &kubelet.Pod{UID: "new", Containers: []kubelet.Container{and(app("c", 4, 10), gpu, 1)}},
			want: []given{
				{Mask: 0b10, Preferred: true, Devices: []kubelet.Devices{{Resource: gpu, Nodes: 2, Count: 1}}},
			},
		},
		"a pod with spec.resources is not pinned": {
			nodes: 2, cpus: 16, bytes: 100,
			pod: &kubelet.Pod{
				UID: "new", Guaranteed: true, PodLevel: true,
				Containers: []kubelet.Container{app("c", 40, 900)},
			},
			want: []given{{Mask: 0b11, Preferred: true}},
		},
		"but a 1.33 kubelet pins it": {
			nodes: 2, cpus: 16, bytes: 100, config: func(c *kubelet.Config) { c.Model = model(33) },
			pod: &kubelet.Pod{
				UID: "new", Guaranteed: true, PodLevel: true,
				Containers: []kubelet.Container{app("c", 4, 10)},
			},
			want: []given{{Mask: 0b01, Preferred: true, CPUs: 4, Memory: 0b01}},
		},
		"a device without topology gives no hint and comes last": {
			nodes: 2, cpus: 16, bytes: 100,
			devices: append(devices(gpu, 1, 1), kubelet.DeviceSet{Resource: gpu, Registered: 5, Healthy: 5}),
			config:  func(c *kubelet.Config) { c.Topology.Policy = hint.BestEffort },
			pod:     &kubelet.Pod{UID: "new", Containers: []kubelet.Container{and(app("c", 4, 10), gpu, 3)}},
			want: []given{{Mask: 0b11, Devices: []kubelet.Devices{
				{Resource: gpu, Nodes: 0, Count: 2}, {Resource: gpu, Nodes: 2, Count: 1},
			}}},
		},
		"which of two sets on the mask gives the device is open": {
			nodes: 2, cpus: 16, bytes: 100,
			devices: append(devices(gpu, 2, 0), kubelet.DeviceSet{
				Resource: gpu, Nodes: 0b11, Registered: 2,
				Healthy: 2,
			}),
			pod: &kubelet.Pod{UID: "new", Containers: []kubelet.Container{and(app("c", 4, 10), gpu, 1)}},
			want: []given{{Mask: 0b01, Preferred: true, Devices: []kubelet.Devices{
				{Resource: gpu, Nodes: 0b01, Count: 1, Open: true},
			}}},
		},
		"unhealthy devices count as capacity: the wider mask is not preferred": {
			nodes: 2, cpus: 16, bytes: 100,
			devices: []kubelet.DeviceSet{
				{Resource: gpu, Nodes: 0b01, Registered: 2, Healthy: 1},
				{Resource: gpu, Nodes: 0b10, Registered: 2, Healthy: 1},
			},
			pod:    pod("new", and(app("c", 2, 10), gpu, 2)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{
				Code: why.KubeletTopologyAffinity, Unit: why.Count, Asked: 2,
				Extra: int64(why.NotNarrow),
			},
		},
		"devices of the first node alone need fewer nodes than the CPUs": {
			nodes: 2, cpus: 16, config: func(c *kubelet.Config) { c.Memory.Static = false },
			devices: devices(gpu, 1, 0),
			pod:     pod("new", and(app("c", 20, 0), gpu, 1)),
			status:  kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.DifferentWidths)},
		},
		"an unknown resource is none of the kubelet's business": {
			nodes: 1, cpus: 16, bytes: 100,
			pod:  pod("new", and(app("c", 2, 10), "example.com/other", 9)),
			want: []given{{Mask: 0b1, Preferred: true, CPUs: 2, Memory: 0b1}},
		},
		"a plugin without devices refuses even 0 of them": {
			nodes: 1, cpus: 16, bytes: 100, devices: []kubelet.DeviceSet{{Resource: gpu}},
			pod:    pod("new", and(app("c", 2, 10), gpu, 0)),
			status: kubelet.UnexpectedAdmissionError, container: "c",
			reason: why.Reason{Code: why.KubeletAdmission, Unit: why.Count, Extra: int64(why.DevicesUnhealthy)},
		},
		"0 devices ask for one node, and refuse what needs two": {
			nodes: 2, cpus: 16, bytes: 100, devices: devices(gpu, 1, 0, 1),
			pod:    pod("new", and(app("c", 20, 150), gpu, 0)),
			status: kubelet.TopologyAffinityError, container: "c",
			reason: why.Reason{Code: why.KubeletTopologyAffinity, Extra: int64(why.DifferentWidths)},
		},
		"a kubelet that would never return is not asked": {
			nodes: 4, cpus: 16, bytes: 100,
			config: func(c *kubelet.Config) {
				c.CPU.FullPCPUsOnly, c.CPU.DistributeAcrossNUMA, c.CPU.Reserved = true, true, cpuset.Of(0, 8, 16, 24)
				c.Topology.Policy = hint.BestEffort
			},
			pod: pod("new", app("c", 54, 10)), status: "", container: "c",
			reason: why.Reason{Code: why.KubeletWouldHang, Resource: why.CPU, Unit: why.CPUs, Asked: 54},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := static(hint.Restricted)
			if tt.config != nil {
				tt.config(&c)
			}
			s := node(t, even(t, tt.nodes, tt.cpus), c,
				kubelet.Inventory{Zones: memoryZones(tt.nodes, tt.bytes), Devices: tt.devices}).Empty()
			for _, p := range tt.before {
				s, _ = admit(t, s, p)
			}
			_, placement, refusal := s.Admit(tt.pod)
			if fits := s.Fits(tt.pod); fits.Code != tt.reason.Code || fits.Extra != tt.reason.Extra {
				t.Errorf("Fits = %+v, want %+v", fits, tt.reason)
			}
			if tt.want == nil {
				want := &kubelet.Refusal{Status: tt.status, Container: tt.container, Reason: tt.reason}
				if diff := cmp.Diff(want, refusal); diff != "" {
					t.Errorf("refusal (-want +got):\n%s", diff)
				}
				return
			}
			if refusal != nil {
				t.Fatalf("refused: %+v", *refusal)
			}
			var got []given
			for _, g := range placement {
				own := given{Mask: g.Hint.Mask, Preferred: g.Hint.Preferred, CPUs: g.CPUs.Len(), Devices: g.Devices}
				for _, b := range g.Memory {
					own.Memory = b.Nodes
				}
				got = append(got, own)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("placement (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBlocksOfInitContainers: what is used again moves from the init container's block to the app container's, which
// counts as an assignment of its own.
func TestBlocksOfInitContainers(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 1, 16), static(hint.Restricted), kubelet.Inventory{Zones: memoryZones(1, 100)}).Empty()
	p := pod("new", before(kubelet.Init, app("i", 2, 50)), app("c", 2, 70))
	next, placement := admit(t, s, p)
	want := [][]kubelet.Block{{{Type: "memory", Nodes: 1}}, {{Type: "memory", Nodes: 1, Bytes: 70}}}
	if diff := cmp.Diff(want, [][]kubelet.Block{placement[0].Memory, placement[1].Memory}); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if u := next.Usage(0); u.Assignments != 2 || u.Memory[0].Free != 30 {
		t.Errorf("%d assignments and %d free, want 2 and 30", u.Assignments, u.Memory[0].Free)
	}
}

// TestMemoryIsShortThoughAnotherTypeIsNotAskedFor: that nothing is left of a type refuses no pod, and admits none, that
// asks for another type alone.
func TestMemoryIsShortThoughAnotherTypeIsNotAskedFor(t *testing.T) {
	t.Parallel()
	zones := memoryZones(1, 100)
	zones[0]["hugepages-2Mi"] = 10
	s := node(t, even(t, 1, 16), static(hint.Restricted), kubelet.Inventory{Zones: zones}).Empty()
	all := app("c", 2, 10)
	all.Memory = append(all.Memory, kubelet.Amount{Name: "hugepages-2Mi", N: 10})
	s, _ = admit(t, s, pod("old", all))
	short := why.Reason{
		Code: why.KubeletAdmission, Resource: why.Memory, Unit: why.Bytes, Asked: 300,
		Extra: int64(why.MemoryGroupShort),
	}
	for bytes, want := range map[int64]why.Reason{90: {}, 300: short} {
		if got := s.Fits(pod("new", app("c", 2, bytes))); got != want {
			t.Errorf("%d bytes: Fits = %+v, want %+v", bytes, got, want)
		}
	}
}

// TestSplitOfAGroup: a group is filled from its lowest node and given back from there, whoever had what.
func TestSplitOfAGroup(t *testing.T) {
	t.Parallel()
	c := static(hint.None)
	s := node(t, even(t, 2, 16), c, kubelet.Inventory{Zones: memoryZones(2, 100)}).Empty()
	s, _ = admit(t, s, pod("a", app("c", 1, 120)))
	s, _ = admit(t, s, pod("b", app("c", 1, 40)))
	s = s.Without("a")
	got := [2]int64{s.Usage(0).Memory[0].Free, s.Usage(1).Memory[0].Free}
	if want := [2]int64{100, 60}; got != want {
		t.Errorf("free %v, want %v: b was filled from node 1", got, want)
	}
	if u := s.Usage(0); u.Group != 0b11 || u.Assignments != 1 {
		t.Errorf("group %v with %d assignments, want {0,1} and 1", u.Group, u.Assignments)
	}
}

// TestRefusedPodChangesAGroup: the first container's block on one node of a group leaves that node a group of its own.
func TestRefusedPodChangesAGroup(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 2, 16), static(hint.BestEffort), kubelet.Inventory{
		Zones: memoryZones(2, 100), Devices: devices(gpu, 1, 1),
	}).Empty()
	s, _ = admit(t, s, pod("group", app("c", 2, 150)))
	after, placement, refusal := s.Admit(pod("refused", and(app("a", 2, 10), gpu, 1), and(app("b", 2, 10), gpu, 1)))
	if refusal == nil || refusal.Container != "b" || placement != nil {
		t.Fatalf("placement %v, refusal %+v; want b refused for its GPU", placement, refusal)
	}
	if was, now := s.Usage(1), after.Usage(1); was.Group != 0b11 || now.Group != 0b10 ||
		now.Assignments != was.Assignments {
		t.Errorf("node 1 was %+v and is %+v, want the group {0,1} and then {1}", was, now)
	}
}

// TestPodThatIsKnownInPart: a report leaves out a container; admitted again, the pod gets what that lacks beside the
// rest.
func TestPodThatIsKnownInPart(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 2, 16), static(hint.Restricted), kubelet.Inventory{
		Zones: memoryZones(2, 100), Devices: devices(gpu, 3, 0, 1),
	}).Empty()
	p := pod("new", and(app("a", 2, 10), gpu, 1), and(app("b", 4, 20), gpu, 2))
	_, placement := admit(t, s, p)
	part := s.With(p, placement[:1])
	whole, again := admit(t, part, p)
	if diff := cmp.Diff(placement, again, sameSets); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(viewOf(s), viewOf(whole.Without(p.UID)), sameSets); diff != "" {
		t.Errorf("without the pod (-want +got):\n%s", diff)
	}
	// The kubelet does not take another amount for what a container has.
	p.Containers[0] = and(app("a", 2, 10), gpu, 2)
	_, _, refusal := part.Admit(p)
	if refusal == nil || refusal.Status != kubelet.TopologyAffinityError {
		t.Errorf("with another number of devices: %+v", refusal)
	}
	c := static(hint.BestEffort)
	bestEffort := node(t, even(t, 2, 16), c, kubelet.Inventory{
		Zones:   memoryZones(2, 100),
		Devices: devices(gpu, 3, 0, 1),
	}).Empty()
	_, _, refusal = bestEffort.With(p, placement[:1]).Admit(p)
	want := &kubelet.Refusal{Status: kubelet.UnexpectedAdmissionError, Container: "a", Reason: why.Reason{
		Code: why.KubeletAdmission, Unit: why.Count, Asked: 2, Free: 1, Extra: int64(why.OtherAmountHeld),
	}}
	if diff := cmp.Diff(want, refusal); diff != "" {
		t.Errorf("with another number of devices (-want +got):\n%s", diff)
	}
}

// TestUsageOfAStrangeNode asks for what the node does not have.
func TestUsageOfAStrangeNode(t *testing.T) {
	t.Parallel()
	s := node(t, even(t, 1, 4), kubelet.Config{Model: model(36)}, kubelet.Inventory{}).Empty()
	if diff := cmp.Diff(kubelet.Usage{}, s.Usage(topo.NUMA(1)), sameSets); diff != "" {
		t.Errorf("node 1 of 1 (-want +got):\n%s", diff)
	}
	if free := s.FreeCPUs(); !free.IsEmpty() {
		t.Errorf("CPU policy none has free CPUs %v to pin", free)
	}
}
