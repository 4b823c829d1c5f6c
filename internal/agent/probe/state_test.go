package probe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

const gib = 1 << 30

// recorded is a kubelet that has placed one pod, of which the API knows the UID "a", and one that it does not know.
func recorded(tb testing.TB) probe.Input {
	tb.Helper()
	in := example(tb)
	in.Mode, in.Since, in.Entries = annotation.ModeFollow, metav1.Time{}, nil
	in.Kubelet.Memory.Policy, in.Kubelet.Version = "Static", "v1.36.3"
	in.Kubelet.Memory.Reserved = map[int32]corev1.ResourceList{0: {"memory": resource.MustParse("1Gi")}}
	in.Kubelet.Topology.Options = map[string]string{"max-allowable-numa-nodes": "16"}
	in.Kubelet.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
	in.Pins = []annotation.PodCPUAlloc{{
		Namespace: "default", Name: "p", UID: "a", CPUSet: "4-5",
		ManagedByKubelet: true,
	}}
	in.Pods = []*convert.Pod{
		convert.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "a"}}),
		convert.ReadPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "over", UID: "b"},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed},
		}),
	}
	memory := func(allocatable, free int64) host.MemoryAmount {
		return host.MemoryAmount{Total: 4 * gib, Allocatable: allocatable, Free: free}
	}
	in.State = probe.KubeletState{
		CPU: host.CPUState{
			Policy: "static", Pods: map[string][]int{"a": {4, 5}},
			Containers: map[string]map[string][]int{"a": {"main": {4, 5}}, "b": {"main": {6}}, "ghost": {"main": {7}}},
		},
		Memory: host.MemoryState{
			Policy: "Static",
			Zones: map[int]host.MemoryZone{
				0: {Assignments: 2, Group: []int{0, 1}, Types: map[string]host.MemoryAmount{
					"memory": memory(2*gib, gib), "hugepages-2Mi": {Total: gib, Allocatable: gib},
				}},
				1: {
					Assignments: 1, Group: []int{0, 1},
					Types: map[string]host.MemoryAmount{"memory": memory(4*gib, 4*gib)},
				},
				2: {Group: []int{2}, Types: map[string]host.MemoryAmount{"memory": memory(4*gib, 3*gib)}},
				3: {Group: []int{3}, Types: map[string]host.MemoryAmount{"memory": memory(4*gib, 4*gib)}},
			},
			Pods: map[string]map[string][]host.MemoryBlock{
				"a": {"main": {
					{NUMAIDs: []int{0, 1}, Type: "memory", Bytes: gib},
					{NUMAIDs: []int{0}, Type: "hugepages-2Mi", Bytes: gib},
					{NUMAIDs: []int{0, 1}, Type: "memory", Bytes: gib},
				}},
				"ghost": {"main": {{NUMAIDs: []int{2}, Type: "memory", Bytes: gib}}},
			},
		},
		Devices: host.DeviceState{
			Registered: map[string][]string{"x/gpu": {"g0", "g1", "wide"}},
			Pods: map[string]map[string]map[string][]host.Device{
				"a": {"main": {"x/gpu": {
					{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
					{Resource: "x/gpu", ID: "wide", NUMAIDs: []int{0, 1}},
				}}},
			},
		},
		Inventory: []host.Device{
			{Resource: "x/nic", ID: "n0"},
			{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
			{Resource: "x/gpu", ID: "wide", NUMAIDs: []int{0, 1}},
			{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{0}},
			{Resource: "x/gpu", ID: "bad", NUMAIDs: []int{0}, Unhealthy: true},
		},
	}
	return in
}

func TestWhatTheKubeletsManagersHoldIsPublished(t *testing.T) {
	t.Parallel()
	nrt := probe.Topology(recorded(t))
	want := `{"memory":{` +
		`"0":{"allocatable":{"hugepages-2Mi":"1Gi","memory":"2Gi"},"free":{"hugepages-2Mi":"0","memory":"1Gi"},` +
		`"group":[0,1],"assignments":2},` +
		`"1":{"allocatable":{"memory":"4Gi"},"free":{"memory":"4Gi"},"group":[0,1],"assignments":1},` +
		`"2":{"allocatable":{"memory":"4Gi"},"free":{"memory":"3Gi"},"group":[2],"assignments":0},` +
		`"3":{"allocatable":{"memory":"4Gi"},"free":{"memory":"4Gi"},"group":[3],"assignments":0}},` +
		`"devices":{"x/gpu":[{"numa":[0],"total":3,"free":1,"unhealthy":1},{"numa":[0,1],"total":1,"free":0}],` +
		`"x/nic":[{"numa":[],"total":1,"free":1}]},` +
		`"pods":{"a":{"main":{"cpus":"4-5","memory":{"0-1":"2Gi"},"hugepages":{"hugepages-2Mi":{"0":"1Gi"}},` +
		`"devices":{"x/gpu":{"mask":[0,1],"count":2,"split":[{"mask":[0],"count":1},{"mask":[0,1],"count":1}]}}}}}}`
	if diff := cmp.Diff(want, nrt.Annotations[annotation.NUMAStateKey]); diff != "" {
		t.Errorf("numa-state (-want +got):\n%s", diff)
	}
	state, warnings, err := annotation.ParseNUMAState(nrt.Annotations[annotation.NUMAStateKey])
	if err != nil || len(warnings) > 0 || annotation.Encode(state) != want {
		t.Errorf("read again: %s, %v, %v", annotation.Encode(state), warnings, err)
	}
	wantKubelet := `{"version":"v1.36.3","cpu":{"policy":"static","options":{"full-pcpus-only":"true"},"reserved":"0,` +
		`16"},` +
		`"memory":{"policy":"Static","reserved":{"0":{"memory":"1Gi"}}},` +
		`"topology":{"policy":"single-numa-node","scope":"pod","options":{"max-allowable-numa-nodes":"16"}},` +
		`"gates":{"CPUManagerPolicyAlphaOptions":true}}`
	if diff := cmp.Diff(wantKubelet, nrt.Annotations[annotation.KubeletKey]); diff != "" {
		t.Errorf("kubelet (-want +got):\n%s", diff)
	}
	if got := nrt.Attributes[2]; got.Name != "topologyManagerMaxNUMANodes" || got.Value != "16" {
		t.Errorf("attribute %+v, want topologyManagerMaxNUMANodes 16", got)
	}
}

func TestZonesCountTheKubeletsBlocksAndDevices(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	in.Pods = append(in.Pods, convert.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "ours", UID: "o",
		Annotations: map[string]string{
			annotation.ResourceStatusKey: `{"numaNodeResources":[{"node":2,"resources":{"cpu":"1","memory":"1Gi"}},` +
				`{"node":3,"resources":{"memory":"9Gi"}}]}`,
		},
	}}))
	// A pod that both have recorded counts once, as the kubelet has it.
	in.Pods[0].Annotations = map[string]string{annotation.ResourceStatusKey: `{"numaNodeResources":[{"node":1,` +
		`"resources":{"memory":"2Gi"}}]}`}
	in.Pods[0] = convert.ReadPod(in.Pods[0].Pod)
	got := map[string]map[string]string{}
	for _, z := range probe.Topology(in).Zones {
		got[z.Name] = map[string]string{}
		for _, r := range z.Resources {
			got[z.Name][r.Name] = r.Capacity.String() + " " + r.Allocatable.String() + " " + r.Available.String()
		}
	}
	want := map[string]map[string]string{
		"node-0": {"cpu": "8 6 6", "memory": "4Gi 2Gi 1Gi", "hugepages-2Mi": "1Gi 1Gi 0", "x/gpu": "4 3 1"},
		"node-1": {"cpu": "8 8 6", "memory": "4Gi 4Gi 4Gi", "x/gpu": "1 1 0"},
		"node-2": {"cpu": "8 8 8", "memory": "4Gi 4Gi 2Gi"},
		"node-3": {"cpu": "8 8 8", "memory": "4Gi 4Gi 0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

func TestReservedMemoryIsNotAllocatableBeforeTheKubeletHasRecordedAnything(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	in.State = probe.KubeletState{}
	out := probe.Topology(in)
	for _, r := range out.Zones[0].Resources {
		if r.Name == "memory" && (r.Allocatable.String() != "2Gi" || r.Capacity.String() != "4Gi") {
			t.Errorf("memory of node 0: %s of %s allocatable, want 2Gi of 4Gi: 1Gi are hugepages, 1Gi is reserved",
				r.Allocatable.String(), r.Capacity.String())
		}
	}
	if text, ok := out.Annotations[annotation.NUMAStateKey]; ok {
		t.Errorf("numa-state = %s of a kubelet that recorded nothing", text)
	}
}

// In Own mode the kubelet's record does not say where pods run, but what the kubelet will answer to the next pod: a
// scheduler that does not know it predicts from another state.
func TestOwnModeReportsTheKubeletsRecordToo(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	in.Mode, in.Pins = annotation.ModeOwn, nil
	out := probe.Topology(in)
	state, _, err := annotation.ParseNUMAState(out.Annotations[annotation.NUMAStateKey])
	testkit.Check(t, err)
	if c := state.Pods["a"]["main"]; c.CPUs != "4-5" || len(c.Memory) != 1 || len(c.Devices) != 1 {
		t.Errorf("container = %+v, want its CPUs, memory and devices", c)
	}
	if text := out.Annotations[annotation.PodCPUAllocsKey]; text != "[]" {
		t.Errorf("pods with CPUs of their own: %s, want none", text)
	}
}

func TestPhaseOneReportsNothingThatTheKubeletRecorded(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	in.Mode = annotation.ModeBlind
	out := probe.Topology(in)
	for _, key := range []string{annotation.NUMAStateKey, annotation.KubeletKey} {
		if text, ok := out.Annotations[key]; ok {
			t.Errorf("%s = %s in phase 1", key, text)
		}
	}
	for _, z := range out.Zones {
		for _, r := range z.Resources {
			if r.Name == "x/gpu" || r.Name == "memory" && r.Allocatable.Cmp(r.Available) != 0 {
				t.Errorf("zone %s reports %s of the kubelet", z.Name, r.Name)
			}
		}
	}
}

func TestVersionIsTheNodesWhereTheSettingsDoNotSay(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	in.Kubelet.Version = ""
	in.Node.Status.NodeInfo.KubeletVersion = "v1.35.1"
	k, _, err := annotation.ParseKubelet(probe.Topology(in).Annotations[annotation.KubeletKey])
	if err != nil || k.Version != "v1.35.1" {
		t.Errorf("version = %q, %v, want that of the Node", k.Version, err)
	}
}

// Whatever was recorded, no zone has more available than allocatable or more allocatable than capacity, nothing is
// negative, and equal inputs give equal bytes.
func TestZonesNeverPromiseMoreThanThereIs(t *testing.T) {
	t.Parallel()
	base := recorded(t)
	rapid.Check(t, func(t *rapid.T) {
		in := base
		in.Pods = nil
		in.State.Memory.Zones = map[int]host.MemoryZone{}
		for id := range 4 {
			total := rapid.Int64Range(0, 8*gib).Draw(t, "total")
			allocatable := rapid.Int64Range(0, total).Draw(t, "allocatable")
			in.State.Memory.Zones[id] = host.MemoryZone{
				Group: []int{id},
				Types: map[string]host.MemoryAmount{"memory": {
					Total: total, Allocatable: allocatable, Free: rapid.Int64Range(0, allocatable).Draw(t, "free"),
				}},
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
			status := annotation.ResourceStatus{NUMANodeResources: []annotation.NUMANodeResource{{
				Node: rapid.Int32Range(0, 5).Draw(t, "node"),
				Resources: corev1.ResourceList{
					"memory": *quantity(rapid.Int64Range(0, 8*gib).Draw(t, "memory")), "hugepages-2Mi": *quantity(gib),
				},
			}}}
			in.Pods = append(in.Pods, convert.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				UID:         types.UID(rune('p' + i)),
				Annotations: map[string]string{annotation.ResourceStatusKey: annotation.Encode(status)},
			}}))
		}
		in.State.Inventory = nil
		for i := range rapid.IntRange(0, 6).Draw(t, "devices") {
			in.State.Inventory = append(in.State.Inventory, host.Device{
				Resource: rapid.SampledFrom([]string{"x/gpu", "x/nic"}).Draw(t, "resource"), ID: string(rune('a' + i)),
				NUMAIDs:   rapid.SampledFrom([][]int{nil, {0}, {1}, {0, 1}, {3}}).Draw(t, "nodes"),
				Unhealthy: rapid.Bool().Draw(t, "unhealthy"),
			})
		}
		out := probe.Topology(in)
		for _, z := range out.Zones {
			for _, r := range z.Resources {
				if r.Available.Sign() < 0 || r.Available.Cmp(r.Allocatable) > 0 || r.Allocatable.Cmp(r.Capacity) > 0 {
					t.Fatalf("zone %s: %s: capacity %s, allocatable %s, available %s", z.Name, r.Name,
						r.Capacity.String(), r.Allocatable.String(), r.Available.String())
				}
			}
		}
		if diff := cmp.Diff(texts(out), texts(probe.Topology(in))); diff != "" {
			t.Fatalf("the same input gives other bytes:\n%s", diff)
		}
	})
}

func texts(nrt *v1alpha2.NodeResourceTopology) map[string]string { return nrt.Annotations }

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
