package view_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// sparse has NUMA nodes 0 and 8 with 4 CPUs and 4 GiB each.
func sparse(t *testing.T) *topo.Machine {
	t.Helper()
	return grid.Machine{Sockets: 2, Cores: 4, NodeIDs: []int{0, 8}, NodeBytes: 4 << 30}.Build(t)
}

// follow is a node whose restricted kubelet chooses; the CPUs that a pod named busy has are pinned.
func follow(t *testing.T, busy string) *ledger.View {
	t.Helper()
	m := sparse(t)
	reserved, _, err := m.ParseList("0")
	testkit.Check(t, err)
	release, ok := kubelet.ModelOf("v1.36.3")
	if !ok {
		t.Fatal("no model of 1.36")
	}
	zone := map[string]int64{"memory": 4 << 30}
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: release, CPU: kubelet.CPU{Static: true, Reserved: reserved}, Memory: kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: hint.Restricted},
	}, kubelet.Inventory{Zones: []map[string]int64{zone, zone}})
	if !reason.OK() {
		t.Fatal(reason)
	}
	facts := ledger.Facts{
		Machine: m, Mode: ledger.Follow, MinSharedCPUs: -1, Topology: hint.Restricted,
		Model: kubelet.Facts{Node: node, Config: node.Config()},
	}
	if busy == "" {
		return ledger.New(facts).View()
	}
	held := &kubelet.Pod{
		UID: "busy", Guaranteed: true,
		Containers: []kubelet.Container{{Name: "c", CPUs: len(strings.Split(busy, ","))}},
	}
	return ledger.New(facts, ledger.Entry{UID: "busy", Namespace: "ns", Name: "busy", Guest: &tenancy.Guest{
		Pod: held,
		Prediction: &tenancy.Prediction{
			Model: "1.36", Held: []kubelet.Held{{Container: "c", CPUList: busy}},
		},
	}}).View()
}

func guaranteed(cpu, memory string) *corev1.Pod {
	return object.Pod("ns/p", object.Both("cpu", cpu, "memory", memory))
}

func TestHintsShowEveryMaskAndTheMerge(t *testing.T) {
	t.Parallel()
	got := describe.Hints(guaranteed("4", "1Gi"), "n", follow(t, ""))
	if got.Mode != "Follow" || got.Kubelet == nil || len(got.Kubelet.Steps) != 1 || len(got.Notes) != 0 {
		t.Fatalf("hints = %+v, want one step of the kubelet in mode Follow", got)
	}
	k := got.Kubelet
	if k.Release != "1.36" || k.Policy != "restricted" || k.Scope != "container" || k.Status != "" {
		t.Errorf("kubelet = %+v", k)
	}
	step := k.Steps[0]
	masks := map[string]string{}
	for _, r := range step.Resources {
		var all []string
		for _, h := range r.Hints {
			text := cpuset.FormatIDs(h.NUMA)
			if h.Preferred {
				text += "*"
			}
			all = append(all, text)
		}
		masks[r.Resource] = strings.Join(all, " ")
	}
	// NUMA node 0 keeps one CPU back, so only node 8 has four of them.
	if masks["cpu"] != "8* 0,8" || masks["memory"] != "0* 8* 0,8" {
		t.Errorf("masks = %q, want cpu 8* 0,8 and memory 0* 8* 0,8", masks)
	}
	if m := step.Merged; m == nil || cpuset.FormatIDs(m.NUMA) != "8" || !m.Preferred || !m.Admitted {
		t.Errorf("merged = %+v, want NUMA 8, preferred and admitted", step.Merged)
	}
	if g := step.Given; g == nil || g.CPUs != "4-7" || cpuset.FormatIDs(g.NUMA) != "8" || len(g.Memory) != 1 ||
		g.Memory[0].Amount != 1<<30 {
		t.Errorf("given = %+v, want CPUs 4-7 of NUMA node 8 and 1 GiB", step.Given)
	}
}

