package refusals

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// besideBench is a bench whose profile remembers refusals, and whose reporter explains them beside the attempts.
type besideBench struct {
	*bench
	profile  *besideProfile
	explains []string // the text of each refusal that was explained beside
	// placed is what the scheduler's cache says of a pod; during runs within an explanation.
	placed func(*corev1.Pod) bool
	during func()
}

// besideProfile says of each refusal what its fields say.
type besideProfile struct {
	summarized
	factory informers.SharedInformerFactory
	cacher  fwk.APICacher
}

func (p *besideProfile) SharedInformerFactory() informers.SharedInformerFactory { return p.factory }
func (p *besideProfile) APICacher() fwk.APICacher                               { return p.cacher }

func newBesideBench(t *testing.T) *besideBench {
	t.Helper()
	b := &besideBench{bench: newBench(t, "a", "b"), placed: func(*corev1.Pod) bool { return false }, during: func() {}}
	b.signature = "s"
	b.profile = &besideProfile{
		summarized: summarized{b.framework, "2 Insufficient cpu", 1},
		factory:    informers.NewSharedInformerFactory(b.client, 0),
	}
	b.verdict.Findings = []why.Finding{exclusive("a"), exclusive("b")}
	b.reporter.placed = func(pod *corev1.Pod) bool { return b.placed(pod) }
	b.reporter.beside = func(_ context.Context, _ string, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
		b.explains = append(b.explains, status.Message())
		b.during()
		return b.answer(b.framework, status)
	}
	return b
}

// pod makes a pod that the API server and the informer have.
func (b *besideBench) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := testPod(name)
	testkit.Check(t, b.client.Tracker().Add(pod))
	testkit.Check(t, b.profile.factory.Core().V1().Pods().Informer().GetStore().Add(pod))
	return pod
}

// change changes a pod on the API server; the informer does not know.
func (b *besideBench) change(t *testing.T, pod *corev1.Pod, change func(*corev1.Pod)) {
	t.Helper()
	now := pod.DeepCopy()
	change(now)
	now.ResourceVersion += "1"
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	testkit.Check(t, b.client.Tracker().Update(pods, now, "default"))
}

// checkVersions lets the API server refuse patches of older versions, as the real one does. Those of attempts name no
// version.
func (b *besideBench) checkVersions() {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	b.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		now, err := b.client.Tracker().Get(pods, "default", patch.GetName())
		if err != nil {
			return true, nil, err
		}
		pod := now.(*corev1.Pod)
		named := fmt.Sprintf(`"resourceVersion":%q,"uid":%q`, pod.ResourceVersion, pod.UID)
		text := string(patch.GetPatch())
		if strings.Contains(text, named) || !strings.Contains(text, "resourceVersion") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), patch.GetName(), nil)
	})
}

// attemptOn is a failed attempt on a pod that both nodes refuse with these words.
func attemptOn(pod *corev1.Pod, signature, words string) (*framework.QueuedPodInfo, *fwk.Status, error) {
	statuses := map[string]*fwk.Status{}
	for _, node := range []string{"a", "b"} {
		statuses[node] = fwk.NewStatus(fwk.Unschedulable, words).WithPlugin("NodeResourcesFit")
	}
	fit := &framework.FitError{Pod: pod, NumAllNodes: 2, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewNodeToStatus(statuses, nil),
	}}
	info, err := framework.NewPodInfo(pod)
	return &framework.QueuedPodInfo{
			PodInfo: info, QueueingParams: framework.QueueingParams{Attempts: 1},
			PodSignature: fwk.PodSignature(signature),
		},
		fwk.NewStatus(fwk.Unschedulable).WithError(fit), err
}

// refuse is an attempt on a pod that both nodes refuse with these words.
func (b *besideBench) refuse(t *testing.T, pod *corev1.Pod, words string) {
	t.Helper()
	queued, status, err := attemptOn(pod, b.signature, words)
	testkit.Check(t, err)
	b.handle(t.Context(), b.profile, queued, status, nil, b.now)
}

