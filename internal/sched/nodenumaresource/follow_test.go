package nodenumaresource

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
)

// predicted makes a node whose kubelet of 1.36 has these settings and whose mode is the given one.
func predicted(mode, settings string) nodeOption {
	return func(n *corev1.Node, t *v1alpha2.NodeResourceTopology) {
		n.Status.NodeInfo.KubeletVersion = "v1.36.3"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		t.Annotations[annotation.KubeletKey] = settings
		t.Annotations[annotation.TopologyMode] = mode
		t.Annotations[annotation.ReportKey] = `{"gen":1}`
	}
}

const restricted = `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"restricted"}}`

// report publishes what the node says that pods have.
func (f *fixture) report(t *testing.T, node string, gen int64, pods string) {
	t.Helper()
	n, _ := f.store.Node(node)
	nrt := n.Topology.DeepCopy()
	nrt.Annotations[annotation.ReportKey] = fmt.Sprintf(`{"gen":%d}`, gen)
	nrt.Annotations[annotation.NUMAStateKey] = `{"pods":{` + pods + `}}`
	f.store.PutTopology(nrt)
}

// guaranteed is a pod without class of n CPUs.
func guaranteed(name string, n int, options ...podOption) *corev1.Pod {
	cpus := fmt.Sprint(n)
	return newPod(name, append([]podOption{asks(cpus, cpus)}, options...)...)
}

// bind runs a whole cycle and returns what the Binding carries.
func (f *fixture) bind(t *testing.T, pod *corev1.Pod, n fwk.NodeInfo) map[string]string {
	t.Helper()
	testkit.Check(t, f.client.Tracker().Add(pod))
	cs, skipped := f.preFilter(t, pod)
	if skipped {
		t.Fatalf("pod %s does not concern the plugin", pod.Name)
	}
	for _, s := range []*fwk.Status{f.Filter(t.Context(), cs, pod, n), f.Reserve(t.Context(), cs, pod, n.Node().Name)} {
		if !s.IsSuccess() {
			t.Fatalf("schedule %s: %s", pod.Name, s.Message())
		}
	}
	record := placement.Read(cs).Record()
	if s := f.Bind(t.Context(), cs, pod, n.Node().Name); !s.IsSuccess() && !s.IsSkip() {
		t.Fatalf("bind %s: %s", pod.Name, s.Message())
	}
	onNode := pod.DeepCopy()
	onNode.Spec.NodeName = n.Node().Name
	for k, v := range record {
		onNode.Annotations[k] = v
	}
	f.store.PutPod(onNode)
	return record
}

