package refusals

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// notes records Events. all is read when nothing records any more.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) WithLogger(klog.Logger) events.EventRecorderLogger { return n }

func (n *notes) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, reason+" "+strings.TrimSpace(sprintf(note, args)))
}

func sprintf(format string, args []any) string {
	if len(args) == 1 && format == "%s" {
		return args[0].(string)
	}
	return format
}

// refusing is a framework with a snapshot and nothing that runs.
type refusing struct {
	framework.Framework
	notes    *notes
	snapshot *cache.Snapshot
}

func (f *refusing) EventRecorder() events.EventRecorderLogger { return f.notes }
func (f *refusing) APICacher() fwk.APICacher                  { return nil }
func (f *refusing) SnapshotSharedLister() fwk.SharedLister    { return f.snapshot }
func (f *refusing) ProfileName() string                       { return "tenon-scheduler" }

// upstreamHandler writes what kube-scheduler's handler writes: an Event and a condition, each time.
func upstreamHandler(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
	nominating *fwk.NominatingInfo, _ time.Time,
) {
	f.EventRecorder().WithLogger(klog.FromContext(ctx)).Eventf(pod.Pod, nil, corev1.EventTypeWarning,
		"FailedScheduling", "Scheduling", status.Message())
	if c := f.APICacher(); c != nil {
		_, _ = c.PatchPodStatus(pod.Pod, []*corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: status.Message(),
		}}, nominating)
	}
}

type bench struct {
	framework *refusing
	reporter  *Reporter
	handle    scheduler.FailureHandlerFn
	client    *fake.Clientset
	now       time.Time
	// verdict is the result of all filters, evaluated counts how often they ran, takes is how long a run takes.
	verdict   view.Verdict
	evaluated int
	takes     time.Duration
	signature string // of the pods that are refused; "" for none
}

// A bench is the clock of its reporter.
func (b *bench) Now() time.Time                  { return b.now }
func (b *bench) Since(t time.Time) time.Duration { return b.now.Sub(t) }
func (b *bench) Sleep(time.Duration)             {}

func unregistered(...metrics.Registerable) {}

// testPod asks for two whole CPUs with equal limits.
func testPod(name string) *corev1.Pod {
	return object.Pod(name, object.Scheduler("tenon-scheduler"), object.Both("cpu", "2", "memory", "1Gi"))
}

func newBench(t testing.TB, nodes ...string) *bench {
	t.Helper()
	var objects []*corev1.Node
	for _, name := range nodes {
		objects = append(objects, object.Node(name, nil))
	}
	b := &bench{
		framework: &refusing{notes: &notes{}, snapshot: cache.NewSnapshot(nil, objects)},
		client:    fake.NewClientset(), now: time.Unix(1e9, 0),
	}
	b.reporter = NewReporter(b.client, unregistered, func(string, string) {}, b)
	b.reporter.filters = func(_ context.Context, f framework.Framework, status *fwk.Status) ([]why.Finding,
		view.Verdict, error,
	) {
		b.evaluated++
		b.now = b.now.Add(b.takes)
		return b.answer(f, status)
	}
	b.handle = b.reporter.Wrap(upstreamHandler)
	return b
}

// answer is what all filters say after an attempt on the nodes of the attempt.
func (b *bench) answer(f framework.Framework, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
	fit, v := fitOf(status), b.verdict
	first, _ := Attempt(f, fit.Pod, status)
	v.Nodes = fit.NumAllNodes
	return first, v, nil
}

// refuse is one attempt that ended with a status on each node.
func (b *bench) refuse(t testing.TB, pod *corev1.Pod, statuses map[string]*fwk.Status) {
	t.Helper()
	b.refuseAfterPreemption(t, pod, statuses, "")
}

// refuseAfterPreemption is an attempt where preemption had this to say.
func (b *bench) refuseAfterPreemption(t testing.TB, pod *corev1.Pod, statuses map[string]*fwk.Status, outcome string) {
	t.Helper()
	fit := &framework.FitError{Pod: pod, NumAllNodes: len(statuses), Diagnosis: framework.Diagnosis{
		NodeToStatus:  framework.NewNodeToStatus(statuses, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)),
		PostFilterMsg: outcome,
	}}
	info, err := framework.NewPodInfo(pod)
	testkit.Check(t, err)
	b.handle(
		t.Context(),
		b.framework,
		&framework.QueuedPodInfo{
			PodInfo: info, QueueingParams: framework.QueueingParams{Attempts: 1},
			PodSignature: fwk.PodSignature(b.signature),
		},
		fwk.NewStatus(fwk.Unschedulable).WithError(fit),
		nil,
		b.now,
	)
}

