package view_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
	"github.com/tenon-project/tenon/internal/view"
)

func pending() *corev1.Pod {
	return object.Pod("ml/a", object.UID("u"), object.Created(time.Unix(1700000000, 0)),
		object.Scheduler("tenon-scheduler"))
}

func refusal(code why.Code, node string, asked, free int64) why.Finding {
	return why.Finding{
		Reason: why.Reason{Code: code, Unit: why.CPUs, Asked: asked, Free: free}, Plugin: "p",
		Phase: why.Filter, Object: node,
	}
}

func TestHoldIsReportedBeforeRefusals(t *testing.T) {
	t.Parallel()
	gated := pending()
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x.io/a"}, {Name: "x.io/b"}}
	refused := []why.Finding{refusal(why.InsufficientExclusiveCPU, "n", 8, 7)}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		verdict view.Verdict
		queue   *view.Queue
		want    why.Code
		message string
	}{
		"no profile has the scheduler name": {
			pending(),
			view.Verdict{Findings: refused, Names: []string{"a", "b"}},
			nil,
			why.NoScheduler,
			`no scheduler serves the pod's scheduler name: spec.schedulerName is "tenon-scheduler", served are a, b`,
		},
		"gates hold it": {
			gated,
			view.Verdict{Served: true, Findings: refused},
			nil, why.SchedulingGate,
			"waiting for scheduling gates: x.io/a, x.io/b",
		},
		"no cycle yet": {
			pending(),
			view.Verdict{Served: true, Feasible: 2, Nodes: 2},
			&view.Queue{}, why.NotAttempted,
			"queued, no scheduling attempt yet",
		},
		"a node refuses": {
			pending(),
			view.Verdict{Served: true, Findings: refused, Nodes: 1},
			&view.Queue{},
			why.InsufficientExclusiveCPU, "not enough cpus available to satisfy request",
		},
		"it would be placed now": {
			pending(),
			view.Verdict{Served: true, Feasible: 2, Nodes: 2},
			&view.Queue{Attempts: 1},
			why.None, "",
		},
	} {
		got := view.Explain(describe.Pod(c.pod), c.verdict, c.queue)
		switch {
		case c.want == why.None && got.RootCause != nil:
			t.Errorf("%s: got root cause %v, want none", name, got.RootCause)
		case c.want == why.None && len(got.Notes) != 1:
			t.Errorf("%s: got notes %v, want one", name, got.Notes)
		case c.want != why.None && (got.RootCause == nil || got.RootCause.Code != c.want ||
			got.RootCause.Message != c.message):
			t.Errorf("%s: got %+v, want %s %q", name, got.RootCause, c.want, c.message)
		}
	}
}

func TestEqualNodesAreOneRowNearestMissFirst(t *testing.T) {
	t.Parallel()
	v := view.Verdict{Served: true, Nodes: 5, Findings: []why.Finding{
		{
			Reason: why.Reason{Code: why.NodeAffinity}, Plugin: "NodeAffinity", Phase: why.Filter, Object: "z1",
			Detail: "selector",
		},
		{
			Reason: why.Reason{Code: why.NodeAffinity}, Plugin: "NodeAffinity", Phase: why.Filter, Object: "z0",
			Detail: "selector",
		},
		refusal(why.InsufficientExclusiveCPU, "far", 8, 1), refusal(why.InsufficientExclusiveCPU, "close", 8, 7),
		refusal(why.InsufficientExclusiveCPU, "both", 8, 7), refusal(why.InsufficientCPU, "both", 8, 7),
	}}
	var got []string
	for _, c := range view.Explain(describe.Pod(pending()), v, nil).Candidates {
		got = append(got, fmt.Sprintf("%d %s %d %s", c.Count, c.Node, len(c.Reasons), c.Closest))
	}
	want := []string{"1 close 1 7/8 CPUs", "1 far 1 1/8 CPUs", "1 both 2 7/8 CPUs", "2 z0 1 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func TestTheOrderOfNodesDoesNotMatter(t *testing.T) {
	t.Parallel()
	codes := []why.Code{
		why.SMTAlignment, why.InsufficientExclusiveCPU, why.InsufficientCPU, why.NodeAffinity,
		why.TopologyMissing,
	}
	rapid.Check(t, func(t *rapid.T) {
		var findings []why.Finding
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			for _, code := range rapid.SliceOfNDistinct(rapid.SampledFrom(codes), 1, 3, rapid.ID[why.Code]).Draw(t,
				"codes") {
				free := rapid.Int64Range(0, 3).Draw(t, "free")
				findings = append(findings, refusal(code, fmt.Sprintf("n%d", i), 4, free))
			}
		}
		shuffled := rapid.Permutation(slices.Clone(findings)).Draw(t, "order")
		subject := describe.Pod(pending())
		one, err := json.Marshal(view.Explain(subject, view.Verdict{Served: true, Findings: findings}, nil))
		testkit.Check(t, err)
		other, err := json.Marshal(view.Explain(subject, view.Verdict{Served: true, Findings: shuffled}, nil))
		testkit.Check(t, err)
		if string(one) != string(other) {
			t.Fatalf("explanations differ:\n%s\n%s", one, other)
		}
	})
}