// drain makes all explanations that are due.
func (b *besideBench) drain(t *testing.T) {
	t.Helper()
	for b.reporter.explainNext(t.Context()) {
	}
}

func TestAnAttemptLeavesItsExplanationAndNothingUnfinishedIsShown(t *testing.T) {
	b := newBesideBench(t)
	p, q := b.pod(t, "p"), b.pod(t, "q")
	b.refuse(t, p, "Insufficient cpu")
	b.refuse(t, q, "Insufficient cpu")
	if b.evaluated != 0 || len(b.framework.notes.all) != 0 || b.condition(t, "p") != "" ||
		len(b.reporter.byCode()) != 0 {
		t.Fatalf("within the attempt: filters ran %d times, Events %q, condition %q, want nothing", b.evaluated,
			b.framework.notes.all, b.condition(t, "p"))
	}
	if a, ok := b.reporter.last(p.UID); !ok || a.attempts != 1 || a.at != b.now {
		t.Errorf("got %+v, want the attempt", a)
	}
	b.drain(t)
	want := "InsufficientExclusiveCPU: 0/2 nodes are available: "
	for i, name := range []string{"p", "q"} {
		if got := b.condition(t, name); !strings.HasPrefix(got, want) ||
			!strings.Contains(b.framework.notes.all[i], got) {
			t.Errorf("%s: condition %q, Events %q", name, got, b.framework.notes.all)
		}
	}
	if len(b.explains) != 1 || b.reporter.byCode()[why.InsufficientExclusiveCPU] != 2 {
		t.Errorf("got explanations %q and counts %v, want one for both pods", b.explains, b.reporter.byCode())
	}
	b.refuse(t, b.pod(t, "r"), "Insufficient cpu")
	if got := b.condition(t, "r"); !strings.HasPrefix(got, want) || len(b.explains) != 1 {
		t.Errorf("a third pod: condition %q after %d explanations, want the known one at once", got, len(b.explains))
	}
}

// TestAPodWaitsForItsConditionUntilItsNextAttempt: an attempt on a pod for which an explanation is due explains itself.
// What is due then counts its attempt, and writes nothing older.
func TestAPodWaitsForItsConditionUntilItsNextAttempt(t *testing.T) {
	b := newBesideBench(t)
	decided := 0
	b.reporter.decided = func(string, string) { decided++ }
	p := b.pod(t, "p")
	b.refuse(t, p, "Insufficient cpu")
	if b.condition(t, "p") != "" || decided != 0 {
		t.Fatalf("the first attempt has written %q and counted %d", b.condition(t, "p"), decided)
	}
	b.now = b.now.Add(time.Second)
	b.profile.hash++
	b.refuse(t, p, "Insufficient memory")
	got := b.condition(t, "p")
	if got == "" || b.evaluated != 1 || decided != 1 {
		t.Fatalf("after the next attempt: condition %q, filters ran %d times, %d counted", got, b.evaluated, decided)
	}
	b.drain(t)
	if again := b.condition(t, "p"); again != got || len(b.framework.notes.all) != 1 || decided != 2 {
		t.Errorf("afterwards: condition %q, Events %q, %d counted", again, b.framework.notes.all, decided)
	}
}

func TestPodsShareAnExplanationIfTheyAreRefusedForTheSameCauses(t *testing.T) {
	b := newBesideBench(t)
	for i, words := range []string{"Insufficient cpu", "Insufficient cpu", "Insufficient memory"} {
		b.profile.hash = uint64(len(words))
		b.refuse(t, b.pod(t, fmt.Sprint(i)), words)
	}
	if len(b.reporter.due.explanations) != 2 {
		t.Fatalf("%d explanations are due, want one for each cause", len(b.reporter.due.explanations))
	}
	b.drain(t)
	if len(b.explains) != 2 || len(b.framework.notes.all) != 3 ||
		!strings.Contains(b.explains[0], "cpu") || !strings.Contains(b.explains[1], "memory") {
		t.Errorf("got explanations %q and Events %q", b.explains, b.framework.notes.all)
	}
}