func TestInFollowModeTheBindingCarriesThePrediction(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		settings string
		options  []nodeOption
		pod      *corev1.Pod
		want     string // the prediction, or the refusal
	}{
		"a Guaranteed pod": {
			settings: restricted, pod: guaranteed("p", 2),
			want: `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"1,9"}}}`,
		},
		"a pod of class LSR gets its CPUs of the kubelet": {
			settings: restricted, pod: lsr("p", 4),
			want: `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"1-2,9-10"}}}`,
		},
		"a required policy that the prediction meets": {
			settings: restricted, pod: lsr("p", 2, spec(`{"requiredCPUBindPolicy":"FullPCPUs"}`)),
			want: `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"1,9"}}}`,
		},
		"a required policy that it does not meet": {
			settings: restricted, pod: lsr("p", 2, spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)),
			want: "UnschedulableAndUnresolvable: node(s) cpu bind policy conflicts with pod's required cpu bind policy",
		},
		"more than one NUMA node has where restricted needs one": {
			settings: `{"cpu":{"policy":"static","reserved":"0,4"},"topology":{"policy":"restricted"}}`,
			pod:      guaranteed("p", 8),
			want: "Unschedulable: node(s) kubelet would reject: TopologyAffinityError (free only on more NUMA nodes " +
				"than capacity needs)",
		},
		"a node label that is tighter than the kubelet's policy": {
			settings: `{"cpu":{"policy":"static","reserved":"0"}}`, pod: guaranteed("p", 8),
			options: []nodeOption{labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")},
			want:    `{"model":"1.36","gen":1,"containers":{"c":{"cpus":"4-7,12-15"}}}`,
		},
		"a label that the prediction does not meet": {
			settings: `{"cpu":{"policy":"static","reserved":"0"}}`, pod: guaranteed("p", 9),
			options: []nodeOption{labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")},
			want:    "Unschedulable: node(s) NUMA Topology policy not match",
		},
		"threads that do not fill cores": {
			settings: `{"cpu":{"policy":"static","options":{"full-pcpus-only":"true"},"reserved":"0,8"}}`,
			pod:      guaranteed("p", 3),
			want:     "Unschedulable: node(s) kubelet would reject: SMTAlignmentError",
		},
		"a kubelet that would crash": {
			settings: `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"restricted",` +
				`"options":{"prefer-closest-numa-nodes":"true"}}}`,
			options: []nodeOption{func(_ *corev1.Node, nrt *v1alpha2.NodeResourceTopology) {
				nrt.Annotations[annotation.CPUTopology] = strings.ReplaceAll(nrt.Annotations[annotation.CPUTopology],
					`"node":1`, `"node":8`)
			}},
			pod:  guaranteed("p", 2),
			want: "UnschedulableAndUnresolvable: node(s) kubelet would crash on the machine's NUMA node ids",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "")
			// NUMA 0 is CPUs 0-3,8-11, NUMA 1 is 4-7,12-15.
			n := f.addNode("n", machine(t, "amd64", 2, 4, 2),
				append([]nodeOption{predicted("Follow", tt.settings)}, tt.options...)...)
			cs, skipped := f.preFilter(t, tt.pod)
			if skipped {
				t.Fatal("the pod is skipped, but a kubelet pins it")
			}
			if s := f.Filter(t.Context(), cs, tt.pod, n); !s.IsSuccess() {
				if verdict(s) != tt.want {
					t.Errorf("Filter: got %q, want %q", verdict(s), tt.want)
				}
				return
			}
			record := f.bind(t, tt.pod, n)
			if record[annotation.PredictedPlacementKey] != tt.want {
				t.Errorf("predicted %s\nwant      %s", record[annotation.PredictedPlacementKey], tt.want)
			}
			if status, ours := record[annotation.ResourceStatusKey]; ours {
				t.Errorf("resource-status %s: the kubelet chooses here", status)
			}
		})
	}
}

func TestInOwnModeTheKubeletGuards(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	// The label allows Tenon's own CPUs on any NUMA nodes; the kubelet, which pins such pods too, remains strict.
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Own", restricted),
		labelled(annotation.NodeNUMATopologyPolicy, "None"))
	for _, name := range []string{"a", "b"} { // 5 of 7 CPUs on one NUMA node, 5 of 8 on the other
		if record := f.bind(t, lsr(name, 5), n); record[annotation.ResourceStatusKey] == "" ||
			record[annotation.PredictedPlacementKey] != "" {
			t.Errorf("the Binding carries %v, want CPUs of ours and no prediction", record)
		}
	}
	pod := lsr("c", 4)
	cs, _ := f.preFilter(t, pod)
	const want = "Unschedulable: node(s) kubelet would reject: TopologyAffinityError"
	if got := verdict(f.Filter(t.Context(), cs, pod, n)); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPreemptionReleasesWhatTheKubeletGaveVictims(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 1, 4, 2), predicted("Follow", restricted))
	victim := guaranteed("v", 5)
	record := f.bind(t, victim, n)
	f.report(t, "n", 2, `"v":{"c":{"cpus":"1-3,9-10"}}`) // what the kubelet has done counts too
	victim.Spec.NodeName = "n"
	for k, v := range record {
		victim.Annotations[k] = v
	}
	pod := guaranteed("p", 6)
	cs, _ := f.preFilter(t, pod)
	if s := f.Filter(t.Context(), cs, pod, n); s.IsSuccess() {
		t.Fatal("the node is full")
	}
	if s := f.RemovePod(t.Context(), cs, pod, podInfo(t, victim), n); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if s := f.Filter(t.Context(), cs, pod, n); !s.IsSuccess() {
		t.Errorf("without the victim: %s", verdict(s))
	}
	if s := f.AddPod(t.Context(), cs, pod, podInfo(t, victim), n); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if s := f.Filter(t.Context(), cs, pod, n); s.IsSuccess() {
		t.Error("the victim that is spared has its CPUs again")
	}
}

