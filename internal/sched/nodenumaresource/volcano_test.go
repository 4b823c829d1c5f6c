package nodenumaresource

import (
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

func volcano(policy string) podOption {
	return func(p *corev1.Pod) { p.Annotations[annotation.VolcanoTopologyPolicy] = policy }
}

// TestVolcanosScore is the formula of seed 004 with its max over the candidate nodes, through the framework.
func TestVolcanosScore(t *testing.T) {
	t.Parallel()
	const on = `{"volcanoScore":true}`
	// An LSR pod of 16 CPUs spans as many NUMA nodes as the machine's name says.
	machines := map[string][2]int{"one": {1, 12}, "two": {2, 5}, "other two": {2, 6}, "three": {3, 3}, "four": {6, 2}}
	for name, c := range map[string]struct {
		args string
		pod  *corev1.Pod
		want map[string]int64
	}{
		"counts 1, 2 and 4": {
			on, lsr("p", 16, volcano("best-effort")),
			map[string]int64{"one": 75, "two": 50, "four": 0},
		},
		"counts 1, 2 and 3": {
			on, lsr("p", 16, volcano("best-effort")),
			map[string]int64{"one": 67, "two": 34, "three": 0},
		},
		"equal counts": {
			on, lsr("p", 16, volcano("best-effort")),
			map[string]int64{"two": 0, "other two": 0},
		},
		"an unknown node": {
			on, newPod("p", asks("2", "2"), volcano("best-effort")),
			map[string]int64{"one": 50, "two": 0, "unknown": 0},
		},
		"no node of which is known": {
			on, newPod("p", asks("2", "2"), volcano("best-effort")),
			map[string]int64{"unknown": 0, "unknown too": 0},
		},
		"without the option": {
			"", lsr("p", 16, volcano("best-effort")),
			map[string]int64{"one": 87, "four": 0},
		},
		"a pod without the annotation": {on, lsr("p", 16), map[string]int64{"one": 87, "four": 0}},
		"a pod whose policy is none":   {on, lsr("p", 16, volcano("none")), map[string]int64{"one": 87, "four": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.args)
			var nodes []fwk.NodeInfo
			for n := range maps.Keys(c.want) {
				if shape, known := machines[n]; known {
					nodes = append(nodes, f.addNode(n, machine(t, "amd64", shape[0], shape[1], 2)))
				} else {
					nodes = append(nodes, f.addNode(n, nil))
				}
			}
			cs, skipped := f.preFilter(t, c.pod)
			if skipped {
				t.Fatal("the pod does not concern the plugin")
			}
			for _, n := range nodes {
				if s := f.Filter(t.Context(), cs, c.pod, n); !s.IsSuccess() {
					t.Fatalf("node %s is refused: %s", n.Node().Name, s.Message())
				}
			}
			if s := f.framework.RunPreScorePlugins(t.Context(), cs, c.pod, nodes); !s.IsSuccess() {
				t.Fatal(s.Message())
			}
			scores, s := f.framework.RunScorePlugins(t.Context(), cs, c.pod, nodes)
			if !s.IsSuccess() {
				t.Fatal(s.Message())
			}
			got := map[string]int64{}
			for _, n := range scores {
				got[n.Name] = n.TotalScore
			}
			if c.args == "" || f.ranksNormally(t, c.pod) {
				if got["one"] <= got["four"] || got["one"] == 75 {
					t.Errorf("scores %v: want those that other pods get", got)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

func (f *fixture) ranksNormally(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	return !f.ranksAsVolcano(f.request(t, pod))
}

func TestPodsThatAreRankedAsVolcanoDoesAreSigned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, `{"volcanoScore":true}`)
	sign := func(pod *corev1.Pod) string {
		fragments, s := f.SignPod(t.Context(), pod)
		if !s.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("got %v, %s; want a signature", fragments, s.Message())
		}
		return fmt.Sprint(fragments)
	}
	if sign(lsr("p", 2, volcano("restricted"))) == sign(lsr("q", 2)) {
		t.Error("a pod that is ranked otherwise has the same signature")
	}
}

// importedNode is a node of which Volcano's exporter alone speaks: two NUMA nodes of 8 CPUs.
func (f *fixture) importedNode(name, policy, free string) (fwk.NodeInfo, *nodeinfo.Numatopology) {
	n := f.addNode(name, nil)
	o := &nodeinfo.Numatopology{Spec: nodeinfo.NumatopoSpec{
		Policies:    map[string]string{nodeinfo.CPUManagerPolicy: "static", nodeinfo.TopologyManagerPolicy: policy},
		ResReserved: map[string]string{"cpu": "1"},
		NumaResMap:  map[string]nodeinfo.ResourceInfo{"cpu": {Allocatable: free, Capacity: 16}},
		CPUDetail:   map[string]nodeinfo.CPUInfo{},
	}}
	o.Name = name
	for c := range 16 {
		o.Spec.CPUDetail[strconv.Itoa(c)] = nodeinfo.CPUInfo{
			NUMANodeID: int64(c / 8), SocketID: int64(c / 8),
			CoreID: int64(c % 8),
		}
	}
	f.store.PutNumatopology(o)
	return n, o
}

func TestPodsOnNodesThatVolcanoDescribes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n, _ := f.importedNode("n", "restricted", "0-15")
	first := newPod("a", asks("6", "6"), volcano("restricted"))
	cs, _ := f.preFilter(t, first)
	for _, s := range []*fwk.Status{f.Filter(t.Context(), cs, first, n), f.Reserve(t.Context(), cs, first, "n")} {
		if !s.IsSuccess() {
			t.Fatalf("schedule the first pod: %s", s.Message())
		}
	}
	if record := placement.Read(cs).Record(); record[annotation.PredictedPlacementKey] == "" ||
		record[annotation.ResourceStatusKey] != "" {
		t.Errorf("the Binding carries %v, want a prediction and no CPUs of ours", record)
	}
	bound := f.store.View("n").Tenancy().Assignment("a")
	if bound == nil || len(bound.Placement) != 1 ||
		f.store.View("n").Machine().FormatList(bound.Placement[0].CPUs) != "8-13" &&
			f.store.View("n").Machine().FormatList(bound.Placement[0].CPUs) != "1-6" {
		t.Errorf("predicted %+v, want six CPUs of one NUMA node", bound.Placement)
	}
	none, _ := f.importedNode("none", "none", "0-15")
	pod := newPod("b", asks("2", "2"), volcano("restricted"))
	cs, _ = f.preFilter(t, pod)
	if got, want := verdict(f.Filter(t.Context(), cs, pod, none)),
		"UnschedulableAndUnresolvable: task topology policy[restricted] is different with node[none]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	strict := newFixture(t, `{"volcanoStrictPolicyMatch":true}`)
	n, _ = strict.importedNode("n", "best-effort", "0-15")
	cs, _ = strict.preFilter(t, pod)
	const want = "UnschedulableAndUnresolvable: task topology policy[restricted] is different with node[best-effort]"
	if got := verdict(strict.Filter(t.Context(), cs, pod, n)); got != want {
		t.Errorf("with the strict match: got %q, want %q", got, want)
	}
}

func TestNumatopologyWakesPodsOfItsNode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	_, full := f.importedNode("full", "restricted", "0-1")
	_, roomy := f.importedNode("roomy", "restricted", "0-15")
	pod := newPod("p", asks("4", "4"), volcano("restricted"))
	stamped := roomy.DeepCopy()
	stamped.Annotations = map[string]string{nodeinfo.TimestampKey: "2"}
	for name, c := range map[string]struct {
		old, obj any
		want     fwk.QueueingHint
	}{
		"a node with room":          {nil, roomy, fwk.Queue},
		"a node that is still full": {nil, full, fwk.QueueSkip},
		"CPUs become free":          {full, roomy, fwk.Queue},
		"a time stamp":              {roomy, stamped, fwk.QueueSkip},
		"an object of another type": {nil, &corev1.Pod{}, fwk.Queue},
	} {
		if got, err := f.after(t, numatopologies)(klog.Background(), pod, c.old, c.obj); err != nil || got != c.want {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, c.want)
		}
	}
}