func TestObjectsAloneStillExplain(t *testing.T) {
	t.Parallel()
	said := func(message string) *corev1.Pod {
		p := pending()
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: message,
		}}
		return p
	}
	findings := []why.Finding{
		refusal(why.InsufficientExclusiveCPU, "n1", 8, 7),
		refusal(why.InsufficientExclusiveCPU, "n2", 8, 6),
	}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		code    why.Code
		nodes   int
		message string
	}{
		"our scheduler's message": {
			said(why.Message(findings, 2)), why.InsufficientExclusiveCPU, 2,
			"0/2 nodes are available: 2 not enough cpus available to satisfy request.",
		},
		"another scheduler's message": {
			said("0/3 nodes are available"), why.UpstreamFilter, 0,
			"0/3 nodes are available",
		},
		"a message with a broken end": {said("SMTAlignment: odd {x"), why.SMTAlignment, 0, "odd {x"},
		"no message": {
			pending(), why.NotAttempted, 0,
			"no scheduler has said anything about the pod yet",
		},
	} {
		got := view.FromObject(describe.Pod(c.pod))
		if got.RootCause == nil || got.RootCause.Code != c.code || got.RootCause.Nodes != c.nodes ||
			got.RootCause.Message != c.message {
			t.Errorf("%s: got %+v, want %s on %d nodes, %q", name, got.RootCause, c.code, c.nodes, c.message)
		}
	}
	root := view.FromObject(describe.Pod(said(why.Message(findings, 2)))).RootCause
	if got := root.Params; got["asked"] != 8.0 || got["free"] != 7.0 {
		t.Errorf("params: got %v, want asked 8, free 7", got)
	}
}

func machine(t *testing.T) *topo.Machine {
	t.Helper()
	return grid.Machine{Arch: "amd64", Sockets: 2, Cores: 4, Threads: 2}.Build(t)
}