// A pod that waits for its victims keeps others off what is free in the meantime.
func TestANominatedPodKeepsTheKubeletsCPUs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 1, 4, 2), predicted("Follow", restricted))
	f.bind(t, guaranteed("victim", 4), n)
	nominated, small := guaranteed("nominated", 6), guaranteed("small", 1)
	cs, _ := f.preFilter(t, small)
	if s := f.Filter(t.Context(), cs, small, n); !s.IsSuccess() {
		t.Fatalf("3 CPUs are free: %s", verdict(s))
	}
	if s := f.AddPod(t.Context(), cs, small, podInfo(t, nominated), n); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if f.Filter(t.Context(), cs, small, n).IsSuccess() {
		t.Error("a pod takes the CPUs that a nominated one waits for")
	}
}

// With few unconfirmed pods every order of admission must do; with many the node ranks last.
func TestOrderRisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	m := f.addNode("m", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	score := func(pod *corev1.Pod, n fwk.NodeInfo) int64 {
		cs, _ := f.preFilter(t, pod)
		if s := f.PreScore(t.Context(), cs, pod, nil); !s.IsSuccess() {
			t.Fatal(s.Message())
		}
		got, _ := f.Score(t.Context(), cs, pod, n)
		return got
	}
	for i := range 3 {
		f.bind(t, guaranteed(fmt.Sprintf("u%d", i), 1), n)
	}
	if got := score(guaranteed("p", 1), n); got == 0 {
		t.Error("three unconfirmed pods can be tried in every order, the node must not rank last")
	}
	f.bind(t, guaranteed("u3", 1), n)
	if got, other := score(guaranteed("p", 1), n), score(guaranteed("p", 1), m); got != 0 || other == 0 {
		t.Errorf("with four unconfirmed pods the node scores %d, without %d; want 0 and more", got, other)
	}
	// 8 CPUs fit NUMA 1 alone: whoever comes first may take it from the other.
	g := newFixture(t, "")
	n = g.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	g.bind(t, guaranteed("big", 8-1), n) // NUMA 0 in the predicted order
	pod := guaranteed("p", 8)
	cs, _ := g.preFilter(t, pod)
	if s := g.Filter(t.Context(), cs, pod, n); !s.IsSuccess() {
		t.Errorf("7 CPUs and 8 CPUs fit in both orders: %s", verdict(s))
	}
	g.bind(t, guaranteed("small", 1), n) // on NUMA 1, when it comes after big; on NUMA 0, when it comes first
	pod = guaranteed("q", 7)
	cs, _ = g.preFilter(t, pod)
	first := g.Filter(t.Context(), cs, pod, n)
	request, _, _ := convert.Request(pod, convert.DefaultArgs())
	_, _, refusal := g.store.View("n").Kubelet().Admit(request.Kubelet)
	if first.IsSuccess() && refusal != nil {
		t.Errorf("Filter grants what the kubelet refuses: %v", refusal)
	}
}

func TestReportsAreHeldAgainstPredictions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.store.MarkSynced()
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	for _, name := range []string{"right", "other", "far"} {
		f.bind(t, guaranteed(name, 2), n)
	}
	if got := f.counted(t, "tenon_topology_predictions_total", "Follow", "1.36"); got != 3 {
		t.Errorf("%v predictions counted, want 3", got)
	}
	f.report(t, "n", 2, `"right":{"c":{"cpus":"1,9"}},"other":{"c":{"cpus":"3,11"}},"far":{"c":{"cpus":"5,13"}}`)
	f.report(t, "n", 3, `"right":{"c":{"cpus":"1,9"}},"other":{"c":{"cpus":"3,11"}},"far":{"c":{"cpus":"5,13"}}`)
	for kind, want := range map[string]float64{"cpus": 1, "mask": 1, "memory": 0, "device": 0, "rejected": 0} {
		if got := f.counted(t, "tenon_topology_mispredict_total", kind, "Follow", "1.36"); got != want {
			t.Errorf("%v mispredictions of kind %s, want %v", got, kind, want)
		}
	}
	records := f.tracker.Mispredictions()
	if len(records) != 2 || records[0].Predicted["c"].CPUs == records[0].Actual["c"].CPUs {
		t.Errorf("records %+v: want two, with both placements", records)
	}
	if got := len(f.events); got != 2 {
		t.Errorf("%d events, want 2", got)
	}
}