func TestHintsSayWhyTheKubeletWouldRefuse(t *testing.T) {
	t.Parallel()
	got := describe.Hints(guaranteed("4", "1Gi"), "n", follow(t, "4"))
	k := got.Kubelet
	if k == nil || k.Status != kubelet.TopologyAffinityError || k.Refusal == nil || k.Container != "main" {
		t.Fatalf("kubelet = %+v, want a TopologyAffinityError of container main", k)
	}
	if s := k.Steps[0]; s.Merged.Admitted || s.Cause == "" || !strings.Contains(s.Text, "restricted") ||
		s.Given != nil {
		t.Errorf("step = %+v, want a refused merge with its cause", s)
	}
}

func TestHintsOfTenonsOwnChoice(t *testing.T) {
	t.Parallel()
	pod := guaranteed("4", "1Gi")
	pod.Labels = map[string]string{annotation.QoSClass: "LSR"}
	view := ledger.New(ledger.Facts{Machine: sparse(t), MinSharedCPUs: 0, Topology: hint.SingleNUMANode}).View()
	got := describe.Hints(pod, "n", view)
	a := got.Alignment
	if got.Kubelet != nil || a == nil || a.Policy != "SingleNUMANode" || a.Allows != 1 || a.Refusal != nil {
		t.Fatalf("hints = %+v, want Tenon's own choice under SingleNUMANode", got)
	}
	if len(a.Rows) == 0 || a.Rows[0].Resource != "cpu" || a.Rows[0].Need != 4 || len(a.Rows[0].Have) != 2 ||
		a.Rows[0].Have[1] != 4 {
		t.Errorf("rows = %+v, want 4 CPUs asked and 4 on each node", a.Rows)
	}
	if len(a.Chosen) != 1 {
		t.Errorf("chosen = %v, want one NUMA node", a.Chosen)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "no hints") {
		t.Errorf("notes = %q, want one about the kubelet", got.Notes)
	}
}

func TestHintsNoteThatASharedPodIsNotConfined(t *testing.T) {
	t.Parallel()
	pod := guaranteed("1500m", "1Gi")
	pod.Annotations = map[string]string{annotation.NUMATopologySpecKey: `{"numaTopologyPolicy":"SingleNUMANode"}`}
	got := describe.Hints(pod, "n", follow(t, ""))
	if got.Alignment != nil || !slices.ContainsFunc(got.Notes,
		func(n string) bool { return strings.Contains(n, "do not confine pods of the CPU shared pool") }) {
		t.Errorf("hints = %+v, want no alignment and a note that the pod is not confined", got)
	}
}

// TestHintsOfAGuessedKubeletSayThatTheyAreGuesses: what the model does not know of a kubelet was not shown anywhere.
func TestHintsOfAGuessedKubeletSayThatTheyAreGuesses(t *testing.T) {
	t.Parallel()
	assumed := []string{"kubelet 1.38 is newer than the newest model, 1.37"}
	facts := *follow(t, "").Facts()
	facts.Model.Assumed = assumed
	got := describe.Hints(guaranteed("1", "1Gi"), "n", ledger.New(facts).View())
	if got.Kubelet == nil || !slices.Equal(got.Kubelet.Assumed, assumed) {
		t.Errorf("hints = %+v, want the assumption", got.Kubelet)
	}
	facts.Model = kubelet.Facts{Assumed: []string{"kubelet 1.32 has no model"}}
	got = describe.Hints(guaranteed("1", "1Gi"), "n", ledger.New(facts).View())
	if len(got.Notes) == 0 || !strings.Contains(got.Notes[0], "not predicted: kubelet 1.32 has no model") {
		t.Errorf("notes = %q, want the kubelet's release", got.Notes)
	}
}

func TestHintsOfNothing(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*ledger.View{"no view": nil, "no topology": ledger.New(ledger.Facts{}).View()} {
		if got := describe.Hints(guaranteed("1", "1Gi"), "n", v); len(got.Notes) == 0 ||
			got.Kubelet != nil || got.Alignment != nil {
			t.Errorf("%s: %+v, want a note alone", name, got)
		}
	}
	bad := guaranteed("1", "1Gi")
	bad.Labels = map[string]string{annotation.QoSClass: "GOLD"}
	if got := describe.Hints(bad, "n", follow(t, "")); len(got.Notes) != 1 ||
		!strings.Contains(got.Notes[0], "GOLD") {
		t.Errorf("a pod that cannot be read: %+v, want a note that names the value", got)
	}
}
