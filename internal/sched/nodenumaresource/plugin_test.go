package nodenumaresource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestPodsThatAskForNothingOfOursAreSkippedEverywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.addNode("n", machine(t, "amd64", 2, 4, 2))
	for name, pod := range map[string]*corev1.Pod{
		"best effort": newPod("a"),
		"burstable":   newPod("b", asks("100m", "1")),
		"guaranteed, whole CPUs, kubelets all none": newPod("c", asks("2", "2")),
		"LS without a wish, no node constrained":    newPod("d", qosClass("LS"), asks("2", "2")),
		"BE":                                        newPod("e", qosClass("BE"), asks("2", "2")),
	} {
		t.Run(name, func(t *testing.T) {
			cs, skipped := f.preFilter(t, pod)
			if !skipped {
				t.Error("PreFilter does not skip it")
			}
			if s := f.PreScore(t.Context(), cs, pod, nil); !s.IsSkip() {
				t.Errorf("PreScore: got %q, want Skip", s.Code())
			}
			if s := f.Reserve(t.Context(), cs, pod, "n"); !s.IsSuccess() {
				t.Errorf("Reserve: %s", s.Message())
			}
			if s := f.Bind(t.Context(), cs, pod, "n"); !s.IsSkip() {
				t.Errorf("Bind: got %q, want Skip: the next binder binds it", s.Code())
			}
			f.Unreserve(t.Context(), cs, pod, "n")
		})
	}
	if actions := f.client.Actions(); len(actions) != 0 {
		t.Errorf("got requests %v, want none", actions)
	}
}