// remembered counts what a tracker and its order still know, by field.
func remembered(t *follow.Tracker) map[string]int {
	left := map[string]int{}
	for _, v := range []reflect.Value{reflect.ValueOf(t).Elem(), reflect.ValueOf(&t.Order).Elem()} {
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Map && f.Len() > 0 {
				left[v.Type().Field(i).Name] = f.Len()
			}
		}
	}
	return left
}

func rejection(pod *corev1.Pod, node, reason string) *corev1.Pod {
	r := pod.DeepCopy()
	r.Spec.NodeName = node
	r.Status.Phase, r.Status.Reason = corev1.PodFailed, reason
	return r
}

// A ReplicaSet replaces a rejected pod at once: the replacement must not go to the same node, for longer each time.
func TestARejectedPodsReplacementDoesNotLoop(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	allowed := func(pod *corev1.Pod) bool {
		cs, _ := f.preFilter(t, pod)
		return f.Filter(t.Context(), cs, pod, n).IsSuccess()
	}
	for i, delay := range []time.Duration{
		30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute,
		8 * time.Minute, 10 * time.Minute, 10 * time.Minute,
	} {
		pod := guaranteed(fmt.Sprintf("p%d", i), 2)
		record := f.bind(t, pod, n)
		pod.Annotations[annotation.PredictedPlacementKey] = record[annotation.PredictedPlacementKey]
		failed := rejection(pod, "n", "TopologyAffinityError")
		f.tracker.Rejected(t.Context(), failed)
		f.tracker.Rejected(t.Context(), failed) // informers repeat themselves
		if _, held := f.store.View("n").Entry(pod.Name); held {
			t.Fatal("a rejected pod keeps its entry")
		}
		next := guaranteed(fmt.Sprintf("next%d", i), 2)
		if allowed(next) {
			t.Fatalf("rejection %d: the replacement goes to the same node", i)
		}
		if !allowed(guaranteed("another", 1)) {
			t.Fatal("a pod of another shape is kept off too")
		}
		f.clock.advance(delay - time.Second)
		f.tracker.Tick(t.Context())
		if allowed(next) {
			t.Fatalf("rejection %d: the back-off of %s is over too early", i, delay)
		}
		if got := f.tracker.RemainingBackoff(failed); got != time.Second {
			t.Fatalf("rejection %d: the node is said to be left alone for %s more, want 1s", i, got)
		}
		f.clock.advance(time.Second)
		f.tracker.Tick(t.Context())
		if !allowed(next) {
			t.Fatalf("rejection %d: the back-off of %s does not end", i, delay)
		}
		if got := f.tracker.RemainingBackoff(failed); got != 0 {
			t.Fatalf("rejection %d: the back-off is over and said to last %s more", i, got)
		}
		if names := f.woken.names; len(names) != i+1 || names[i] != "default/"+next.Name {
			t.Fatalf("rejection %d woke %v, want the pod that waited", i, names)
		}
	}
	if got := f.counted(t, "tenon_kubelet_rejections_total", "TopologyAffinityError"); got != 7 {
		t.Errorf("%v rejections counted, want 7", got)
	}
	if got := f.counted(t, "tenon_topology_mispredict_total", "rejected", "Follow", "1.36"); got != 7 {
		t.Errorf("%v mispredictions counted, want 7", got)
	}
	if f.tracker.HasBackoffs() {
		t.Error("back-offs are in force, want none")
	}
}

func TestARejectedPodsUnitsAreHeldForAWhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 1, 4, 2), predicted("Follow", restricted))
	pod := guaranteed("p", 4)
	pod.Annotations[annotation.PredictedPlacementKey] = f.bind(t, pod, n)[annotation.PredictedPlacementKey]
	free := func() bool {
		big := guaranteed("big", 7)
		cs, _ := f.preFilter(t, big)
		return f.Filter(t.Context(), cs, big, n).IsSuccess()
	}
	if free() {
		t.Fatal("the pod takes 4 of 7 CPUs")
	}
	f.store.RemovePod(pod) // the scheduler's own informer deletes it before the rejection is seen
	f.tracker.Rejected(t.Context(), rejection(pod, "n", "UnexpectedAdmissionError"))
	if free() {
		t.Error("the kubelet may still have booked the CPUs")
	}
	if differences := f.store.Differences(nil); len(differences) > 0 {
		t.Errorf("what is held counts as a contradiction: %v", differences)
	}
	f.clock.advance(15 * time.Second)
	f.tracker.Tick(t.Context())
	if !free() {
		t.Error("what was held comes back after 15 s")
	}
}

func TestRejectionsThatAreNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.addNode("n", machine(t, "amd64", 1, 4, 2), predicted("Follow", restricted))
	for name, pod := range map[string]*corev1.Pod{
		"bound by another scheduler": rejection(guaranteed("a", 2), "n", "TopologyAffinityError"),
		"failed by itself": rejection(guaranteed("b", 2,
			func(p *corev1.Pod) { p.Annotations[annotation.PredictedPlacementKey] = "{}" }), "n", "Error"),
	} {
		f.tracker.Rejected(t.Context(), pod)
		if f.tracker.HasBackoffs() {
			t.Errorf("%s: the node is left alone", name)
		}
	}
}

func TestThreeRejectionsMakeTheModelSuspect(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	score := func() int64 {
		pod := guaranteed("p", 1)
		cs, _ := f.preFilter(t, pod)
		f.PreScore(t.Context(), cs, pod, nil)
		got, _ := f.Score(t.Context(), cs, pod, n)
		return got
	}
	for i := range 3 {
		if score() == 0 {
			t.Fatalf("after %d rejections the node ranks last", i)
		}
		pod := guaranteed(fmt.Sprintf("p%d", i), 2+i)
		pod.Annotations[annotation.PredictedPlacementKey] = f.bind(t, pod, n)[annotation.PredictedPlacementKey]
		f.tracker.Rejected(t.Context(), rejection(pod, "n", "TopologyAffinityError"))
		f.clock.advance(20 * time.Second)
		f.tracker.Tick(t.Context())
	}
	if got := score(); got != 0 {
		t.Errorf("a suspect node scores %d, want 0", got)
	}
	if e := <-f.events; !strings.Contains(e, "KubeletModelSuspect") {
		t.Errorf("event %q, want %s", e, "KubeletModelSuspect")
	}
	f.clock.advance(10 * time.Minute)
	if score() == 0 {
		t.Error("a node is suspect for 10 minutes")
	}
}

// TestThreeMispredictedPlacementsMakeTheModelSuspect: only rejections did, so a node whose kubelet never did what was
// predicted was believed for ever.
func TestThreeMispredictedPlacementsMakeTheModelSuspect(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.store.MarkSynced()
	n := f.addNode("n", machine(t, "amd64", 2, 8, 2), predicted("Follow", restricted))
	score := func() int64 {
		pod := guaranteed("p", 1)
		cs, _ := f.preFilter(t, pod)
		f.PreScore(t.Context(), cs, pod, nil)
		got, _ := f.Score(t.Context(), cs, pod, n)
		return got
	}
	reported := ""
	report := func(gen int64, names ...string) {
		for _, name := range names { // the last CPUs, where the first are predicted
			f.bind(t, guaranteed(name, 2), n)
			cpu := 15 - strings.Count(reported, "cpus")
			reported += fmt.Sprintf(`,%q:{"c":{"cpus":"%d,%d"}}`, name, cpu, cpu+16)
		}
		f.report(t, "n", gen, strings.TrimPrefix(reported, ","))
	}
	report(2, "a", "b", "c", "d")
	if score() == 0 {
		t.Error("predictions on one report build on each other: the first that was wrong says all")
	}
	report(3, "e")
	if score() == 0 {
		t.Error("after two the node ranks last")
	}
	report(4, "f")
	if got := score(); got != 0 {
		t.Errorf("a suspect node scores %d, want 0", got)
	}
	f.clock.advance(11 * time.Minute)
	f.tracker.Tick(t.Context())
	if score() == 0 {
		t.Error("a node is suspect for 10 minutes")
	}
}