// TestWhereFiltersFailTheAttemptIsReported: with the codes and the number of nodes that it had.
func TestWhereFiltersFailTheAttemptIsReported(t *testing.T) {
	for _, beside := range []bool{false, true} {
		b := newBesideBench(t)
		failed := func(f framework.Framework, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
			first, _, _ := b.answer(f, status)
			return first, view.Verdict{}, errors.New("no snapshot")
		}
		b.reporter.beside = func(_ context.Context, _ string, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
			return failed(b.framework, status)
		}
		b.reporter.filters = func(_ context.Context, f framework.Framework, status *fwk.Status) ([]why.Finding,
			view.Verdict, error,
		) {
			return failed(f, status)
		}
		if !beside {
			b.signature = ""
		}
		b.refuse(t, b.pod(t, "p"), "Insufficient cpu")
		if got := b.condition(t, "p"); (got == "") != beside {
			t.Fatalf("beside %t: the condition is %q within the attempt", beside, got)
		}
		b.drain(t)
		if got := b.condition(t, "p"); !strings.HasPrefix(got, "InsufficientCPU: 0/2 nodes are available: 2 ") {
			t.Errorf("beside %t: the condition is %q", beside, got)
		}
	}
}

// TestANominationIsWrittenWithinTheAttempt: other pods must respect it from then on.
func TestANominationIsWrittenWithinTheAttempt(t *testing.T) {
	b := newBesideBench(t)
	b.checkVersions()
	queued, status, err := attemptOn(b.pod(t, "p"), "s", "Insufficient cpu")
	testkit.Check(t, err)
	b.handle(t.Context(), b.profile, queued, status,
		&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "a"}, b.now)
	nominated := func() string {
		pod, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		testkit.Check(t, err)
		return pod.Status.NominatedNodeName
	}
	if nominated() != "a" || b.condition(t, "p") != "" {
		t.Errorf("within the attempt: nominated to %q, condition %q", nominated(), b.condition(t, "p"))
	}
	b.drain(t)
	if nominated() != "a" || b.condition(t, "p") == "" {
		t.Errorf("afterwards: nominated to %q, condition %q", nominated(), b.condition(t, "p"))
	}
}

func TestAttemptsExplainThemselvesWithAsynchronousCalls(t *testing.T) {
	b := newBesideBench(t)
	b.profile.cacher = &conditions{reporting: &reporting{reporter: b.reporter, ctx: t.Context()}}
	b.refuse(t, b.pod(t, "p"), "Insufficient cpu")
	if b.evaluated != 1 || len(b.reporter.due.explanations) != 0 {
		t.Errorf("filters ran %d times, %d explanations are due", b.evaluated, len(b.reporter.due.explanations))
	}
}

func TestAttemptsExplainThemselvesWhileTooManyExplanationsAreDue(t *testing.T) {
	b := newBesideBench(t)
	for i := range tablesKept + 3 {
		b.signature = fmt.Sprint(i)
		b.refuse(t, b.pod(t, b.signature), "Insufficient cpu")
	}
	if b.evaluated != 3 || len(b.reporter.due.explanations) != tablesKept {
		t.Fatalf("filters ran %d times, %d explanations are due", b.evaluated, len(b.reporter.due.explanations))
	}
	b.drain(t)
	for i := range tablesKept + 3 {
		if b.condition(t, fmt.Sprint(i)) == "" {
			t.Errorf("pod %d has no condition", i)
		}
	}
}

func TestExplanationsOfOneTableAreDueTogether(t *testing.T) {
	b := newBesideBench(t)
	_, status, err := attemptOn(b.pod(t, "first"), b.signature, "Insufficient cpu")
	testkit.Check(t, err)
	for i := range 2 * tablesKept {
		b.signature = fmt.Sprint("size ", i)
		queued, own, err := attemptOn(b.pod(t, b.signature), b.signature, "Insufficient cpu")
		testkit.Check(t, err)
		fitOf(own).Diagnosis.NodeToStatus = fitOf(status).Diagnosis.NodeToStatus
		b.handle(t.Context(), b.profile, queued, own, nil, b.now)
	}
	if due := b.reporter.due; b.evaluated != 0 || len(due.explanations) != 2*tablesKept || len(due.tables) != 1 {
		t.Fatalf("filters ran %d times, %d explanations of %d tables are due", b.evaluated, len(due.explanations),
			len(due.tables))
	}
	b.drain(t)
	if len(b.explains) != 2*tablesKept || len(b.reporter.due.tables) != 0 {
		t.Errorf("%d explanations, %d tables are kept", len(b.explains), len(b.reporter.due.tables))
	}
}

