package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// isolating is a machine of which CPUs 4-7 and their siblings are isolated.
func isolating(name string) string {
	return strings.Replace(machine(name), "annotations: {", `annotations: {node.tenon.sh/isolated-cpus: '{"isolated":`+
		`"4-7,20-23","noHzFull":"4-7,20-23"}', `, 1)
}

// TestIsolatedCPUsAreGivenToPodsThatAsk has a node of which CPUs 4-7 and their siblings are isolated.
func TestIsolatedCPUsAreGivenToPodsThatAsk(t *testing.T) {
	t.Parallel()
	wish := func(value string) string { return ", annotations: {tenon.sh/isolated-cpus: " + value + "}" }
	r, warnings := simulate(t, isolating("n0")+
		exclusive("a-absent", 4, "LSE", "", "")+exclusive("b-prefer", 4, "LSR", wish("prefer"), "")+
		exclusive("c-require", 2, "LSE", wish("require"), "")+exclusive("d-require", 4, "LSE", wish("require"), "")+
		exclusive("e-prefer", 4, "LSE", wish("prefer"), "")+exclusive("f-wrong", 1, "LSE", wish("always"), ""), "-")
	for name, want := range map[string]struct {
		cpus, state string
		code        why.Code
	}{
		"a-absent": {"8-9,24-25", Scheduled, why.None}, "b-prefer": {"4-5,20-21", Scheduled, why.None},
		"c-require": {"6,22", Scheduled, why.None}, "d-require": {"", Unschedulable, why.InsufficientIsolatedCPU},
		"e-prefer": {"10-11,26-27", Scheduled, why.None}, "f-wrong": {"", Refused, why.BadAnnotation},
	} {
		got := stateOf(r, name)
		if got.CPUSet != want.cpus || got.State != want.state ||
			want.code != why.None && (len(got.Reasons) == 0 || got.Reasons[0].Code != want.code) {
			t.Errorf("%s: %s with CPUs %q, %+v; want %s with %q, %v", name, got.State, got.CPUSet, got.Reasons,
				want.state, want.cpus, want.code)
		}
	}
	if !strings.Contains(warnings, "the kernel moves no thread between isolated CPUs") {
		t.Errorf("the warnings are %q", warnings)
	}
	if pools := r.Nodes[0].BESharedPool; len(pools) != 2 || pools[0].CPUSet != "0-3,16-19" {
		t.Errorf("the BE pools are %+v", pools)
	}
}

// TestIsolatedCPUsBesideOtherFeatures has 8 isolated CPUs on each node.
func TestIsolatedCPUsBesideOtherFeatures(t *testing.T) {
	t.Parallel()
	const require = "tenon.sh/isolated-cpus: require"
	asks := func(name string, cpus int, more string) string {
		return exclusive(name, cpus, "LSE", ", annotations: {"+require+more+"}", "")
	}
	gang := `, gang.scheduling.koordinator.sh/name: g, gang.scheduling.koordinator.sh/min-available: "3"`
	members := asks("a", 4, gang) + asks("b", 4, gang) + asks("c", 4, gang)
	amplified := strings.NewReplacer(`cpu: "32"`, `cpu: "96"`, "metadata: {name: n0, labels",
		`metadata: {name: n0, annotations: {node.koordinator.sh/raw-allocatable: '{"cpu":"32"}'}, labels`).
		Replace(isolating("n0"))
	// resized has 4 isolated CPUs, also where it asks for 2 meanwhile.
	resized := func(cpus int) string {
		status := `, scheduling.koordinator.sh/resource-status: '{"cpuset":"4-5,20-21"}'}`
		return exclusive("resized", cpus, "LSE", ", annotations: {"+require+status, "\n  nodeName: n0")
	}
	for name, c := range map[string]struct {
		in   string
		want map[string]string // CPUs by pod; "" of one that does not start
	}{
		"a gang that does not fit on the isolated CPUs starts no member": {
			isolating("n0") + machine("n1") + members, map[string]string{"a": "", "b": "", "c": ""},
		},
		"a gang that fits": {
			isolating("n0") + isolating("n1") + members,
			map[string]string{"a": "4-5,20-21", "b": "4-5,20-21", "c": "6-7,22-23"},
		},
		"an amplified Node has no more isolated CPUs": {
			amplified + asks("a", 8, "") + asks("b", 1, ""), map[string]string{"a": "4-7,20-23", "b": ""},
		},
		"a pod that was resized down keeps its isolated CPUs": {
			isolating("n0") + resized(2) + asks("a", 6, "") + asks("b", 4, ""),
			map[string]string{"a": "", "b": "6-7,22-23"},
		},
		"a pod that was resized up takes none from others": {
			isolating("n0") + resized(6) + asks("a", 4, ""), map[string]string{"a": "6-7,22-23"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, c.in, "-")
			for pod, cpus := range c.want {
				got := stateOf(r, pod)
				if got.CPUSet != cpus || (got.State == Scheduled) != (cpus != "") {
					t.Errorf("%s is %s with %q, want %q: %+v", pod, got.State, got.CPUSet, cpus, got.Reasons)
				}
			}
		})
	}
}

// TestAReplayKnowsIsolatedCPUs: of two nodes only n1 has isolated CPUs, which the recorded pod requires.
func TestAReplayKnowsIsolatedCPUs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	topology := func(name, isolated string) *v1alpha2.NodeResourceTopology {
		m := grid.Machine{Sockets: 1, Nodes: 1, Cores: 8, Threads: 1}.Build(t)
		return testobject.Topology(name, m, map[string]string{annotation.IsolatedCPUsKey: isolated})
	}
	for recorded, differs := range map[string]bool{"n0": true, "n1": false} {
		records := []*journal.Record{began(t)}
		for name, isolated := range map[string]string{"n0": "{}", "n1": `{"isolated":"4-7"}`} {
			records = append(records, put(t, testobject.Node(name, nil, "cpu", "8", "memory", "8Gi", "pods", "110")),
				put(t, topology(name, isolated)))
		}
		p := podNamed("a", testobject.Class("LSE"), testobject.Both("cpu", "2", "memory", "1Gi"))
		p.Annotations[annotation.IsolationKey] = annotation.IsolationRequire
		decision := decide("default/a", "a", recorded)
		decision.Decision.Patch = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"4-5"}`}
		records = append(records, put(t, p), decision)
		got, err := Replay(t.Context(), seal(t, at, records...), time.Time{})
		testkit.Check(t, err)
		if (got.Difference != nil) != differs {
			t.Errorf("recorded on %s: the difference is %+v", recorded, got.Difference)
		}
	}
}