func TestRankingsLearnWhenANodeIsLeftAloneOrSuspect(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	pod := guaranteed("p", 2)
	pod.Annotations[annotation.PredictedPlacementKey] = f.bind(t, pod, n)[annotation.PredictedPlacementKey]
	f.tracker.Rejected(t.Context(), rejection(pod, "n", "TopologyAffinityError"))
	probe := guaranteed("q", 2)
	cs, _ := f.preFilter(t, probe)
	verdict := func() bool { return f.Filter(t.Context(), cs, probe, n).IsSuccess() }
	allowed, reported := verdict(), false
	f.store.OnChange(func(string) { reported = true })
	for _, step := range []struct {
		after time.Duration
		what  string
	}{{30 * time.Second, "the end of a back-off"}, {10 * time.Minute, "the end of doubt"}} {
		reported = false
		f.clock.advance(step.after)
		f.tracker.Tick(t.Context())
		if !reported {
			t.Errorf("%s is not reported", step.what)
		}
	}
	if allowed || !verdict() {
		t.Errorf("the node is open: got %v and after the back-off %v", allowed, verdict())
	}
	reported = false
	ours := func(p *corev1.Pod) { p.Annotations[annotation.PredictedPlacementKey] = "{}" }
	for what, rejected := range map[string]*corev1.Pod{
		"doubt":      rejection(guaranteed("unreadable", 1, ours, qosClass("none")), "n", "TopologyAffinityError"),
		"a back-off": rejection(guaranteed("readable", 1, ours), "n", "OutOfcpu"),
	} {
		reported = false
		f.tracker.Rejected(t.Context(), rejected)
		if !reported {
			t.Errorf("%s is not reported", what)
		}
	}
}

func TestPodThatIsNotStartedIsReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), predicted("Follow", restricted))
	pods := f.framework.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer()
	for name, started := range map[string]bool{"lost": false, "runs": true} {
		pod := guaranteed(name, 1)
		f.bind(t, pod, n)
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(f.clock.Now()),
		}}
		if started {
			now := metav1.NewTime(f.clock.Now())
			pod.Status.StartTime = &now
		}
		testkit.Check(t, pods.Add(pod))
	}
	for _, step := range []time.Duration{4 * time.Minute, 2 * time.Minute, 5 * time.Minute} {
		f.clock.advance(step)
		f.tracker.Tick(t.Context())
	}
	if len(f.events) != 1 {
		t.Fatalf("%d events, want one for the pod that was not started", len(f.events))
	}
	if e := <-f.events; !strings.Contains(e, "PlacementUnconfirmed") {
		t.Errorf("event %q, want %s", e, "PlacementUnconfirmed")
	}
}

// What is remembered of a pod goes with it: before or after its kubelet has spoken, whether that is predicted or not.
func TestNothingRemainsOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	nodes := map[string][]nodeOption{
		"a kubelet that is predicted": {predicted("Follow", restricted)},
		"CPUs of ours, and a guard":   {predicted("Own", restricted)},
		"a kubelet without a model":   nil,
	}
	ends := map[string]func(t *testing.T, f *fixture, pod *corev1.Pod){
		"deleted": func(_ *testing.T, f *fixture, pod *corev1.Pod) { f.store.RemovePod(pod) },
		"deleted while its node was unknown": func(_ *testing.T, f *fixture, pod *corev1.Pod) {
			pod = pod.DeepCopy()
			pod.Spec.NodeName = ""
			f.store.RemovePod(pod)
		},
		"completed": func(_ *testing.T, f *fixture, pod *corev1.Pod) {
			pod = pod.DeepCopy()
			pod.Status.Phase = corev1.PodSucceeded
			f.store.PutPod(pod)
			f.store.RemovePod(pod)
		},
		"deleted long after it was due": func(t *testing.T, f *fixture, pod *corev1.Pod) {
			f.clock.advance(6 * time.Minute)
			f.tracker.Tick(t.Context())
			f.store.RemovePod(pod)
		},
		"rejected": func(t *testing.T, f *fixture, pod *corev1.Pod) {
			f.store.RemovePod(pod)
			f.tracker.Rejected(t.Context(), rejection(pod, "n", "TopologyAffinityError"))
			if got := f.counted(t, "tenon_kubelet_rejections_total", "TopologyAffinityError"); got != 1 {
				t.Errorf("%v rejections counted, want 1", got)
			}
			f.tracker.Forget(pod.UID)
		},
		"confirmed": func(t *testing.T, f *fixture, pod *corev1.Pod) {
			f.report(t, "n", 2, fmt.Sprintf(`%q:{"c":{"cpus":"1,9"}}`, pod.UID))
			f.store.RemovePod(pod)
		},
	}
	for node, options := range nodes {
		for end, happens := range ends {
			t.Run(node+", "+end, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, "")
				f.store.MarkSynced()
				n := f.addNode("n", machine(t, "amd64", 2, 4, 2), options...)
				pod := lsr("p", 2)
				record := f.bind(t, pod, n)
				if left := remembered(f.tracker); left["chosen"] != 1 {
					t.Fatalf("remembered are %v, want the pod", left)
				}
				pod.Spec.NodeName = "n"
				for k, v := range record {
					pod.Annotations[k] = v
				}
				pod.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(f.clock.Now()),
				}}
				if err := f.framework.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer().Add(
					pod); err != nil {
					t.Fatal(err)
				}
				happens(t, f, pod)
				f.clock.advance(61 * time.Second)
				f.tracker.Tick(t.Context())
				left := remembered(f.tracker)
				delete(left, "backoffs") // kept for the next rejection
				delete(left, "modelErrors")
				if len(left) > 0 {
					t.Errorf("remain: %v", left)
				}
				if e, found := f.store.View("n").Entry("p"); found {
					t.Errorf("the account has %+v", e)
				}
			})
		}
	}
}