func TestPlacements(t *testing.T) {
	t.Parallel()
	facts := ledger.Facts{
		Machine: machine(t), MinSharedCPUs: -1,
		Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{Static: true}}},
		Given: []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("7,15")}},
	}
	v := ledger.New(facts,
		ledger.Entry{UID: "lse", Namespace: "d", Name: "lse", Class: qos.LSE, Role: qos.Exclusive, CPUList: "0,4,8"},
		ledger.Entry{
			UID: "ls", Namespace: "d", Name: "ls", Class: qos.LS, Role: qos.SharedPool, NUMAIDs: []int{1},
			MilliCPU: 500,
		},
	).View()
	pod := func(uid, class string) *corev1.Pod {
		return object.Pod("d/"+uid, object.Class(class), object.On("n"))
	}
	for name, c := range map[string]struct {
		uid, class string
		want       view.Placement
	}{
		"exclusive CPUs by NUMA node and core": {
			"lse", "LSE",
			view.Placement{Node: "n", CPUSet: "0,4,8", NUMA: []view.Part{
				{Node: 0, Socket: 0, CPUSet: "0,8", Cores: []view.CorePart{{Core: 0, CPUSet: "0,8", Whole: true}}},
				{Node: 1, Socket: 1, CPUSet: "4", Cores: []view.CorePart{{Core: 4, CPUSet: "4"}}},
			}},
		},
		"part of the shared pool": {
			"ls", "LS",
			view.Placement{
				Node: "n", Pool: view.PoolShared, PoolCPUs: "5-6,12-14",
				NUMA: []view.Part{{Node: 1, Socket: 1, CPUSet: "5-6,12-14"}},
			},
		},
		"the BE pool": {
			"be", "BE",
			view.Placement{Node: "n", Pool: view.PoolBE, PoolCPUs: "1-3,5-6,9-14", NUMA: []view.Part{
				{Node: 0, Socket: 0, CPUSet: "1-3,9-11"}, {Node: 1, Socket: 1, CPUSet: "5-6,12-14"},
			}},
		},
		"pinned by the kubelet": {
			"pinned", "",
			view.Placement{
				Node: "n", Pool: view.PoolKubelet, PoolCPUs: "7,15",
				NUMA: []view.Part{{Node: 1, Socket: 1, CPUSet: "7,15"}},
			},
		},
	} {
		if diff := cmp.Diff(&c.want, describe.Placement(pod(c.uid, c.class), v)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	unknown := &view.Placement{Node: "n", NUMA: []view.Part{}}
	if diff := cmp.Diff(unknown, describe.Placement(pod("x", ""), nil)); diff != "" {
		t.Errorf("nothing known of the node (-want +got):\n%s", diff)
	}
}

// TestAPlacementNamesOvercommittedNUMANodes: those on which the pod itself holds the resource.
func TestAPlacementNamesOvercommittedNUMANodes(t *testing.T) {
	t.Parallel()
	memory := func(node int, gibi int64) []align.Amount {
		return []align.Amount{{NUMAID: node, Resource: "memory", N: gibi << 30}}
	}
	pod := func(uid string, node int, gibi int64) ledger.Entry {
		return ledger.Entry{UID: uid, Role: qos.SharedPool, NUMAIDs: []int{node}, Amounts: memory(node, gibi)}
	}
	v := ledger.New(ledger.Facts{
		Machine: grid.Machine{Sockets: 2, Cores: 4}.Build(t), Amounts: append(memory(0, 128), memory(1, 128)...),
	}, pod("a", 0, 120), pod("b", 0, 20), pod("c", 1, 128)).View()
	debt := []string{"NUMA node 0: pods hold 140Gi of memory, it has 128Gi"}
	for uid, want := range map[string][]string{"a": debt, "b": debt, "c": nil} {
		s := view.Subject{Node: "n", Head: view.Pod{UID: uid}}
		if got := view.PlacementOf(s, v).Overcommitted; !slices.Equal(got, want) {
			t.Errorf("pod %s: overcommitted %q, want %q", uid, got, want)
		}
	}
}

// TestANUMANodeNamesThePodsThatHoldItsMemory, the most first.
func TestANUMANodeNamesThePodsThatHoldItsMemory(t *testing.T) {
	t.Parallel()
	holding := func(name string, amounts ...align.Amount) ledger.Entry {
		return ledger.Entry{
			UID: name, Namespace: "ns", Name: name, Role: qos.SharedPool, NUMAIDs: []int{0, 1}, Amounts: amounts,
		}
	}
	on := func(node int, resource string, gibi int64) align.Amount {
		return align.Amount{NUMAID: node, Resource: why.Resource(resource), N: gibi << 30}
	}
	v := ledger.New(ledger.Facts{
		Machine: grid.Machine{Sockets: 2, Cores: 4}.Build(t),
		Amounts: []align.Amount{on(0, "memory", 128), on(1, "memory", 128), on(0, "hugepages-1Gi", 8)},
	}, holding("a", on(0, "memory", 2), on(0, "hugepages-1Gi", 4)), holding("c", on(0, "memory", 2)),
		holding("b", on(0, "memory", 7), on(1, "memory", 3)), holding("d")).View()
	want := [][]view.MemoryHolder{{{"ns/b", "7Gi"}, {"ns/a", "2Gi"}, {"ns/c", "2Gi"}}, {{"ns/b", "3Gi"}}}
	var got [][]view.MemoryHolder
	for _, s := range view.NodeOf("n", v, nil).Sockets {
		for i := range s.NUMA {
			got = append(got, s.NUMA[i].MemoryBy)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
