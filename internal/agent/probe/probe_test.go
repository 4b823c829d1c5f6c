package probe_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const ownMode, followMode, blindMode = annotation.ModeOwn, annotation.ModeFollow, annotation.ModeBlind

// seedMachine is the machine of the worked example: 2 sockets × 2 NUMA nodes × 4 cores × 2 threads, CPU c and c+16 are
// siblings.
func seedMachine(tb testing.TB) *topo.Machine {
	tb.Helper()
	spec := grid.Machine{Arch: "amd64", Sockets: 2, Nodes: 2, Cores: 4, Threads: 2, CoresL3: 4}.Spec()
	for n := range 4 {
		row := topo.NUMASpec{ID: n, MemoryBytes: 4 << 30, Distances: []int{32, 32, 32, 32}}
		row.Distances[n], row.Distances[n^1] = 10, 12
		if n == 0 {
			row.Hugepages = map[int64]int64{2 << 20: 512}
		}
		spec.NUMA = append(spec.NUMA, row)
	}
	return grid.Build(tb, spec)
}

func node(annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "node-uid", Annotations: annotations}}
}

// example is the worked example of the pools: RESERVED_K 0,16, an LSE pod on 1,17, an LSR pod on 2,18, the kubelet's
// on 3,19.
func example(tb testing.TB) probe.Input {
	tb.Helper()
	return probe.Input{
		NodeName: "n0", Node: node(nil), Machine: seedMachine(tb), Mode: ownMode, Writer: "tenon-agent/test",
		Kubelet: annotation.Kubelet{
			CPU: annotation.KubeletCPU{
				Policy: "static", Reserved: "0,16", Options: map[string]string{"full-pcpus-only": "true"},
			},
			Topology: annotation.KubeletTopology{Policy: "single-numa-node", Scope: "pod"},
		},
		Since: metav1.NewTime(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)),
		Pins: []annotation.PodCPUAlloc{{
			Namespace: "default", Name: "static", UID: "k", CPUSet: "3,19",
			ManagedByKubelet: true,
		}},
		Entries: []ledger.Entry{
			{UID: "e", Namespace: "default", Name: "lse", Class: qos.LSE, Role: qos.Exclusive, CPUList: "1,17"},
			{UID: "r", Namespace: "default", Name: "lsr", Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: "2,18"},
		},
	}
}