// TestWhatBecomesOfAPodMeanwhile lets something happen to a pod after its attempt, before or while it is explained.
func TestWhatBecomesOfAPodMeanwhile(t *testing.T) {
	store := func(b *besideBench) cache.Store { return b.profile.factory.Core().V1().Pods().Informer().GetStore() }
	says := func(message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message,
			}}
		}
	}
	const explained = "InsufficientExclusiveCPU: "
	for text, test := range map[string]struct {
		happens   func(*testing.T, *besideBench, *corev1.Pod)
		condition string // a prefix of it afterwards
		event     bool
	}{
		"nothing": {func(*testing.T, *besideBench, *corev1.Pod) {}, explained, true},
		"it is bound, as the informer knows": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			b.change(t, p, object.On("a"))
			bound := p.DeepCopy()
			object.On("a")(bound)
			testkit.Check(t, store(b).Update(bound))
		}, "", false},
		"it is bound, as only the scheduler knows": {func(_ *testing.T, b *besideBench, p *corev1.Pod) {
			b.placed = func(placed *corev1.Pod) bool { return placed.UID == p.UID }
		}, "", false},
		"another scheduler binds it, as only the API server knows": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			b.change(t, p, object.On("a"))
		}, "", true},
		"another label": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			b.change(t, p, object.Label("a", "b"))
		}, explained, true},
		"another process leads and explains it": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			b.change(t, p, says("of the leader"))
		}, "of the leader", true},
		"the informer is behind what this process wrote": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			last := b.reporter.pending[p.UID]
			last.said, last.root.Code = "of this process", why.InsufficientCPU
			b.reporter.pending[p.UID] = last
			b.change(t, p, says("of this process"))
		}, explained, true},
		"it is gone": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			testkit.Check(t, store(b).Delete(p))
			b.reporter.forget(p)
		}, "", false},
		"it is gone, as only the API server knows": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			testkit.Check(t, b.client.Tracker().Delete(pods, p.Namespace, p.Name))
			testkit.Check(t, b.client.Tracker().Add(object.Pod("p", object.UID("another"))))
		}, "", true},
		"another pod has its name": {func(t *testing.T, b *besideBench, p *corev1.Pod) {
			next := p.DeepCopy()
			next.UID = "another"
			testkit.Check(t, store(b).Update(next))
			b.change(t, p, object.UID("another"))
		}, "", false},
	} {
		for at, after := range map[string]bool{"before": true, "while": false} {
			t.Run(text+", "+at+" it is explained", func(t *testing.T) {
				b := newBesideBench(t)
				b.checkVersions()
				p := b.pod(t, "p")
				b.refuse(t, p, "Insufficient cpu")
				if after {
					test.happens(t, b, p)
				} else {
					b.during = func() { test.happens(t, b, p) }
				}
				b.drain(t)
				got := b.condition(t, "p")
				if !strings.HasPrefix(got, test.condition) || (got == "") != (test.condition == "") ||
					len(b.framework.notes.all) > 0 != test.event {
					t.Errorf("got the condition %q and Events %q", got, b.framework.notes.all)
				}
				if last := b.reporter.pending[p.UID]; last.due != nil {
					t.Error("an explanation is due for ever")
				}
			})
		}
	}
}

// TestTheGenerationIsThatOfTheAttempt: what is written of a pod that was changed meanwhile is not about the change.
func TestTheGenerationIsThatOfTheAttempt(t *testing.T) {
	b := newBesideBench(t)
	p := b.pod(t, "p")
	p.Generation = 3
	b.refuse(t, p, "Insufficient cpu")
	changed := p.DeepCopy()
	changed.Generation = 4
	testkit.Check(t, b.profile.factory.Core().V1().Pods().Informer().GetStore().Update(changed))
	b.drain(t)
	now, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	testkit.Check(t, err)
	if got := now.Status.Conditions[0].ObservedGeneration; got != 3 {
		t.Errorf("got generation %d, want 3", got)
	}
}