func tainted() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		"node(s) had untolerated taint(s)").WithPlugin(names.TaintToleration)
}

func full() *fwk.Status {
	return fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu").WithPlugin(names.NodeResourcesFit)
}

func (b *bench) condition(t *testing.T, name string) string {
	t.Helper()
	pod, err := b.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	testkit.Check(t, err)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// reason returns the reason of the condition of a pod.
func (b *bench) reason(t *testing.T, name string) string {
	t.Helper()
	pod, err := b.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	testkit.Check(t, err)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Reason
		}
	}
	return ""
}

// TestTheReasonOfTheConditionFollowsTheCode, for every code that refuses a pod, in the attempt and beside it, unless
// that is switched off.
func TestTheReasonOfTheConditionFollowsTheCode(t *testing.T) {
	others := false // whether a reason beside the attempts was another one
	for _, entry := range why.Registry() {
		code, _ := why.ParseCode(entry.Name)
		if code == why.GangSiblingFailed { // written beside the attempts, by another writer
			continue
		}
		for _, plain := range []bool{false, true} {
			want := entry.Condition
			if plain {
				want = "Unschedulable"
			}
			refusal := func() map[string]*fwk.Status {
				return map[string]*fwk.Status{
					"a": fwk.NewStatus(fwk.Unschedulable).WithError(typedRefusal{why.Reason{Code: code}}),
				}
			}
			b := newBench(t, "a")
			b.reporter.PlainReasons = plain
			pod := testPod("p")
			testkit.Check(t, b.client.Tracker().Add(pod))
			b.refuse(t, pod, refusal())
			if got := b.reason(t, "p"); got != want {
				t.Errorf("%s, plain %t: got %q in the attempt, want %q", entry.Name, plain, got, want)
			}

			beside := newBesideBench(t)
			beside.reporter.PlainReasons = plain
			beside.verdict.Findings = []why.Finding{{Reason: why.Reason{Code: code}, Object: "a", Phase: why.Filter}}
			beside.refuse(t, beside.pod(t, "p"), "Insufficient cpu")
			beside.drain(t)
			said, _ := why.ParseMessage(beside.condition(t, "p")) // the root cause, which may be that of the attempt
			if want = said.Code.Condition(); plain {
				want = "Unschedulable"
			}
			others = others || want != "Unschedulable"
			if got := beside.reason(t, "p"); got != want {
				t.Errorf("%s, plain %t: got %q beside the attempt, want %q", said.Code, plain, got, want)
			}
		}
	}
	if !others {
		t.Error("every reason beside the attempts is Unschedulable")
	}
}

func TestEventAndConditionNameTheRootCause(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	b.refuse(t, pod, map[string]*fwk.Status{"a": tainted(), "b": tainted(), "c": full()})
	if len(b.framework.notes.all) != 1 {
		t.Fatalf("got Events %q, want one", b.framework.notes.all)
	}
	note, message := b.framework.notes.all[0], b.condition(t, "p")
	if !strings.HasPrefix(message, "InsufficientCPU: 0/3 nodes are available: ") ||
		!strings.Contains(message, `"code":"InsufficientCPU"`) ||
		!strings.Contains(message, "2 node(s) had untolerated taint(s)") {
		t.Errorf("condition: got %s", message)
	}
	if note != "FailedScheduling "+message {
		t.Errorf("Event and condition differ:\n%s\n%s", note, message)
	}
}