func TestPodsConcernUsOnceTheClusterHasNodesThatTreatThemSpecially(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  *corev1.Pod
		node nodeOption
	}{
		"guaranteed whole CPUs and a static kubelet": {newPod("a", asks("2", "2")), cpuManager(`{"policy":"static"}`)},
		"LS and a Restricted node": {
			newPod("b", qosClass("LS"), asks("2", "2")),
			labelled(annotation.NodeNUMATopologyPolicy, "Restricted"),
		},
		"burstable and a SingleNUMANode node": {
			newPod("c", asks("1", "2")),
			labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "")
			if _, skipped := f.preFilter(t, tc.pod); !skipped {
				t.Error("no such node yet: the pod must be skipped")
			}
			f.addNode("n", machine(t, "amd64", 2, 4, 2), tc.node)
			if _, skipped := f.preFilter(t, tc.pod); skipped {
				t.Error("there is such a node: the pod must be evaluated")
			}
		})
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	full := cpuManager(`{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0,8"}`)
	tests := map[string]struct {
		pod     *corev1.Pod
		arch    string
		threads int
		node    []nodeOption
		held    string // CPUs of another LSR pod
		absent  bool   // no topology
		want    string
	}{
		"an LSR pod fits an empty node": {pod: lsr("p", 4)},
		"an LSR pod on a node without topology": {
			pod: lsr("p", 4), absent: true, want: "UnschedulableAndUnresolvable: node(s) invalid CPU Topology",
		},
		"more CPUs than are free": {
			pod: lsr("p", 4), held: "0-6,8-13", want: "Unschedulable: not enough cpus available to satisfy request",
		},
		"required FullPCPUs with broken cores only": {
			pod: lsr("p", 2, spec(`{"requiredCPUBindPolicy":"FullPCPUs"}`)), held: "0-7",
			want: "Unschedulable: insufficient CPUs to satisfy required cpu bind policy FullPCPUs",
		},
		"an odd number on a FullPCPUsOnly node": {
			pod: lsr("p", 3), node: []nodeOption{labelled(annotation.NodeCPUBindPolicy, "FullPCPUsOnly")},
			want: "UnschedulableAndUnresolvable: node(s) requested cpus not multiple cpus per core",
		},
		"a required policy that contradicts the node's": {
			pod:  lsr("p", 2, spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)),
			node: []nodeOption{labelled(annotation.NodeCPUBindPolicy, "FullPCPUsOnly")},
			want: "UnschedulableAndUnresolvable: node(s) cpu bind policy conflicts with pod's required cpu bind policy",
		},
		"a preferred policy that contradicts the node's": {
			pod:  lsr("p", 2, spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`)),
			node: []nodeOption{labelled(annotation.NodeCPUBindPolicy, "FullPCPUsOnly")},
		},
		"a guaranteed pod whose CPUs break a core of a static full-pcpus-only kubelet": {
			pod: newPod("p", asks("3", "3")), node: []nodeOption{full},
			want: "UnschedulableAndUnresolvable: node(s) requested cpus not multiple cpus per core",
		},
		"a guaranteed pod that such a kubelet can pin": {pod: newPod("p", asks("4", "4")), node: []nodeOption{full}},
		"a guaranteed pod for which such a kubelet has too few CPUs": {
			pod: newPod("p", asks("16", "16")), node: []nodeOption{full},
			want: "Unschedulable: node(s) kubelet does not have enough free CPUs to pin",
		},
		"an LSR pod over two NUMA nodes on a SingleNUMANode node": {
			pod: lsr("p", 10), node: []nodeOption{labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")},
			want: "Unschedulable: node(s) NUMA Topology policy not match",
		},
		"an LS pod over two NUMA nodes on a SingleNUMANode node": {
			pod:  newPod("p", qosClass("LS"), asks("10", "10")),
			node: []nodeOption{labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")},
			want: "Unschedulable: node(s) NUMA Topology policy not match",
		},
		"ConstrainedBurst with a limit above the whole pool": {
			pod:  newPod("p", qosClass("LS"), asks("2", "20"), spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
			want: "Unschedulable: node(s) CPU shared pool too small",
		},
		"required SpreadByPCPUs on an arm64 node with SMT": {
			pod: lsr("p", 2, spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)), arch: "arm64",
			want: "UnschedulableAndUnresolvable: node(s) cpu bind policy conflicts with pod's required cpu bind policy",
		},
		"required SpreadByPCPUs on an arm64 node without SMT": {
			pod: lsr("p", 2, spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)), arch: "arm64", threads: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "")
			arch, threads := tc.arch, tc.threads
			if arch == "" {
				arch = "amd64"
			}
			if threads == 0 {
				threads = 2
			}
			m := machine(t, arch, 2, 4, threads)
			if tc.absent {
				m = nil
			}
			n := f.addNode("n", m, tc.node...)
			if tc.held != "" {
				f.store.PutPod(lsr("holder", 2, bound("n", tc.held)))
			}
			cs, skipped := f.preFilter(t, tc.pod)
			if skipped {
				t.Fatal("the pod does not concern the plugin")
			}
			if diff := cmp.Diff(tc.want, verdict(f.Filter(t.Context(), cs, tc.pod, n))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsThatCanNeverWorkAreRefusedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	for name, pod := range map[string]*corev1.Pod{
		"half a CPU":        newPod("a", qosClass("LSR"), asks("1500m", "1500m")),
		"broken annotation": lsr("b", 2, spec(`{"preferredCPUBindPolicy":`)),
		"unknown policy":    lsr("c", 2, spec(`{"preferredCPUBindPolicy":"Nearby"}`)),
		"unknown QoS class": newPod("d", qosClass("LSX"), asks("2", "2")),
	} {
		t.Run(name, func(t *testing.T) {
			_, status := f.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
			if status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() == "" {
				t.Errorf("got %s, want UnschedulableAndUnresolvable with a text", verdict(status))
			}
		})
	}
}

func TestFilterAllocatesNothingForANodeThatFits(t *testing.T) {
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 4, 8, 2))
	pod := lsr("p", 4)
	cs, _ := f.preFilter(t, pod)
	if got := testing.AllocsPerRun(100, func() { f.Filter(t.Context(), cs, pod, n) }); got > 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestBindCarriesTheAllocationOfThisVeryPod(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	if got := f.schedule(t, lsr("p", 4), n); got != "0-1,8-9" {
		t.Errorf("CPUs: got %s, want 0-1,8-9", got)
	}
	actions := f.client.Actions()
	if len(actions) != 1 {
		t.Fatalf("got requests %v, want the Binding alone", actions)
	}
	create, ok := actions[0].(clienttesting.CreateAction)
	if !ok || actions[0].GetSubresource() != "binding" {
		t.Fatalf("got %v, want a Binding", actions[0])
	}
	want := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "p", UID: types.UID("p"),
			Annotations: map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-1,8-9"}`},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n"},
	}
	if diff := cmp.Diff(want, create.GetObject()); diff != "" {
		t.Errorf("Binding (-want +got):\n%s", diff)
	}
}

func TestUnsupportedExclusivePolicyIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		arch    string
		threads int
		policy  string
		want    string
	}{
		"PCPULevel on arm64": {
			"arm64", 2, "PCPULevel",
			"Warning ExclusivePolicyIgnored ExclusivePolicyIgnored: preferredCPUExclusivePolicy PCPULevel does not " +
				"exist on arm64",
		},
		"NUMANodeLevel on arm64": {"arm64", 2, "NUMANodeLevel", ""},
		"PCPULevel on amd64":     {"amd64", 2, "PCPULevel", ""},
		"PCPULevel without SMT":  {"amd64", 1, "PCPULevel", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "")
			n := f.addNode("n", machine(t, c.arch, 2, 4, c.threads))
			f.schedule(t, lsr("p", 2, spec(`{"preferredCPUExclusivePolicy":%q}`, c.policy)), n)
			select {
			case got := <-f.events:
				if c.want == "" || !strings.HasPrefix(got, c.want) {
					t.Errorf("got Event %q, want %q", got, c.want)
				}
			default:
				if c.want != "" {
					t.Errorf("no Event, want %q", c.want)
				}
			}
		})
	}
}

func TestSharedPoolsOfAnLSPodTravelInTheBinding(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2), labelled(annotation.NodeNUMATopologyPolicy, "SingleNUMANode"))
	pod := newPod("p", qosClass("LS"), asks("4", "4"))
	f.schedule(t, pod, n)
	binding := f.client.Actions()[0].(clienttesting.CreateAction).GetObject().(*corev1.Binding)
	status, _, err := annotation.ParseResourceStatus(binding.Annotations[annotation.ResourceStatusKey])
	testkit.Check(t, err)
	if status.CPUSet != "" || len(status.CPUSharedPools) != 1 || status.CPUSharedPools[0].CPUSet != "" ||
		len(status.NUMANodeResources) != 1 {
		t.Errorf("got %+v, want one shared pool without CPUs, with its amounts", status)
	}
}

func TestAnotherBinderGetsTheRecordAsAPatchBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "", names.DefaultBinder, Name)
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	pod := lsr("p", 2)
	testkit.Check(t, f.client.Tracker().Add(pod))
	cs, _ := f.preFilter(t, pod)
	if s := f.Reserve(t.Context(), cs, pod, n.Node().Name); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if _, s := f.PreBindPreFlight(t.Context(), cs, pod, "n"); !s.IsSuccess() {
		t.Errorf("pre-flight: got %s, want success", verdict(s))
	}
	if s := f.PreBind(t.Context(), cs, pod, "n"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	patched, err := f.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	testkit.Check(t, err)
	if got := patched.Annotations[annotation.ResourceStatusKey]; got != `{"cpuset":"0,8"}` {
		t.Errorf("annotation: got %s", got)
	}
}

func TestOurOwnBindIsNotPrecededByAPatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.addNode("n", machine(t, "amd64", 2, 4, 2))
	pod := lsr("p", 2)
	cs, _ := f.preFilter(t, pod)
	if s := f.Reserve(t.Context(), cs, pod, "n"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if _, s := f.PreBindPreFlight(t.Context(), cs, pod, "n"); !s.IsSkip() {
		t.Errorf("pre-flight: got %s, want Skip", verdict(s))
	}
	if s := f.PreBind(t.Context(), cs, pod, "n"); !s.IsSuccess() || len(f.client.Actions()) != 0 {
		t.Errorf("PreBind: got %s and requests %v, want none", verdict(s), f.client.Actions())
	}
}

func TestUnreserveRestoresTheAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.addNode("n", machine(t, "amd64", 2, 4, 2))
	f.store.PutPod(lsr("other", 2, bound("n", "3,11")))
	before := f.store.View("n").Allocatable()
	pod := lsr("p", 4)
	cs, _ := f.preFilter(t, pod)
	if s := f.Reserve(t.Context(), cs, pod, "n"); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	if taken := f.store.View("n").CPUsOf("p"); taken.Len() != 4 {
		t.Fatalf("reserved %s, want 4 CPUs", taken)
	}
	f.Unreserve(t.Context(), cs, pod, "n")
	f.Unreserve(t.Context(), cs, pod, "n")
	if after := f.store.View("n").Allocatable(); after != before {
		t.Errorf("free CPUs: got %s, want %s as before", after, before)
	}
}

func TestARestartedSchedulerFindsTheSameAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	var boundPods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		cpus := f.schedule(t, lsr(name, 2), n)
		boundPods = append(boundPods, lsr(name, 2, bound("n", cpus)))
	}
	next := newFixture(t, "")
	next.addNode("n", machine(t, "amd64", 2, 4, 2))
	for _, p := range boundPods {
		next.store.PutPod(p)
	}
	if got, want := next.store.View("n").Allocatable(), f.store.View("n").Allocatable(); got != want {
		t.Errorf("free CPUs after the restart: got %s, want %s", got, want)
	}
	// The confirmed pods survive a late Unreserve of the old process's cycles.
	for _, p := range boundPods {
		f.store.PutPod(p)
		if got := f.store.View("n").CPUsOf(string(p.UID)); got.Len() != 2 {
			t.Errorf("pod %s holds %s, want its 2 CPUs", p.Name, got)
		}
	}
}

func TestProfilesWithUnequalArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	if _, err := f.factory(t.Context(), unknown(`{"minSharedCPUs":4}`), f.framework); err == nil {
		t.Error("other arguments on the same accounts must be refused")
	}
}

func unknown(text string) runtime.Object {
	return &runtime.Unknown{Raw: []byte(text), ContentType: runtime.ContentTypeJSON}
}

func TestUnknownArgumentStopsTheStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	if _, err := f.factory(t.Context(), unknown(`{"minSharedCPU":4}`), f.framework); err == nil {
		t.Error("a misspelt argument must be refused")
	}
}

func TestScorePrefersFewerNUMANodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	one := f.addNode("one", machine(t, "amd64", 2, 8, 2))
	two := f.addNode("two", machine(t, "amd64", 4, 4, 2))
	pod := lsr("p", 12)
	cs, _ := f.preFilter(t, pod)
	if s := f.PreScore(t.Context(), cs, pod, nil); !s.IsSuccess() {
		t.Fatal(s.Message())
	}
	a, _ := f.Score(t.Context(), cs, pod, one)
	b, _ := f.Score(t.Context(), cs, pod, two)
	if a <= b || a > fwk.MaxScore || b < fwk.MinScore {
		t.Errorf("scores: one NUMA node %d, two NUMA nodes %d; want the first higher, both in 0…100", a, b)
	}
}

func TestReserveNeverGivesACPUTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	var taken []string
	for i := range 7 { // the eighth pair is the floor of the shared pool
		taken = append(taken, f.schedule(t, lsr(string(rune('a'+i)), 2), n))
	}
	lsrCPUs := f.store.View("n").LSR()
	if lsrCPUs.Len() != 14 {
		t.Errorf("seven pods of two CPUs hold %d CPUs: %v", lsrCPUs.Len(), taken)
	}
	cs, _ := f.preFilter(t, lsr("last", 2))
	if got := verdict(f.Filter(t.Context(), cs, lsr("last", 2), n)); got == "" {
		t.Error("the shared pool must keep its last core")
	}
	if s := f.Reserve(t.Context(), cs, lsr("last", 2), "n"); s.IsSuccess() {
		t.Error("Reserve must refuse what Filter refuses")
	}
	if problems := f.store.View("n").Problems(); len(problems) != 0 {
		t.Errorf("got problems %v", problems)
	}
}

// Without a transport containers start on all CPUs until the next resync: LSE pods must not be accepted there.
func TestLSEPodsDoNotGoWhereTheirCPUsCannotBeEnforced(t *testing.T) {
	t.Parallel()
	condition := func(status corev1.ConditionStatus, reason string) nodeOption {
		return func(n *corev1.Node, _ *v1alpha2.NodeResourceTopology) {
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: annotation.EnforcementDegraded, Status: status,
				Reason: reason,
			}}
		}
	}
	degraded := condition(corev1.ConditionTrue, "NoTransport")
	const refused = "UnschedulableAndUnresolvable: node(s) cannot enforce exclusive CPUs from a container's start"
	lse := newPod("p", qosClass("LSE"), asks("2", "2"))
	tests := map[string]struct {
		args string
		pod  *corev1.Pod
		node nodeOption
		want string
	}{
		"LSE, no transport":          {"", lse, degraded, refused},
		"LSE, connected":             {"", lse, condition(corev1.ConditionFalse, "Enforced"), ""},
		"LSE, the agent accepts it":  {"", lse, condition(corev1.ConditionTrue, annotation.DegradedAllowed), ""},
		"LSR, no transport":          {"", lsr("p", 2), degraded, ""},
		"LSR, filtered by a setting": {`{"filterLSROnDegradedNodes":true}`, lsr("p", 2), degraded, refused},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tt.args)
			n := f.addNode("n", machine(t, "amd64", 1, 4, 2), tt.node)
			cs, _ := f.preFilter(t, tt.pod)
			if got := verdict(f.Filter(t.Context(), cs, tt.pod, n)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			hint, err := f.after(t, fwk.Node)(klog.Background(), tt.pod, nil, n.Node())
			if want := tt.want == ""; err != nil || (hint == fwk.Queue) != want {
				t.Errorf("the node's update wakes the pod: %v (%v), want %t", hint, err, want)
			}
		})
	}
}