func TestWorkedExampleIsPublishedAsSeed000HasIt(t *testing.T) {
	t.Parallel()
	nrt := probe.Topology(example(t))
	want := map[string]string{
		annotation.KubeletCPUManagerPolicy: `{"policy":"static","options":{"full-pcpus-only":"true"},` +
			`"reservedCPUs":"0,16"}`,
		annotation.PodCPUAllocsKey: `[{"namespace":"default","name":"lse","uid":"e","cpuset":"1,17"},` +
			`{"namespace":"default","name":"lsr","uid":"r","cpuset":"2,18"},` +
			`{"namespace":"default","name":"static","uid":"k","cpuset":"3,19","managedByKubelet":true}]`,
		annotation.CPUSharedPoolsKey: `[{"socket":0,"node":0,"cpuset":"0,16"},{"socket":0,"node":1,"cpuset":"4-7,` +
			`20-23"},` +
			`{"socket":1,"node":2,"cpuset":"8-11,24-27"},{"socket":1,"node":3,"cpuset":"12-15,28-31"}]`,
		annotation.BECPUSharedPoolsKey: `[{"socket":0,"node":0,"cpuset":"0,2,16,18"},{"socket":0,"node":1,` +
			`"cpuset":"4-7,20-23"},` +
			`{"socket":1,"node":2,"cpuset":"8-11,24-27"},{"socket":1,"node":3,"cpuset":"12-15,28-31"}]`,
		annotation.TakeoverKey: `{"phase":2,"since":"2026-05-01T00:00:00Z","kubeletPolicy":"static",` +
			`"kubeletFreeCPUs":"1-2,4-15,17-18,20-31","remainingPods":1}`,
		annotation.TopologyMode: "Own",
		annotation.Writer:       "tenon-agent/test",
		annotation.KubeletKey: `{"cpu":{"policy":"static","options":{"full-pcpus-only":"true"},"reserved":"0,16"},` +
			`"memory":{"policy":"None"},"topology":{"policy":"single-numa-node","scope":"pod"}}`,
	}
	got := map[string]string{}
	for key, value := range nrt.Annotations {
		if key != annotation.CPUTopology {
			got[key] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SingleNUMANodePodLevel"},
		nrt.TopologyPolicies); diff != "" { //nolint:staticcheck // what readers of v1alpha1 look at
		t.Errorf("topologyPolicies (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha2.AttributeList{
		{Name: "topologyManagerPolicy", Value: "single-numa-node"},
		{Name: "topologyManagerScope", Value: "pod"},
		{Name: "topologyManagerMaxNUMANodes", Value: "8"},
	}, nrt.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if nrt.Name != "n0" || nrt.Labels[annotation.ManagedBy] != "Koordinator" ||
		nrt.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("metadata = %+v", nrt.ObjectMeta)
	}
}

func TestZonesSayWhatANodeHasGivesAndHasLeft(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Entries = append(in.Entries, ledger.Entry{
		UID: "b", Name: "burst", Class: qos.LS, NUMAIDs: []int{1},
		MilliCPU: 2500,
	})
	zones := probe.Topology(in).Zones
	type row struct{ Capacity, Allocatable, Available string }
	got := map[string]map[string]row{}
	for _, z := range zones {
		got[z.Name] = map[string]row{}
		for _, r := range z.Resources {
			got[z.Name][r.Name] = row{r.Capacity.String(), r.Allocatable.String(), r.Available.String()}
		}
	}
	memory := row{"4Gi", "4Gi", "4Gi"}
	want := map[string]map[string]row{
		"node-0": {"cpu": {"8", "6", "0"}, "memory": {"4Gi", "3Gi", "3Gi"}, "hugepages-2Mi": {"1Gi", "1Gi", "1Gi"}},
		"node-1": {"cpu": {"8", "8", "5500m"}, "memory": memory},
		"node-2": {"cpu": {"8", "8", "8"}, "memory": memory},
		"node-3": {"cpu": {"8", "8", "8"}, "memory": memory},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	costs := v1alpha2.CostList{
		{Name: "node-0", Value: 12},
		{Name: "node-1", Value: 10},
		{Name: "node-2", Value: 32},
		{Name: "node-3", Value: 32},
	}
	if diff := cmp.Diff(costs, zones[1].Costs); diff != "" {
		t.Errorf("costs of node-1 (-want +got):\n%s", diff)
	}
}

func TestPhaseOnePublishesTheTopologyAlone(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Mode = blindMode
	nrt := probe.Topology(in)
	got := slices.Sorted(maps.Keys(nrt.Annotations))
	want := []string{annotation.CPUTopology, annotation.TakeoverKey, annotation.TopologyMode, annotation.Writer}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if nrt.Annotations[annotation.TakeoverKey] != `{"phase":1,"remainingPods":0}` || len(nrt.Attributes) > 0 ||
		nrt.TopologyPolicies[0] != "None" { //nolint:staticcheck // what readers of v1alpha1 look at
		t.Errorf("phase 1 says something of the kubelet: %v %v %v", nrt.Annotations[annotation.TakeoverKey],
			nrt.Attributes, nrt.TopologyPolicies) //nolint:staticcheck // what readers of v1alpha1 look at
	}
}

func TestNodeReservationIsCopiedAndTakenOff(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Entries, in.Pins, in.Kubelet = nil, nil, annotation.Kubelet{}
	in.Node = node(map[string]string{
		annotation.NodeReservation:       `{"reservedCPUs":"4-7"}`,
		annotation.NodeSystemQoSResource: `{"cpuset":"20-23"}`,
	})
	nrt := probe.Topology(in)
	for _, key := range []string{annotation.NodeReservation, annotation.NodeSystemQoSResource} {
		if nrt.Annotations[key] != in.Node.Annotations[key] {
			t.Errorf("%s = %q, want the Node's", key, nrt.Annotations[key])
		}
	}
	var pools annotation.CPUSharedPools
	err := json.Unmarshal([]byte(nrt.Annotations[annotation.CPUSharedPoolsKey]), &pools)
	if err != nil || pools[1].CPUSet != "" || len(pools) != 4 {
		t.Errorf("pools = %+v, %v, want four parts, that of node 1 empty", pools, err)
	}
	if !strings.Contains(nrt.Annotations[annotation.CPUSharedPoolsKey], `"node":1,"cpuset":""`) {
		t.Errorf("an empty part is not published: %s", nrt.Annotations[annotation.CPUSharedPoolsKey])
	}
}

func TestOfflineCPUsAreNotPublished(t *testing.T) {
	t.Parallel()
	spec := seedMachine(t).Spec()
	for i := range spec.CPUs {
		spec.CPUs[i].Offline = i == 0 || i == 16 // core 0 as a whole
	}
	m := grid.Build(t, spec)
	nrt := probe.Topology(probe.Input{NodeName: "n0", Machine: m, Mode: ownMode})
	d, _, err := annotation.ParseCPUTopologyDetail(nrt.Annotations[annotation.CPUTopology])
	testkit.Check(t, err)
	cores := map[int32]bool{}
	for _, c := range d.Detail {
		if c.ID == 0 || c.ID == 16 {
			t.Errorf("offline CPU %d is published", c.ID)
		}
		cores[c.Core] = true
	}
	for core := range int32(15) {
		if !cores[core] {
			t.Errorf("core ids are not dense: %d is missing of %v", core, cores)
		}
	}
	if len(nrt.OwnerReferences) > 0 {
		t.Errorf("owner %v without a Node", nrt.OwnerReferences)
	}
}

func TestMachineOfTooManyNUMANodesIsStillPublished(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Nodes: topo.MaxNodes + 1}.Build(t)
	in := probe.Input{NodeName: "n0", Machine: m, Mode: ownMode}
	in.Draft = probe.NewDraft(in, convert.Facts)
	nrt := probe.Topology(in)
	if len(nrt.Zones) != topo.MaxNodes+1 || nrt.Annotations[annotation.CPUTopology] == "" {
		t.Errorf("%d zones, topology %q", len(nrt.Zones), nrt.Annotations[annotation.CPUTopology])
	}
	if got := nrt.Annotations[annotation.CPUSharedPoolsKey]; got != "[]" {
		t.Errorf("shared pools = %s of a machine on which CPU sets cannot be allocated, want none", got)
	}
	if len(in.Draft.Problems) != 1 || !strings.Contains(in.Draft.Problems[0].Text, "at most 64 are supported") {
		t.Errorf("problems = %v, want one that names the limit", in.Draft.Problems)
	}
}

// What the agent publishes is what the scheduler's account derives from it: the two share one definition.
func TestPublishedPoolsEqualTheAccountBuiltFromThePublishedObject(t *testing.T) {
	t.Parallel()
	m := seedMachine(t)
	rapid.Check(t, func(t *rapid.T) {
		perm := rapid.Permutation(m.All().Slice()).Draw(t, "cpus")
		in := probe.Input{
			NodeName: "n0", Node: node(nil), Machine: m, Mode: ownMode,
			Kubelet: annotation.Kubelet{CPU: annotation.KubeletCPU{Policy: "static"}},
		}
		take := func(label string) string {
			n := rapid.IntRange(1, 4).Draw(t, label)
			ids := slices.Sorted(slices.Values(perm[:n]))
			perm = perm[n:]
			return cpuset.FormatIDs(ids)
		}
		in.Kubelet.CPU.Reserved = take("reserved")
		for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
			role := rapid.SampledFrom([]qos.Role{qos.Exclusive, qos.ExclusiveWithBE}).Draw(t, "role")
			class := map[qos.Role]qos.Class{qos.Exclusive: qos.LSE, qos.ExclusiveWithBE: qos.LSR}[role]
			in.Entries = append(in.Entries, ledger.Entry{
				UID: string(rune('a' + i)), Class: class, Role: role,
				CPUList: take("pod"),
			})
		}
		if rapid.Bool().Draw(t, "pinned") {
			in.Pins = []annotation.PodCPUAlloc{{UID: "k", CPUSet: take("pin"), ManagedByKubelet: true}}
		}
		nrt := probe.Topology(in)
		facts, problems := convert.Facts(in.Node, nrt, convert.DefaultArgs())
		if len(problems) > 0 {
			t.Fatalf("the published object has problems: %v", problems)
		}
		v := ledger.New(facts, in.Entries...).View()
		for key, pool := range map[string]cpuset.Set{
			annotation.CPUSharedPoolsKey: v.SharedPool(), annotation.BECPUSharedPoolsKey: v.BEPool(),
		} {
			var parts annotation.CPUSharedPools
			testkit.Check(t, json.Unmarshal([]byte(nrt.Annotations[key]), &parts))
			var union cpuset.Set
			for _, p := range parts {
				set, _, err := v.Machine().ParseList(p.CPUSet)
				if err != nil || set.Overlaps(&union) {
					t.Fatalf("%s: part %+v: %v", key, p, err)
				}
				union = union.Union(set)
			}
			if union != pool {
				t.Fatalf("%s = %s, the account has %s", key, v.Machine().FormatList(union),
					v.Machine().FormatList(pool))
			}
		}
	})
}