func TestSameCauseIsReportedOnceAndAnotherOneAtOnce(t *testing.T) {
	b := newBench(t, "a", "b")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	both := func() map[string]*fwk.Status { return map[string]*fwk.Status{"a": full(), "b": full()} }
	steps := []struct {
		text     string
		after    time.Duration
		statuses map[string]*fwk.Status
		events   int // so far
	}{
		{"the first refusal", 0, both(), 1},
		{"the same again", time.Second, both(), 1},
		{"the same much later", time.Hour, both(), 1},
		{
			"the same cause with other numbers, late", time.Second,
			map[string]*fwk.Status{"a": full(), "b": tainted()},
			2,
		},
		{"the first numbers again, too early", time.Second, both(), 2},
		{"and after a minute", time.Minute, both(), 3},
		{"another cause", time.Second, map[string]*fwk.Status{"a": tainted(), "b": tainted()}, 4},
	}
	for _, s := range steps {
		b.now = b.now.Add(s.after)
		before := len(b.client.Actions())
		b.refuse(t, pod, s.statuses)
		if got := len(b.framework.notes.all); got != s.events {
			t.Fatalf("%s: %d Events so far, want %d: %q", s.text, got, s.events, b.framework.notes.all)
		}
		reported := s.events > 0 && len(b.client.Actions()) > before
		if quiet := strings.HasPrefix(s.text, "the same") && !strings.Contains(s.text, "other"); quiet && reported {
			t.Errorf("%s: requests %v, want none", s.text, b.client.Actions()[before:])
		}
	}
}

// exclusive is a refusal after the first one: a run of all filters returns it, the scheduler's attempt did not.
func exclusive(node string) why.Finding {
	return why.Finding{
		Reason: why.Reason{Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: why.CPUs, Asked: 8, Free: 4},
		Plugin: "NodeNUMAResource", Phase: why.Filter, Object: node,
	}
}

func TestReportedRootCauseIsTheOneOfExplain(t *testing.T) {
	b := newBench(t, "a", "b", "c")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	capacity := func(node string) why.Finding {
		return why.Finding{
			Reason: why.Reason{
				Code: why.InsufficientCPU, Resource: why.CPU, Unit: why.MilliCPU, Asked: 8000,
				Free: 4000,
			},
			Plugin: names.NodeResourcesFit, Phase: why.Filter, Object: node,
		}
	}
	b.verdict = view.Verdict{
		Served: true, Nodes: 3, Feasible: 1,
		Findings: []why.Finding{capacity("a"), exclusive("a"), capacity("b"), exclusive("b")},
	}
	b.refuse(t, pod, map[string]*fwk.Status{"a": full(), "b": full(), "c": tainted()})

	answer := view.Explain(describe.Pod(pod), view.Verdict{Served: true, Nodes: 3, Findings: append(b.verdict.Findings,
		why.Finding{
			Reason: why.Reason{Code: why.TaintToleration}, Plugin: names.TaintToleration, Phase: why.Filter,
			Object: "c", Detail: "node(s) had untolerated taint(s)",
		})}, nil)
	message := b.condition(t, "p")
	if want := answer.RootCause.Code.String(); want != "InsufficientExclusiveCPU" ||
		!strings.HasPrefix(message, want+": 0/3 nodes are available: ") {
		t.Errorf("explain names %s, the condition says %s", want, message)
	}
	if !strings.Contains(message, "1 node(s) had untolerated taint(s)") {
		t.Errorf("the node that only the attempt refused is missing: %s", message)
	}
	if got := b.framework.notes.all; len(got) != 1 || got[0] != "FailedScheduling "+message {
		t.Errorf("Event and condition differ:\n%s\n%s", got, message)
	}
}