// TestNothingIsWrittenAfterTheEnd: an explanation that the end cuts off may be wrong, and another process may lead.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	b := newBesideBench(t)
	b.refuse(t, b.pod(t, "p"), "Insufficient cpu")
	b.signature = "another"
	b.refuse(t, b.pod(t, "q"), "Insufficient cpu")
	ctx, cancel := context.WithCancel(t.Context())
	b.during = cancel
	for b.reporter.explainNext(ctx) {
	}
	if b.condition(t, "p") != "" || len(b.framework.notes.all) > 0 || len(b.explains) != 1 {
		t.Errorf("got the condition %q, Events %q and explanations %q", b.condition(t, "p"), b.framework.notes.all,
			b.explains)
	}
}

func TestRunExplainsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBesideBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.reporter.Run(ctx)
		}()
		for i := range 3 {
			name := fmt.Sprint(i)
			b.signature = name
			b.refuse(t, b.pod(t, name), "Insufficient cpu")
			synctest.Wait()
			if b.condition(t, name) == "" {
				t.Errorf("pod %s has no condition", name)
			}
			b.now = b.now.Add(time.Second)
		}
		cancel()
		<-ended
	})
}

// TestEveryPodThatWaitsHasACondition lets attempts fail while explanations are made, with random signatures and causes,
// and pods be placed and deleted. At the end each pod that waits has a condition, and each attempt was counted.
func TestEveryPodThatWaitsHasACondition(t *testing.T) {
	synctest.Test(t, attemptsBesideExplanations)
}

func attemptsBesideExplanations(t *testing.T) {
	b := newBesideBench(t)
	b.checkVersions()
	var counted, attempts atomic.Int64
	var mu sync.Mutex // guards gone
	gone := map[types.UID]bool{}
	b.reporter.clock, b.reporter.decided = clock.RealClock{}, func(string, string) { counted.Add(1) }
	b.reporter.filters = func(_ context.Context, f framework.Framework, status *fwk.Status) ([]why.Finding,
		view.Verdict, error,
	) {
		return b.answer(f, status)
	}
	b.reporter.beside = func(_ context.Context, _ string, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
		return b.answer(b.framework, status)
	}
	b.reporter.placed = func(pod *corev1.Pod) bool {
		mu.Lock()
		defer mu.Unlock()
		return gone[pod.UID]
	}
	var pods []*corev1.Pod
	for i := range 60 {
		pods = append(pods, b.pod(t, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.reporter.Run(ctx) })
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		pod, cause := pods[rnd.IntN(len(pods))], rnd.IntN(3)
		if rnd.IntN(100) == 0 {
			mu.Lock()
			gone[pod.UID] = true
			mu.Unlock()
			b.reporter.forget(pod)
		}
		if b.reporter.placed(pod) {
			continue
		}
		words := []string{"Insufficient cpu", "Insufficient memory", "Insufficient gpus"}[cause]
		queued, status, err := attemptOn(pod, fmt.Sprint(rnd.IntN(50)), words)
		testkit.Check(t, err)
		profile := *b.profile
		profile.hash = uint64(cause)
		b.handle(ctx, &profile, queued, status, nil, time.Now())
		attempts.Add(1)
	}
	synctest.Wait()
	cancel()
	running.Wait()
	if counted.Load() != attempts.Load() {
		t.Errorf("%d attempts were counted, want %d", counted.Load(), attempts.Load())
	}
	waiting := 0
	for _, pod := range pods {
		if !gone[pod.UID] {
			waiting++
			if b.condition(t, pod.Name) == "" {
				t.Errorf("pod %s waits and has no condition", pod.Name)
			}
		}
	}
	if waiting < 20 {
		t.Errorf("only %d pods wait", waiting)
	}
}