func TestModeTable(t *testing.T) {
	t.Parallel()
	on, off, blind := probe.Switches{QueryKubelet: true, CPUSetAllocator: true}, probe.Switches{QueryKubelet: true},
		probe.Switches{}
	tests := map[string]struct {
		switches probe.Switches
		static   bool
		wish     string
		want     annotation.Mode
		conflict bool
	}{
		"policy none":                                                {on, false, "", ownMode, false},
		"policy none, Own wished":                                    {on, false, "Own", ownMode, false},
		"policy static":                                              {on, true, "", ownMode, false},
		"policy static, allocator off":                               {off, true, "", followMode, false},
		"policy static, allocator off, Follow wished":                {off, true, "Follow", followMode, false},
		"policy static: the label wins over the gate":                {on, true, "Follow", followMode, false},
		"policy none has nothing to follow":                          {on, false, "Follow", ownMode, true},
		"policy none, allocator off, has nothing to follow":          {off, false, "Follow", ownMode, true},
		"policy none, allocator off: no component enforces CPU sets": {off, false, "", ownMode, true},
		"policy none, query off":                                     {blind, false, "", blindMode, false},
		"policy none, query off, Follow wished":                      {blind, false, "Follow", blindMode, true},
		"policy static, Own wished":                                  {on, true, "Own", ownMode, false},
		"query off":                                                  {blind, true, "", blindMode, false},
		"query off, Follow wished":                                   {blind, true, "Follow", blindMode, true},
		"allocator off, Own wished":                                  {off, true, "Own", followMode, true},
		"a word that is not a mode is reported, not interpreted":     {on, true, "Both", ownMode, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, conflict := probe.ModeOf(test.switches, test.static, test.wish)
			if got != test.want || (conflict != "") != test.conflict {
				t.Errorf("ModeOf = %s, %q, want %s, a conflict: %v", got, conflict, test.want, test.conflict)
			}
		})
	}
	for mode, writes := range map[annotation.Mode]bool{ownMode: true, followMode: false, blindMode: false} {
		if on.Writes(mode) != writes || off.Writes(mode) {
			t.Errorf("in mode %s cpusets are written: %v with the allocator on, %v with it off; want %v and false",
				mode, on.Writes(mode), off.Writes(mode), writes)
		}
	}
	if (probe.Switches{CPUSetAllocator: true}).Valid() {
		t.Error("query off with the allocator on is accepted")
	}
}