// TestTheMemberThatItsGangWaitsForHasItsOwnReason: alone, a node would take it, and its gang names it. Explain has the
// nodes of its attempt, and what is said of it is published for the other members.
func TestTheMemberThatItsGangWaitsForHasItsOwnReason(t *testing.T) {
	held := why.Finding{Reason: why.Reason{Code: why.GangSiblingFailed}, Plugin: "Coscheduling", Phase: why.Permit}
	onTheGang := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithPlugin("Coscheduling")
	beside := fwk.NewStatus(fwk.Unschedulable).WithPlugin(names.NodeResourcesFit).WithError(&Beside{
		Status: full(), Members: []string{"default/q"},
	})
	for name, c := range map[string]struct {
		forget   func(b *bench, pod *corev1.Pod)
		statuses map[string]*fwk.Status
		verdict  []why.Finding // of the answer to explain
		root     why.Code
		nodes    int // with a refusal
		notes    int
	}{
		"the member": {
			nil, map[string]*fwk.Status{"a": tainted(), "b": beside}, []why.Finding{held}, why.InsufficientCPU, 2, 1,
		},
		"its attempt is not remembered": {
			func(b *bench, pod *corev1.Pod) { b.reporter.tried.Remove(pod.UID) },
			map[string]*fwk.Status{"a": tainted(), "b": beside},
			[]why.Finding{held},
			why.InsufficientCPU, 1, 1,
		},
		"it was bound meanwhile": {
			func(b *bench, pod *corev1.Pod) { b.reporter.forget(pod) },
			map[string]*fwk.Status{"a": tainted(), "b": beside},
			[]why.Finding{held},
			why.GangSiblingFailed, 0, 0,
		},
		"another member": {
			nil,
			map[string]*fwk.Status{"a": onTheGang, "b": onTheGang},
			[]why.Finding{held},
			why.GangSiblingFailed, 0, 0,
		},
		"a pod without a gang": {
			nil,
			map[string]*fwk.Status{"a": tainted(), "b": beside},
			[]why.Finding{exclusive("a")},
			why.InsufficientExclusiveCPU, 1, 0,
		},
	} {
		b := newBench(t, "a", "b")
		pod := testPod("p")
		testkit.Check(t, b.client.Tracker().Add(pod))
		published := ""
		b.reporter.OnReport(func(_ *corev1.Pod, cause why.Finding) {
			published = cause.Code.String() + " " + cause.Detail
		})
		b.verdict = view.Verdict{Served: true, Feasible: 1}
		b.refuse(t, pod, c.statuses)
		if c.forget != nil {
			c.forget(b, pod)
		}
		v := b.reporter.Own(pod, view.Verdict{Served: true, Nodes: 2, Findings: c.verdict})
		answer := view.Explain(describe.Pod(pod), v, nil)
		if got := answer.RootCause.Code; got != c.root || len(answer.Candidates) != c.nodes ||
			len(answer.Notes) != c.notes {
			t.Errorf("%s: root %v with the nodes %+v and the notes %q, want %v with %d and %d", name, got,
				answer.Candidates, answer.Notes, c.root, c.nodes, c.notes)
		}
		message := b.condition(t, "p")
		said, _, _ := strings.Cut(message, " {")
		if want := "InsufficientCPU " + said; c.root == why.InsufficientCPU && published != want {
			t.Errorf("%s: published is %q, want %q", name, published, want)
		}
		if c.root == why.InsufficientCPU && !strings.HasPrefix(message, answer.RootCause.Code.String()+": ") {
			t.Errorf("%s: explain says %s, the condition %s", name, answer.RootCause.Code, message)
		}
		published = ""
		b.refuse(t, pod, c.statuses) // a repetition
		if c.root == why.InsufficientCPU && published == "" {
			t.Errorf("%s: nothing is published of a repeated refusal", name)
		}
	}
}

func TestFiltersAreAskedAgainOnlyForAnotherRefusalOrAfterAMinute(t *testing.T) {
	b := newBench(t, "a", "b")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	b.verdict.Findings = []why.Finding{exclusive("a"), exclusive("b")}
	b.takes = 10 * time.Millisecond
	for _, s := range []struct {
		text      string
		after     time.Duration
		b         *fwk.Status
		evaluated int
	}{
		{"a first refusal", 0, full(), 1},
		{"the same again", 30 * time.Second, full(), 1},
		{"another one", time.Second, tainted(), 2},
		{"the first one again, while the rerun rests", 80 * time.Millisecond, full(), 2},
		{"and after the rest", 10 * time.Millisecond, full(), 3},
		{"the same after a minute", time.Minute, full(), 4},
	} {
		b.now = b.now.Add(s.after)
		b.refuse(t, pod, map[string]*fwk.Status{"a": full(), "b": s.b})
		if b.evaluated != s.evaluated {
			t.Fatalf("%s: filters asked %d times so far, want %d", s.text, b.evaluated, s.evaluated)
		}
	}
}