// A pod may be refused by a back-off in the very moment in which that ends.
func TestAPodThatBeginsToWaitWhenTheBackoffIsOverIsWoken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tracker.Wait(guaranteed("late", 2), "n", "a shape that is not left alone any more")
	f.tracker.Tick(t.Context())
	if names, left := f.woken.names, remembered(f.tracker); len(names) != 1 || len(left) != 0 {
		t.Errorf("woken are %v, want the pod; %v wait", names, left)
	}
}

// 1,000 pods are reserved by parallel goroutines on 20 nodes. Kubelets that admit them in the order in which they were
// bound agree with every prediction.
func TestReservationsInParallelAgreeWithTheKubelets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	const nodes, pods, workers = 20, 1000, 8
	infos := make([]fwk.NodeInfo, nodes)
	for i := range infos {
		infos[i] = f.addNode(fmt.Sprintf("n%d", i), machine(t, "amd64", 4, 16, 2), predicted("Follow", restricted))
	}
	type bind struct {
		version uint64
		offer   ledger.Offer
	}
	bound := make([][]bind, nodes)
	var mu sync.Mutex
	work := make(chan int)
	var wg sync.WaitGroup
	failed := 0
	for range workers {
		wg.Go(func() {
			for i := range work {
				pod := guaranteed(fmt.Sprintf("p%d", i), 1+i%4)
				done := false
				for try := 0; try < 2*nodes && !done; try++ {
					at := (i + try) % nodes
					cs, _ := f.preFilter(t, pod)
					if !f.Filter(t.Context(), cs, pod, infos[at]).IsSuccess() ||
						!f.Reserve(t.Context(), cs, pod, infos[at].Node().Name).IsSuccess() {
						continue
					}
					done = true
					offer := placement.Read(cs).Offer
					mu.Lock()
					bound[at] = append(bound[at], bind{offer.Version, offer})
					mu.Unlock()
				}
				if !done {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	wg.Wait()
	agreed := 0
	for i, binds := range bound {
		order := map[uint64]ledger.Offer{}
		last := uint64(0)
		for _, b := range binds {
			order[b.version] = b.offer
			last = max(last, b.version)
		}
		v := f.store.View(infos[i].Node().Name)
		state := v.Facts().Model.Node.Empty()
		for version := uint64(0); version <= last; version++ {
			o, ok := order[version]
			if !ok {
				continue
			}
			after, placement, refusal := state.Admit(o.Entry.Guest.Pod)
			if refusal != nil {
				t.Fatalf("node %d rejects %s with %s", i, o.Entry.Name, refusal.Status)
			}
			got, want := convert.Placed(kubelet.HeldOf(v.Machine(), placement)),
				convert.Placed(o.Entry.Guest.Prediction.Held)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("node %d gives %s %v, predicted was %v", i, o.Entry.Name, got, want)
			}
			state = after
			agreed++
		}
	}
	if agreed+failed != pods || agreed < pods/2 {
		t.Errorf("%d agreed, %d found no node, of %d", agreed, failed, pods)
	}
}