func TestWhoseCPUsTheKubeletKeeps(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	state := host.CPUState{Policy: "static", Pods: map[string][]int{"u": {2, 3}}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := object.Pod("p", object.UID("u"), object.On("n0"), object.Container("c", ""),
			object.Both("cpu", "2", "memory", "1Gi"), object.Phase(corev1.PodRunning))
		started := corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(-time.Hour))}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Running: &started}},
		}
		change(p)
		return p
	}
	tests := map[string]struct {
		mode   annotation.Mode
		change func(*corev1.Pod)
		pinned bool
	}{
		"a pod that started before the take-over": {ownMode, func(*corev1.Pod) {}, true},
		"a pod that started in the same second": {ownMode, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(since)
		}, true},
		"a pod that started after it": {ownMode, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(since.Add(time.Hour))
		}, false},
		"a later pod, of which a runtime refused to start the first container": {ownMode, func(p *corev1.Pod) {
			c := &p.Status.ContainerStatuses[0]
			c.State.Running.StartedAt = metav1.NewTime(since.Add(time.Hour))
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				Reason: "StartError", StartedAt: metav1.Unix(0, 0), FinishedAt: metav1.NewTime(since.Add(time.Minute)),
			}
		}, false},
		"a pod that has not started": {ownMode, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = nil
		}, false},
		"a later pod while the kubelet is followed": {followMode, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = nil
		}, true},
		"a static pod, which the API mirrors": {ownMode, func(p *corev1.Pod) {
			p.UID, p.Annotations[corev1.MirrorPodAnnotationKey] = "mirror", "u"
		}, true},
		"no pod in phase 1": {blindMode, func(*corev1.Pod) {}, false},
		"not one that the scheduler gave CPUs": {ownMode, func(p *corev1.Pod) {
			p.Labels[annotation.QoSClass], p.Annotations[annotation.ResourceStatusKey] = "LSR", `{"cpuset":"8-9"}`
		}, false},
		"not one of class LS": {ownMode, func(p *corev1.Pod) {
			p.Labels[annotation.QoSClass] = "LS"
		}, false},
		"one of class LS while the kubelet is followed": {followMode, func(p *corev1.Pod) {
			p.Labels[annotation.QoSClass] = "LS"
		}, true},
		"not one that has ended": {ownMode, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
		}, false},
		"not one of which the kubelet has no record": {ownMode, func(p *corev1.Pod) { p.UID = "other" }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pins := probe.Pins(state, []*convert.Pod{convert.ReadPod(pod(test.change))}, test.mode, since)
			if (len(pins) == 1) != test.pinned {
				t.Fatalf("pins = %+v, want one: %v", pins, test.pinned)
			}
			if test.pinned && (pins[0].CPUSet != "2-3" || !pins[0].ManagedByKubelet) {
				t.Errorf("pin = %+v, want 2-3 managed by the kubelet", pins[0])
			}
		})
	}
}