// TestTheFirstReportOfEachPodNamesTheRootCause: also of pods that are refused while the filters rest, by a run of all
// filters for each signature.
func TestTheFirstReportOfEachPodNamesTheRootCause(t *testing.T) {
	b := newBench(t, "a")
	b.verdict.Findings, b.takes = []why.Finding{exclusive("a")}, 10*time.Millisecond
	for i, s := range []struct {
		signature string
		evaluated int
	}{{"", 1}, {"", 2}, {"x", 3}, {"x", 3}, {"y", 4}, {"x", 4}} {
		pod := testPod("p" + strconv.Itoa(i))
		testkit.Check(t, b.client.Tracker().Add(pod))
		b.signature = s.signature
		b.refuse(t, pod, map[string]*fwk.Status{"a": full()})
		if b.evaluated != s.evaluated {
			t.Errorf("pod %d of signature %q: filters ran %d times so far, want %d", i, s.signature, b.evaluated,
				s.evaluated)
		}
		if got := b.condition(t, pod.Name); !strings.HasPrefix(got, "InsufficientExclusiveCPU: 0/1 nodes") {
			t.Errorf("pod %d of signature %q: the condition says %q, want the root cause", i, s.signature, got)
		}
	}
	b.now = b.now.Add(repeatAfter)
	pod := testPod("later")
	testkit.Check(t, b.client.Tracker().Add(pod))
	if b.refuse(t, pod, map[string]*fwk.Status{"a": full()}); b.evaluated != 5 {
		t.Errorf("a minute later: filters ran %d times so far, want 5", b.evaluated)
	}
}

// TestARootCauseIsKeptWhileTheFiltersRest: an attempt that is refused otherwise meanwhile does not report the first
// refusal of each node, which hides the root cause. A minute later all filters run in any case.
func TestARootCauseIsKeptWhileTheFiltersRest(t *testing.T) {
	b := newBench(t, "a", "b")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	b.verdict.Findings, b.takes = []why.Finding{exclusive("a"), exclusive("b")}, 10*time.Second
	b.refuse(t, pod, map[string]*fwk.Status{"a": full(), "b": full()})
	said := b.condition(t, "p")
	for _, s := range []struct {
		after     time.Duration
		evaluated int
	}{{59 * time.Second, 1}, {time.Second, 2}} {
		b.now = b.now.Add(s.after)
		b.refuse(t, pod, map[string]*fwk.Status{"a": full(), "b": tainted()})
		if got := b.condition(t, "p"); b.evaluated != s.evaluated || got != said {
			t.Errorf("after %s more: filters ran %d times, want %d; the condition says %q, want %q", s.after,
				b.evaluated, s.evaluated, got, said)
		}
	}
}

// TestEachRefusalOfAPodAsSuchIsItsOwn: what is analyzed once for pods that are refused in the same words is not said of
// others.
func TestEachRefusalOfAPodAsSuchIsItsOwn(t *testing.T) {
	r := newBench(t, "a").reporter
	one := why.Finding{Reason: why.Reason{Code: why.BadAnnotation}, Plugin: "Coscheduling", Phase: why.PreFilter}
	for range 2 {
		for _, detail := range []string{"one", "one", "two"} {
			for _, nodes := range []int{0, 3} {
				f := one
				f.Detail = detail
				want := analyze([]why.Finding{f}, nil, nodes)
				got := r.analyzeSingle(f, nodes)
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(analysis{}, pluginCode{})); diff != "" {
					t.Errorf("%s, %d nodes (-want +got):\n%s", detail, nodes, diff)
				}
			}
		}
	}
}

func TestRefusedPodsAreCountedUntilTheyGo(t *testing.T) {
	b := newBench(t, "a")
	p, q := testPod("p"), testPod("q")
	b.refuse(t, p, map[string]*fwk.Status{"a": full()})
	b.refuse(t, q, map[string]*fwk.Status{"a": tainted()})
	if diff := cmp.Diff(map[why.Code]int{why.InsufficientCPU: 1, why.TaintToleration: 1},
		b.reporter.byCode()); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	b.reporter.forget(p)
	if diff := cmp.Diff(map[why.Code]int{why.TaintToleration: 1}, b.reporter.byCode()); diff != "" {
		t.Errorf("after one went (-want +got):\n%s", diff)
	}
}

