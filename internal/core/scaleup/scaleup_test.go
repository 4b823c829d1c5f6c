package scaleup_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/scaleup"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// machine is a node of two NUMA nodes, each with 4 CPUs.
func machine(tb testing.TB) ledger.Facts {
	tb.Helper()
	return ledger.Facts{Machine: grid.Machine{Nodes: 2, Cores: 4}.Build(tb)}
}

// held is a pod with exclusive CPUs.
func held(cpus string) ledger.Entry {
	return ledger.Entry{UID: "held-" + cpus, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: cpus}
}

// pod asks for CPUs of one NUMA node, on nodes that admit it.
func pod(uid string, cpus int, nodes ...string) scaleup.Pod {
	return scaleup.Pod{
		Request: &place.Request{
			UID: uid, Namespace: "ns", Name: uid, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: cpus,
			RequestMilli: int64(cpus) * 1000, Topology: hint.SingleNUMANode,
		},
		Amounts: amount.List{"cpu": int64(cpus), "pods": 1}, Nodes: nodes,
	}
}

// free is a node with CPUs that no pod requests.
func free(cpus int64) scaleup.Node {
	return scaleup.Node{Free: amount.List{"cpu": cpus, "pods": 10}}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	limits := scaleup.Limits{Helpers: 20, Excluded: 200}
	fragmented := ledger.New(machine(t), held("0-1"), held("4-5")).View() // 2 CPUs are free on each NUMA node
	empty := ledger.New(machine(t)).View()
	given := machine(t)
	var cpus cpuset.Set
	for _, cpu := range []int{0, 1, 4, 5} {
		cpus.Add(cpu)
	}
	given.Given = []tenancy.Grant{{UID: "static", CPUs: cpus}}
	small := ledger.New(ledger.Facts{Machine: grid.Machine{Nodes: 4, Cores: 2}.Build(t)}).View()
	type nodes map[string]scaleup.Node
	type accounts map[string]*ledger.View
	for name, c := range map[string]struct {
		pods     []scaleup.Pod
		nodes    nodes
		accounts accounts
		limits   scaleup.Limits
		want     []scaleup.Helper
	}{
		"the CPUs are fragmented": {
			[]scaleup.Pod{pod("p", 4, "n")},
			nodes{"n": free(4)},
			accounts{"n": fragmented},
			limits,
			[]scaleup.Helper{{UID: "p", Excluded: []string{"n"}}},
		},
		"the pod starts": {
			[]scaleup.Pod{pod("p", 2, "n")}, nodes{"n": free(4)}, accounts{"n": fragmented}, limits, nil,
		},
		"by amounts it does not fit either": {
			[]scaleup.Pod{pod("p", 4, "n")}, nodes{"n": free(3)}, accounts{"n": fragmented}, limits, nil,
		},
		"a resource that the node does not have": {
			[]scaleup.Pod{{
				Request: pod("p", 4).Request, Amounts: amount.List{"example.com/a": 1}, Nodes: []string{"n"},
			}},
			nodes{"n": free(4)},
			accounts{"n": fragmented},
			limits, nil,
		},
		"no node takes it, even without other pods": {
			[]scaleup.Pod{pod("p", 4, "n")}, nodes{"n": free(8)}, accounts{"n": small}, limits, nil,
		},
		"another node would take it without other pods": {
			[]scaleup.Pod{pod("p", 4, "m", "n")},
			nodes{"m": free(8), "n": free(4)},
			accounts{"m": small, "n": fragmented},
			limits,
			[]scaleup.Helper{{UID: "p", Excluded: []string{"m", "n"}}},
		},
		"another node takes it": {
			[]scaleup.Pod{pod("p", 4, "m", "n")},
			nodes{"m": free(4), "n": free(8)},
			accounts{"m": fragmented, "n": empty},
			limits, nil,
		},
		"labels and taints exclude the node that would take it": {
			[]scaleup.Pod{pod("p", 4, "m")},
			nodes{"m": free(4), "n": free(8)},
			accounts{"m": fragmented, "n": empty},
			limits,
			[]scaleup.Helper{{UID: "p", Excluded: []string{"m"}}},
		},
		"labels and taints exclude all nodes": {
			[]scaleup.Pod{pod("p", 4)}, nodes{"n": free(8)}, accounts{"n": empty}, limits, nil,
		},
		"a Reservation holds the capacity": {
			[]scaleup.Pod{pod("p", 4, "n")},
			nodes{"n": {Free: amount.List{"cpu": 8, "pods": 10}, Reserved: amount.List{"cpu": 6}}},
			accounts{"n": empty},
			limits,
			[]scaleup.Helper{{UID: "p", Excluded: []string{"n"}}},
		},
		"a pod of the kubelet holds the CPUs": {
			[]scaleup.Pod{pod("p", 4, "n")},
			nodes{"n": free(4)},
			accounts{"n": ledger.New(given).View()},
			limits,
			[]scaleup.Helper{{UID: "p", Excluded: []string{"n"}}},
		},
		"one member of a gang lacks capacity": {
			[]scaleup.Pod{pod("a", 4, "n"), pod("b", 4, "n")},
			nodes{"n": free(8)},
			accounts{"n": ledger.New(machine(t), held("0")).View()},
			limits,
			[]scaleup.Helper{{UID: "b", Excluded: []string{"n"}}},
		},
		"the autoscaler sees that one member lacks capacity, and not that another one does": {
			[]scaleup.Pod{pod("a", 4, "n"), pod("b", 4, "n"), pod("c", 4, "n")},
			nodes{"n": free(8)},
			accounts{"n": ledger.New(machine(t), held("0")).View()},
			limits,
			[]scaleup.Helper{{UID: "b", Excluded: []string{"n"}}},
		},
		"the pods before it take what is free, as the autoscaler sees too": {
			[]scaleup.Pod{pod("a", 4, "n"), pod("b", 4, "n"), pod("c", 4, "n")},
			nodes{"n": free(8)},
			accounts{"n": empty},
			limits, nil,
		},
		"it fits more nodes by amounts than one helper may exclude": {
			[]scaleup.Pod{pod("p", 4, "m", "n")},
			nodes{"m": free(4), "n": free(4)},
			accounts{"m": fragmented, "n": fragmented},
			scaleup.Limits{Helpers: 20, Excluded: 1},
			nil,
		},
		"a pod without a helper takes its amounts before the autoscaler": {
			[]scaleup.Pod{pod("p", 6, "n"), pod("q", 4, "n")},
			nodes{"n": free(6)},
			accounts{"n": ledger.New(machine(t), held("0"), held("4")).View()},
			limits, nil,
		},
		"no more helpers than allowed": {
			[]scaleup.Pod{pod("p", 4, "m"), pod("q", 4, "n")},
			nodes{"m": free(4), "n": free(4)},
			accounts{"m": fragmented, "n": fragmented},
			scaleup.Limits{Helpers: 1, Excluded: 200},
			[]scaleup.Helper{{UID: "p", Excluded: []string{"m"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := map[string]bool{}
			got := scaleup.Plan(c.pods, c.nodes, func(node string) *ledger.View {
				if read[node] {
					t.Errorf("the account of %s is made twice", node)
				}
				read[node] = true
				return c.accounts[node]
			}, c.limits)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if c.limits.Excluded == 1 && len(read) > 0 {
				t.Errorf("accounts were made of more nodes than one helper may exclude: %v", read)
			}
		})
	}
}

// TestAsManyHelpersAsEqualPodsLackCapacityUnseen: for equal pods, the helpers are as many as the pods that lack
// capacity, less those of which the autoscaler sees it. What there is capacity for is counted node by node.
func TestAsManyHelpersAsEqualPodsLackCapacityUnseen(t *testing.T) {
	t.Parallel()
	facts := machine(t)
	rapid.Check(t, func(t *rapid.T) {
		size, n := rapid.IntRange(1, 4).Draw(t, "CPUs"), rapid.IntRange(1, 12).Draw(t, "pods")
		nodes, views, names := map[string]scaleup.Node{}, map[string]*ledger.View{}, []string(nil)
		seen, starts := 0, 0
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			var entries []ledger.Entry
			left, numa := int64(8), [2]int{4, 4}
			for cpu := range 8 {
				if rapid.Bool().Draw(t, "held") {
					entries = append(entries, held(fmt.Sprint(cpu)))
					left, numa[cpu/4] = left-1, numa[cpu/4]-1
				}
			}
			reserved := rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, "reserved")
			name := fmt.Sprint("n", i)
			names, views[name] = append(names, name), ledger.New(facts, entries...).View()
			nodes[name] = scaleup.Node{
				Free: amount.List{"cpu": left, "pods": 20}, Reserved: amount.List{"cpu": reserved},
			}
			seen += int(left) / size
			starts += min(numa[0]/size+numa[1]/size, int(max(left-reserved, 0))/size)
		}
		var pods []scaleup.Pod
		for i := range n {
			pods = append(pods, pod(fmt.Sprint("p", i), size, names...))
		}
		limits := scaleup.Limits{Helpers: rapid.IntRange(0, 12).Draw(t, "limit"), Excluded: 10}
		got := scaleup.Plan(pods, nodes, func(node string) *ledger.View { return views[node] }, limits)
		want := min(max(0, n-starts)-max(0, n-seen), limits.Helpers)
		if len(got) != want {
			t.Fatalf("%d helpers, want %d: %d start, %d by amounts", len(got), want, starts, seen)
		}
		for _, h := range got {
			for _, name := range names {
				if fits := nodes[name].Free["cpu"] >= int64(size); fits != slices.Contains(h.Excluded, name) {
					t.Fatalf("%s excludes %v; it fits %s: %t", h.UID, h.Excluded, name, fits)
				}
			}
		}
	})
}