func BenchmarkTopology(b *testing.B) {
	in := example(b)
	b.ReportAllocs()
	for b.Loop() {
		probe.Topology(in)
	}
}

// TestIsolatedCPUsArePublishedAndInNoPool: of the worked example, which has CPUs 0-31 and pods on 1-3 and 17-19.
func TestIsolatedCPUsArePublishedAndInNoPool(t *testing.T) {
	t.Parallel()
	in := example(t)
	spec := in.Machine.Spec()
	for _, c := range []int{4, 5, 20, 21} {
		spec.CPUs[c].Isolated, spec.CPUs[c].NoTick = true, c != 5
	}
	in.Machine = grid.Build(t, spec)
	nrt := probe.Topology(in)
	if got, want := nrt.Annotations[annotation.IsolatedCPUsKey],
		`{"isolated":"4-5,20-21","noHzFull":"4,20-21"}`; got != want {
		t.Errorf("published are %s, want %s", got, want)
	}
	for _, key := range []string{annotation.CPUSharedPoolsKey, annotation.BECPUSharedPoolsKey} {
		var pools annotation.CPUSharedPools
		testkit.Check(t, json.Unmarshal([]byte(nrt.Annotations[key]), &pools))
		var all cpuset.Set
		for _, p := range pools {
			all = all.Union(cpuset.MustParse(p.CPUSet))
		}
		if isolated := cpuset.Of(4, 5, 20, 21); all.Overlaps(&isolated) || !all.Has(6) {
			t.Errorf("%s: the pools have CPUs %v", key, all)
		}
	}
	if text, ok := probe.Topology(example(t)).Annotations[annotation.IsolatedCPUsKey]; ok {
		t.Errorf("a machine without isolated CPUs publishes %s", text)
	}
}