func TestRefusalsBeyondTheBudgetSendNoEventButTheirCondition(t *testing.T) {
	b := newBench(t, "a")
	for i := range eventsBurst + 20 {
		pod := testPod("p" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
		testkit.Check(t, b.client.Tracker().Add(pod))
		b.refuse(t, pod, map[string]*fwk.Status{"a": full()})
		if b.condition(t, pod.Name) == "" {
			t.Fatalf("pod %d has no condition", i)
		}
	}
	if got := len(b.framework.notes.all); got != eventsBurst {
		t.Errorf("got %d Events of %d refusals at one moment, want %d", got, eventsBurst+20, eventsBurst)
	}
}

func TestNominationIsWrittenWhenTheCauseIsNotReportedAgain(t *testing.T) {
	b := newBench(t, "a")
	pod := testPod("p")
	b.reporter.pending[pod.UID] = attempt{}
	testkit.Check(t, b.client.Tracker().Add(pod))
	c := &conditions{reporting: &reporting{Framework: b.framework, ctx: t.Context(), reporter: b.reporter}}
	_, err := c.PatchPodStatus(pod, []*corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}},
		&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "a"})
	testkit.Check(t, err)
	got, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	testkit.Check(t, err)
	if got.Status.NominatedNodeName != "a" || len(got.Status.Conditions) != 0 {
		t.Errorf("got %+v, want the node alone", got.Status)
	}
}

func TestErrorsAreLeftToUpstream(t *testing.T) {
	b := newBench(t, "a")
	info, err := framework.NewPodInfo(testPod("p"))
	testkit.Check(t, err)
	b.handle(t.Context(), b.framework, &framework.QueuedPodInfo{PodInfo: info}, fwk.NewStatus(fwk.Error, "boom"), nil,
		b.now)
	if diff := cmp.Diff([]string{"FailedScheduling boom"}, b.framework.notes.all); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	var got []time.Duration
	for attempts := range 7 {
		c := &config.KubeSchedulerConfiguration{PodInitialBackoffSeconds: 1, PodMaxBackoffSeconds: 10}
		got = append(got, backoff(c, attempts)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{1, 1, 2, 4, 8, 10, 10}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

// A pod that Permit rejects fails in its binding cycle, a goroutine of its own.
func TestFailedBindingCyclesReportBesideTheSchedulingCycle(t *testing.T) {
	b := newBench(t, "a")
	var evaluated atomic.Int32
	b.reporter.filters = func(_ context.Context, f framework.Framework, status *fwk.Status) ([]why.Finding,
		view.Verdict, error,
	) {
		evaluated.Add(1)
		return b.answer(f, status)
	}
	b.handle = b.reporter.Wrap(func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status,
		*fwk.NominatingInfo, time.Time,
	) {
	})
	var cycles sync.WaitGroup
	for i := range 4 {
		cycles.Go(func() { b.refuse(t, testPod(fmt.Sprintf("p%d", i)), map[string]*fwk.Status{"a": full()}) })
	}
	cycles.Wait()
	if n := evaluated.Load(); n != 4 {
		t.Errorf("filters that took no time ran for %d pods, want 4", n)
	}
}

// refusedPods is a queue of pods that no event has brought back since they were refused.
type refusedPods struct{ pods []*corev1.Pod }

func (q refusedPods) PodsInActiveQ() []*corev1.Pod     { return nil }
func (q refusedPods) PodsInBackoffQ() []*corev1.Pod    { return nil }
func (q refusedPods) UnschedulablePods() []*corev1.Pod { return q.pods }
func (q refusedPods) InFlightPods() []*corev1.Pod      { return nil }

// TestARefusedReservationIsNotShownAsGated: explain showed the pod of a refused Reservation as gated and never
// attempted, since attempts are counted for pods only.
func TestARefusedReservationIsNotShownAsGated(t *testing.T) {
	b := newBench(t, "a")
	pod := testPod("p")
	testkit.Check(t, b.client.Tracker().Add(pod))
	b.refuse(t, pod, map[string]*fwk.Status{"a": full()})
	r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}}
	r.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	reserve := convert.PendingReservePod(r, "tenon-scheduler", false)
	q := refusedPods{pods: []*corev1.Pod{pod, reserve}}
	if got := b.reporter.Queued(reserve, q, nil); got != nil {
		t.Errorf("a Reservation that was refused: got %+v, want no place in the queue", got)
	}
	if got := b.reporter.Queued(pod, q, nil); got == nil || got.Place != "unschedulable" || got.Attempts != 1 {
		t.Errorf("a pod that was refused: got %+v, want unschedulable after one attempt", got)
	}
}
