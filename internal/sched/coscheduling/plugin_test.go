package coscheduling_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func member(name, gangName, least string) *corev1.Pod {
	p := object.Pod("ns/"+name, object.UID("uid-"+name))
	p.Annotations[annotation.GangName], p.Annotations[annotation.GangMinAvailable] = gangName, least
	return p
}

// handle is the scheduling queue.
type handle struct {
	fwk.Handle
	activated []string
}

func (*handle) GetWaitingPod(types.UID) fwk.WaitingPod { return nil }

func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	h.activated = append(h.activated, slices.Sorted(maps.Keys(pods))...)
}

func conclude(g *kube.Gangs, tried, placed []string, f gang.Failure, now time.Time) {
	g.Update(func(s *gang.State) gang.Effects { return s.Conclude(tried, placed, f, now) })
}

func expire(g *kube.Gangs, now time.Time) {
	g.Update(func(s *gang.State) gang.Effects { return s.Expire(now) })
}

func lose(g *kube.Gangs, uid string) {
	g.Update(func(s *gang.State) gang.Effects { return s.Lose(uid, why.Finding{}) })
}

func newPlugin(tb testing.TB) (*coscheduling.Plugin, *kube.Gangs) {
	tb.Helper()
	gangs := kube.NewGangs()
	p, err := coscheduling.Factory(gangs, kube.NewQuotas(time.Now))(tb.Context(), nil, &handle{})
	if err != nil {
		tb.Fatal(err)
	}
	return p.(*coscheduling.Plugin), gangs
}

func TestPodsOfAnIncompleteGangAreHeldWithAReason(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	inObject := member("o", "", "")
	inObject.Annotations, inObject.Labels = nil, map[string]string{annotation.PodGroup: "none"}
	listing := member("l", "lists", "1")
	listing.Annotations[annotation.GangGroups] = `["ns/lists","ns/other"]`
	for _, c := range []struct {
		pod  *corev1.Pod
		code why.Code
		text string
	}{
		{member("a", "g", "2"), why.GangNotReady, "gang ns/g has 1 of the 2 members that must start together"},
		{member("b", "g", "2"), why.None, ""},
		{member("f", "faulty", "none"), why.BadAnnotation, `"none"`},
		{inObject, why.GangNotFound, "PodGroup ns/none does not exist"},
		{listing, why.GangGroupNotMutual, "gang ns/other, which the pod's gang lists, does not exist or lists other"},
		{object.Pod("ns/plain"), why.None, ""},
	} {
		gangs.PutPod(c.pod)
		status := p.PreEnqueue(t.Context(), c.pod)
		if c.code == why.None {
			if !status.IsSuccess() {
				t.Errorf("%s is held: %v", c.pod.Name, status)
			}
			continue
		}
		found := refusals.Findings(c.pod, nil, why.PreEnqueue, status, coscheduling.Name)
		if status.Code() != fwk.UnschedulableAndUnresolvable || len(found) != 1 || found[0].Code != c.code ||
			!strings.Contains(found[0].Detail, c.text) {
			t.Errorf("%s: %v, %+v, want %v, %s", c.pod.Name, status, found, c.code, c.text)
		}
	}
}

func TestTheQueueIsAskedAgainForTheMembersOfACompleteGang(t *testing.T) {
	t.Parallel()
	gangs, h := kube.NewGangs(), &handle{}
	factory := coscheduling.Factory(gangs, kube.NewQuotas(time.Now))
	for range 2 { // profiles
		if _, err := factory(t.Context(), nil, h); err != nil {
			t.Fatal(err)
		}
	}
	gangs.PutPod(member("a", "g", "2"))
	gangs.PutPod(member("b", "g", "2"))
	if want := []string{"ns/a", "ns/b"}; !slices.Equal(h.activated, want) {
		t.Errorf("activated %v, want %v", h.activated, want)
	}
}

func TestArgumentsThatCannotBeUsedEndTheStart(t *testing.T) {
	t.Parallel()
	factory := coscheduling.Factory(kube.NewGangs(), kube.NewQuotas(time.Now))
	for i, c := range []struct{ raw, want string }{
		{`{"defaultMatchPolicy":"x"}`, "arguments of Coscheduling"},
		{`{"defaultMatchPolicy":"only-waiting"}`, ""},
		{`{"defaultMatchPolicy":"only-waiting"}`, ""}, // of a second profile
		{`{}`, "equal arguments"},
	} {
		_, err := factory(t.Context(), &runtime.Unknown{Raw: []byte(c.raw)}, &handle{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("call %d: %v, want %q", i, err, c.want)
		}
	}
}

func TestNoProfileHasTwoOwnersOfGangs(t *testing.T) {
	t.Parallel()
	const groups, trees = features.GenericWorkload, features.CompositePodGroup
	gates := func(on featuregate.Feature) featuregate.FeatureGate {
		g := featuregate.NewFeatureGate()
		if err := g.Add(map[featuregate.Feature]featuregate.FeatureSpec{
			groups: {Default: on == groups, PreRelease: featuregate.Alpha},
			trees:  {Default: on == trees, PreRelease: featuregate.Alpha},
		}); err != nil {
			t.Fatal(err)
		}
		return g
	}
	with := func(enabled ...string) (set config.PluginSet) {
		for _, name := range enabled {
			set.Enabled = append(set.Enabled, config.Plugin{Name: name})
		}
		return set
	}
	const ours, theirs = coscheduling.Name, names.GangScheduling
	for name, c := range map[string]struct {
		plugins config.Plugins
		on      featuregate.Feature
		want    string
	}{
		"ours":               {config.Plugins{Permit: with("Other", ours)}, "", ""},
		"theirs":             {config.Plugins{Permit: with(theirs), PreEnqueue: with(theirs)}, groups, ""},
		"both":               {config.Plugins{Permit: with(ours, theirs)}, "", "plugin GangScheduling "},
		"both, one a gate":   {config.Plugins{Permit: with(ours)}, groups, "feature gate GenericWorkload "},
		"both, one of trees": {config.Plugins{Permit: with(ours)}, trees, "feature gate CompositePodGroup "},
		"theirs in the queue alone": {
			config.Plugins{Permit: with(ours), PreEnqueue: with(ours, theirs)}, groups, "plugin GangScheduling ",
		},
	} {
		err := coscheduling.Exclusive(&c.plugins, gates(c.on))
		want := "plugin Coscheduling and " + c.want + "are both enabled"
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// writer is Held with a fake API server that counts what is written.
type writer struct {
	*coscheduling.Held
	clock   *testclock.FakeClock
	events  *events.FakeRecorder
	patches map[string][]string // messages of conditions, by pod
	reasons map[string]string   // of the last condition, by pod
	cleared []string            // pods whose nominations were ended
	nodes   map[string]string   // that are nominated, by pod
	leading bool
	fails   bool
}

func newWriter(t *testing.T, gangs *kube.Gangs) *writer {
	t.Helper()
	w := &writer{
		clock: testclock.NewFakeClock(time.Unix(1e9, 0)), events: events.NewFakeRecorder(1000),
		patches: map[string][]string{}, reasons: map[string]string{}, leading: true,
		nodes: map[string]string{},
	}
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if w.fails {
			return true, nil, errors.New("not now")
		}
		patch := a.(clienttesting.PatchAction)
		var p corev1.Pod
		if err := json.Unmarshal(patch.GetPatch(), &p); err != nil {
			t.Error(err)
		}
		if node := p.Status.NominatedNodeName; node != "" {
			w.nodes[patch.GetName()] = node
		}
		if strings.Contains(string(patch.GetPatch()), `"nominatedNodeName":null`) {
			w.cleared = append(w.cleared, patch.GetName())
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				w.patches[patch.GetName()] = append(w.patches[patch.GetName()], c.Message)
				w.reasons[patch.GetName()] = c.Reason
			}
		}
		return true, &corev1.Pod{}, nil
	})
	w.Held = &coscheduling.Held{
		Gangs: gangs, Client: client, Leading: func() bool { return w.leading }, Clock: w.clock,
		Recorder: func(string) events.EventRecorderLogger { return w.events }, Withdraw: func(*corev1.Pod) {},
	}
	return w
}

// pass lets so many seconds go by.
func (w *writer) pass(ctx context.Context, seconds int) {
	for range seconds {
		w.clock.Step(time.Second)
		w.Look(ctx)
	}
}

// F14: a gated pod has no condition and no Event.
func TestAPodThatIsHeldSaysWhy(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	gangs.PutPod(member("a", "g", "3"))
	w.leading = false
	w.pass(t.Context(), 20)
	if len(w.patches) > 0 {
		t.Fatalf("a replica that does not lead writes %v", w.patches)
	}
	w.leading = true
	w.pass(t.Context(), 5)
	if len(w.patches) > 0 {
		t.Fatalf("the reason has lasted for 5 s, and is written: %v", w.patches)
	}
	w.fails = true
	w.pass(t.Context(), 1)
	w.fails = false
	w.pass(t.Context(), 30)
	said := w.patches["a"]
	if len(said) != 1 || !strings.Contains(said[0], "gang ns/g has 1 of the 3 members") ||
		!strings.HasPrefix(said[0], "GangNotReady: ") || len(w.events.Events) != 1 ||
		!strings.HasPrefix(<-w.events.Events, "Warning GangHeld GangNotReady: ") {
		t.Fatalf("conditions %v with %d Events, want one of each", said, len(w.events.Events))
	}
	gangs.PutPod(member("b", "g", "3"))
	w.pass(t.Context(), 20)
	if len(w.patches["a"]) != 1 || len(w.patches["b"]) != 1 {
		t.Errorf("another number: %v, want nothing for a within a minute of the last", w.patches)
	}
	w.pass(t.Context(), 60)
	if said := w.patches["a"]; len(said) != 2 || !strings.Contains(said[1], "2 of the 3") {
		t.Errorf("after a minute: %v", said)
	}
	gangs.PutPod(member("c", "g", "3"))
	before := fmt.Sprint(w.patches)
	w.pass(t.Context(), 120)
	if fmt.Sprint(w.patches) != before {
		t.Errorf("the gang is complete, and %v is written", w.patches)
	}
}

// TestAnAutoscalerActsOnGangsThatLackRoom, and on no gang that waits for its own members, unless that is switched off.
func TestAnAutoscalerActsOnGangsThatLackRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plain bool
		cause why.Code
		want  string // of the pod whose sibling failed
		alone string // of the pod without siblings
	}{
		"no room":                         {false, why.InsufficientCPU, "Unschedulable", "WaitingForGang"},
		"no quota":                        {false, why.QuotaExceeded, "WaitingForGang", "WaitingForGang"},
		"no quota, all are Unschedulable": {true, why.QuotaExceeded, "Unschedulable", "Unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gangs := newPlugin(t)
			w := newWriter(t, gangs)
			w.PlainReasons = c.plain
			gangs.PutPod(member("alone", "other", "2"))
			gangs.PutPod(member("a", "g", "2"))
			gangs.PutPod(member("b", "g", "2"))
			plan, _, _ := gangs.Begin(member("a", "g", "2"))
			cause := why.Finding{Reason: why.Reason{Code: c.cause}}
			conclude(gangs, plan.Members, nil, gang.Failure{UID: "uid-b", Have: 1, Cause: cause}, time.Unix(0, 0))
			w.pass(t.Context(), 10)
			if w.reasons["a"] != c.want || w.reasons["alone"] != c.alone {
				t.Errorf("got %v, want %s for a and %s for alone", w.reasons, c.want, c.alone)
			}
		})
	}
}

// TestAMemberSaysWhichSiblingDidNotFit: the one that did not has its own reason.
func TestAMemberSaysWhichSiblingDidNotFit(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	for _, name := range []string{"a", "b", "c"} {
		gangs.PutPod(member(name, "g", "3"))
	}
	plan, _, _ := gangs.Begin(member("a", "g", "3"))
	first := why.Finding{Reason: why.Reason{Code: why.NodeAffinity}, Detail: "the first refusal of each node"}
	conclude(gangs, plan.Members, nil, gang.Failure{UID: "uid-c", Have: 2, Cause: first}, time.Unix(0, 0))
	full := why.Finding{Reason: why.Reason{Code: why.InsufficientCPU}, Detail: "0/1 nodes are available"}
	rounds := coscheduling.NewRounds(coscheduling.Cluster{Gangs: gangs})
	rounds.Describe(member("c", "g", "3"), full)
	rounds.Describe(member("a", "g", "3"), first)
	w.pass(t.Context(), 10)
	want := []string{"GangSiblingFailed: of gang ns/g only 2 of 3 members fit: pod ns/c does not: 0/1 nodes are " +
		`available. {"code":"GangSiblingFailed","gang":"ns/g","need":3,"placed":2,` +
		`"rootCause":{"pod":"ns/c","code":"InsufficientCPU"}}`}
	for name, want := range map[string][]string{"a": want, "b": want, "c": nil} {
		if got := w.patches[name]; !slices.Equal(got, want) {
			t.Errorf("%s says %q, want %q", name, got, want)
		}
	}
	if n, e := len(w.events.Events), <-w.events.Events; n != 1 || e != "Warning GangRoundFailed "+want[0] {
		t.Errorf("%d Events, the first %q", n, e)
	}
}

// about notes what Events are about.
type about struct {
	*events.FakeRecorder
	sent []string
}

func (a *about) Eventf(o, related runtime.Object, _, reason, _, note string, args ...any) {
	m, _ := meta.Accessor(o)
	text := fmt.Sprintf("%T %s %s", o, m.GetName(), reason)
	if related != nil {
		text += fmt.Sprintf(" (%T) ", related) + fmt.Sprintf(note, args...)
	}
	a.sent = append(a.sent, text)
}

func (a *about) WithLogger(klog.Logger) events.EventRecorderLogger { return a }

// TestAllGangsThatStartTogetherHaveOneEvent for each reason, on the PodGroup that the reason is about.
func TestAllGangsThatStartTogetherHaveOneEvent(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	recorder := &about{FakeRecorder: w.events}
	w.Recorder = func(string) events.EventRecorderLogger { return recorder }
	in := func(name, gangName string) *corev1.Pod {
		p := member(name, "", "")
		p.Labels, p.Annotations = map[string]string{annotation.PodGroup: gangName}, nil
		return p
	}
	for _, name := range []string{"a", "b"} {
		g := object.PodGroup("ns/"+name, 2)
		g.Annotations[annotation.GangGroups] = `["ns/a","ns/b"]`
		gangs.PutGroup(g)
	}
	for _, p := range []*corev1.Pod{in("a0", "a"), in("a1", "a"), in("b0", "b"), member("alone", "c", "2")} {
		gangs.PutPod(p)
	}
	w.pass(t.Context(), 20)
	gangs.PutPod(in("b1", "b"))
	plan, _, _ := gangs.Begin(in("a0", "a"))
	conclude(gangs, plan.Members, nil, gang.Failure{UID: "uid-a1"}, w.clock.Now())
	w.pass(t.Context(), 20)
	gangs.PutPod(in("b2", "b")) // it waits for the same
	w.pass(t.Context(), 20)
	want := []string{
		"*v1.Pod alone GangHeld", "*v1alpha1.PodGroup a GangRoundFailed", "*v1alpha1.PodGroup b GangHeld",
	}
	slices.Sort(recorder.sent)
	if diff := cmp.Diff(want, recorder.sent); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if len(w.patches) != 6 || len(w.patches["a1"]) != 1 || len(w.patches["b2"]) != 1 {
		t.Errorf("conditions %v, want those of each pod that waits for another", w.patches)
	}
}

// TestWhatNonStrictGangsReleasedIsAnEvent: after their waiting time, and for a gang that starts with it.
func TestWhatNonStrictGangsReleasedIsAnEvent(t *testing.T) {
	t.Parallel()
	gangs := kube.NewGangs()
	w := newWriter(t, gangs)
	for _, gangName := range []string{"a", "b"} {
		for i := range 2 {
			p := member(fmt.Sprint(gangName, i), gangName, "2")
			p.Annotations[annotation.GangMode] = "NonStrict"
			gangs.PutPod(p)
		}
		uid := []string{"uid-" + gangName + "0"}
		conclude(gangs, uid, uid, gang.Failure{}, w.clock.Now())
	}
	gangs.Update(func(s *gang.State) gang.Effects { return s.Release("ns/a", []string{"ns/b"}) })
	lose(gangs, "uid-b0")
	w.pass(t.Context(), 7)
	w.clock.Step(time.Hour)
	expire(gangs, w.clock.Now())
	lose(gangs, "uid-a0")
	w.pass(t.Context(), 7)
	var got, late []string
	for len(w.events.Events) > 0 {
		reason, _, _ := strings.Cut(<-w.events.Events, ": ")
		got = append(got, reason)
	}
	for _, a := range w.Client.(*fake.Clientset).Actions() {
		p, ok := a.(clienttesting.PatchAction)
		if ok && strings.Contains(string(p.GetPatch()), annotation.GangTimeout) {
			late = append(late, p.GetName()+" "+string(p.GetPatch()))
		}
	}
	slices.Sort(late)
	if diff := cmp.Diff([]string{
		`a0 {"metadata":{"uid":"uid-a0","annotations":{"gang.scheduling.koordinator.sh/timeout":"true"}}}`,
		`a1 {"metadata":{"uid":"uid-a1","annotations":{"gang.scheduling.koordinator.sh/timeout":"true"}}}`,
	}, late); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	want := []string{
		"Warning GangHeld GangHolding", "Warning GangDeadlockReleased GangDeadlockReleased",
		"Warning GangTimeout GangTimeout",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

// waits is a framework in which one pod waits for a permit.
type waits struct {
	fwk.Handle
	client   *fake.Clientset
	recorder events.EventRecorderLogger
	factory  informers.SharedInformerFactory
}

func (h *waits) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func (h *waits) ClientSet() kubernetes.Interface                { return h.client }
func (h *waits) EventRecorder() events.EventRecorderLogger      { return h.recorder }
func (h *waits) GetPodInPreBind(uid types.UID) fwk.PodInPreBind { return nil }
func (h *waits) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if uid == "uid-waits" {
		return inMemory{}
	}
	return nil
}

type inMemory struct{ fwk.WaitingPod }

func (inMemory) Preempt(plugin, _ string) bool { return plugin == "who" }

// evictionOf is the eviction of a pod for another.
func evictionOf(victim *corev1.Pod) preempt.Eviction {
	return preempt.Eviction{Victim: victim, By: podCandidate{member("urgent", "", "")}, Node: "n0", Plugin: "who"}
}

// podCandidate is a pod that preempts, as upstream has it.
type podCandidate struct{ *corev1.Pod }

func (b podCandidate) UID() types.UID               { return b.Pod.UID }
func (podCandidate) SchedulerName() string          { return "ours" }
func (b podCandidate) Obj() runtime.Object          { return b }
func (b podCandidate) Pods() map[string]*corev1.Pod { return map[string]*corev1.Pod{b.Name: b.Pod} }
func (podCandidate) Priority() int32                { return 7 }
func (podCandidate) Type() string                   { return "pod" }

// TestAVictimIsEvictedAndNotItsNamesake: it gets the condition DisruptionTarget and is deleted by its UID. Its gang
// says for whom.
func TestAVictimIsEvictedAndNotItsNamesake(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	h := &waits{
		client: fake.NewClientset(), recorder: &about{FakeRecorder: events.NewFakeRecorder(9)},
		factory: informers.NewSharedInformerFactory(nil, 0), // it knows none of the victims any more
	}
	victim, gone := member("victim", "g", "2"), member("gone", "g", "2")
	plain := member("plain", "", "")
	plain.Annotations = nil
	var done []string
	h.client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch a := a.(type) {
		case clienttesting.PatchAction:
			var stored corev1.Pod
			if err := json.Unmarshal(a.GetPatch(), &stored); err != nil {
				t.Error(err)
			}
			if c := stored.Status.Conditions; stored.UID == "uid-gone" {
				return true, nil, apierrors.NewConflict(corev1.Resource("pods"), a.GetName(), errors.New("another UID"))
			} else if len(c) == 1 {
				done = append(done, fmt.Sprintf("%s %s %s %s", a.GetName(), stored.UID, c[0].Type, c[0].Reason))
			}
		case clienttesting.DeleteActionImpl:
			done = append(done, fmt.Sprintf("%s %s deleted", a.GetName(), *a.DeleteOptions.Preconditions.UID))
		}
		return true, &corev1.Pod{}, nil
	})
	evictor := coscheduling.NewEvictions(coscheduling.Cluster{Gangs: gangs}).Evictor(h)
	for _, p := range []*corev1.Pod{victim, gone, plain, member("waits", "g", "2")} {
		gangs.PutPod(p)
		rejected, err := evictor.Evict(t.Context(), evictionOf(p))
		if want := p.Name == "waits"; err != nil || rejected != want {
			t.Errorf("%s: rejected in memory %t, want %t: %v", p.Name, rejected, want, err)
		}
	}
	if diff := cmp.Diff([]string{
		"victim uid-victim DisruptionTarget PreemptionByScheduler", "victim uid-victim deleted",
		"plain uid-plain DisruptionTarget PreemptionByScheduler", "plain uid-plain deleted",
	}, done); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"*v1.Pod victim Preempted (*v1.Pod) Preempted by pod ns/urgent on node n0",
		"*v1.Pod victim GangPreempted (*v1.Pod) pod ns/victim of gang ns/g is evicted for pod ns/urgent, of priority 7",
		"*v1.Pod plain Preempted (*v1.Pod) Preempted by pod ns/urgent on node n0",
		"*v1.Pod waits Preempted (*v1.Pod) Preempted by pod ns/urgent on node n0 (in kube-scheduler memory).",
		"*v1.Pod waits GangPreempted (*v1.Pod) pod ns/waits of gang ns/g is evicted for pod ns/urgent, of priority 7",
	}, h.recorder.(*about).sent); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

// TestAVictimIsEvictedOnceItIsKnownToGo: the preemptor is tried again after that, and would have one victim more if the
// informer still said that this one stays.
func TestAVictimIsEvictedOnceItIsKnownToGo(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(cache.Store, *corev1.Pod) error{
		"it goes": func(s cache.Store, p *corev1.Pod) error {
			p.DeletionTimestamp = new(metav1.Now())
			return s.Update(p)
		},
		"it is gone": func(s cache.Store, p *corev1.Pod) error { return s.Delete(p) },
		"another of its name came": func(s cache.Store, p *corev1.Pod) error {
			p.UID = "other"
			return s.Update(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gangs := newPlugin(t)
			h := &waits{
				client: fake.NewClientset(), recorder: events.NewFakeRecorder(9),
				factory: informers.NewSharedInformerFactory(nil, 0),
			}
			victim, store := member("victim", "", ""), h.factory.Core().V1().Pods().Informer().GetStore()
			deleted := make(chan struct{})
			h.client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetVerb() == "delete" {
					close(deleted)
				}
				return true, &corev1.Pod{}, nil
			})
			testkit.Check(t, store.Add(victim))
			evicted := make(chan error, 1)
			go func() {
				evictor := coscheduling.NewEvictions(coscheduling.Cluster{Gangs: gangs}).Evictor(h)
				_, err := evictor.Evict(t.Context(), evictionOf(victim))
				evicted <- err
			}()
			<-deleted
			select {
			case err := <-evicted:
				t.Fatalf("it is evicted before it is known to go: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			testkit.Check(t, then(store, victim.DeepCopy()))
			if err := <-evicted; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAllVictimsOfAGangAreWaitedForAtOnce: until the last one goes, and where the informer learns of none for five
// seconds in all.
func TestAllVictimsOfAGangAreWaitedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &waits{factory: informers.NewSharedInformerFactory(nil, 0)}
		store := h.factory.Core().V1().Pods().Informer().GetStore()
		victims := []*corev1.Pod{member("a", "", ""), member("b", "", ""), member("c", "", "")}
		for _, p := range victims {
			testkit.Check(t, store.Add(p))
		}
		takes := func() time.Duration {
			begun := time.Now()
			coscheduling.UntilAllGo(t.Context(), h, slices.Clone(victims))
			return time.Since(begun)
		}
		if got := takes(); got != 5*time.Second {
			t.Errorf("%s where none is known to go, want 5 s", got)
		}
		go func() {
			for _, p := range victims {
				<-time.After(time.Second)
				if err := store.Delete(p); err != nil {
					t.Error(err)
				}
			}
		}()
		if got := takes().Round(10 * time.Millisecond); got != 3*time.Second {
			t.Errorf("%s where the last one goes after 3 s", got)
		}
	})
}

// TestAMemberThatIsHeldBackKeepsNoNode: nodes were kept for a gang that has lost a member since.
func TestAMemberThatIsHeldBackKeepsNoNode(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	var withdrawn []string
	w.Withdraw = func(p *corev1.Pod) { withdrawn = append(withdrawn, p.Name) }
	nominated := func(name, gangName string) *corev1.Pod {
		p := member(name, gangName, "2")
		p.Status.NominatedNodeName = "n"
		return p
	}
	for _, p := range []*corev1.Pod{
		nominated("a", "short"), nominated("b", "whole"), nominated("c", "whole"), member("d", "late", "2"),
	} {
		gangs.PutPod(p)
	}
	runs := nominated("e", "runs")
	runs.Spec.NodeName = "n"
	gangs.PutPod(runs)
	w.pass(t.Context(), 1)
	if !slices.Equal(withdrawn, []string{"a"}) || !slices.Equal(w.cleared, []string{"a"}) {
		t.Errorf("the nominations of %v are withdrawn and of %v cleared, want that of a alone", withdrawn, w.cleared)
	}
}

// TestAGangEvictsNoPodBeforeItsDelayIsOver: it is tried again for it then.
func TestAGangEvictsNoPodBeforeItsDelayIsOver(t *testing.T) {
	t.Parallel()
	gangs, h := kube.NewGangs(), &handle{}
	args := &runtime.Unknown{Raw: []byte(`{"preemptionDelay":"30s"}`)}
	if _, err := coscheduling.Factory(gangs, kube.NewQuotas(time.Now))(t.Context(), args, h); err != nil {
		t.Fatal(err)
	}
	a := member("a", "g", "1")
	gangs.PutPod(a)
	start := time.Unix(1e9, 0)
	fails := func(after time.Duration) (again time.Time) {
		t.Helper()
		plan, _, refused := gangs.Begin(a)
		if plan == nil {
			t.Fatalf("the gang is not planned: %+v", refused)
		}
		h.activated = nil
		again = coscheduling.PreemptsAgain(gangs, a, start.Add(after))
		f := gang.Failure{UID: "uid-a", Outlook: gang.Short, Again: again}
		conclude(gangs, plan.Members, nil, f, start.Add(after))
		return again
	}
	for _, c := range []struct {
		after time.Duration
		waits bool
	}{{0, true}, {10 * time.Second, true}, {30 * time.Second, false}, {40 * time.Second, false}} {
		again := fails(c.after)
		if c.waits != again.Equal(start.Add(30*time.Second)) || !c.waits && !again.IsZero() {
			t.Errorf("after %v: to be tried again at %v, want that it waits: %t", c.after, again, c.waits)
		}
		if expire(gangs, start.Add(29*time.Second)); len(h.activated) > 0 {
			t.Errorf("%v are tried before the delay is over", h.activated)
		}
	}
	fails(20 * time.Second)
	for range 3 {
		expire(gangs, start.Add(30*time.Second))
	}
	if !slices.Equal(h.activated, []string{"ns/a"}) {
		t.Errorf("when the delay is over %v are tried, want the gang once", h.activated)
	}
}

// TestPodsThatDisagreeAboutTheirGang: the oldest decides, and each of the others says so once.
func TestPodsThatDisagreeAboutTheirGang(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	for name, least := range map[string]string{"a": "3", "b": "3", "c": "2", "d": "4"} {
		gangs.PutPod(member(name, "g", least))
	}
	w.leading = false
	w.pass(t.Context(), 3)
	w.leading = true
	w.pass(t.Context(), 3) // no condition is due
	var said []string
	for len(w.events.Events) > 0 {
		said = append(said, <-w.events.Events)
	}
	slices.Sort(said)
	text := "Warning GangConfigMismatch what the pod says of gang ns/g differs from what ns/a says, which is older " +
		"and counts"
	if !slices.Equal(said, []string{text, text}) {
		t.Errorf("Events %q, want one of each of c and d", said)
	}
	gangs.RemovePod(member("a", "g", "3"))
	gangs.RemovePod(member("b", "g", "3"))
	w.pass(t.Context(), 1)
	if n := len(w.events.Events); n != 0 {
		t.Errorf("%d Events more: d was named before, and c decides", n)
	}
}

// TestManyPodsThatAreHeldAreWrittenAFewAtATime: a burst of 100, and 20 a second.
func TestManyPodsThatAreHeldAreWrittenAFewAtATime(t *testing.T) {
	t.Parallel()
	_, gangs := newPlugin(t)
	w := newWriter(t, gangs)
	for i := range 300 {
		gangs.PutPod(member(fmt.Sprint(i), "g", "1000"))
	}
	w.pass(t.Context(), 7)
	if n := len(w.patches); n < 100 || n > 150 {
		t.Errorf("%d conditions within two seconds, want 100 to 150", n)
	}
	w.pass(t.Context(), 20)
	if n := len(w.patches); n != 300 {
		t.Errorf("%d conditions in the end, want 300", n)
	}
}

// TestTheQueueIsInOrder: the gang's age decides and not that of its pods, members of a gang that has lost some go
// first, and a pod that was tried goes behind those of its second alone.
//
// F19: a gang below its minimum after a node's repair is starved.
func TestTheQueueIsInOrder(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	at := func(second int64) metav1.Time { return metav1.Unix(1_800_000_000+second, 0) }
	created := func(p *corev1.Pod, second int64) *corev1.Pod {
		p.CreationTimestamp = at(second)
		gangs.PutPod(p)
		return p
	}
	single := func(name string, second int64) *corev1.Pod {
		p := member(name, "", "")
		p.Annotations = nil
		return created(p, second)
	}
	old := object.PodGroup("ns/old", 2)
	old.CreationTimestamp = at(2)
	gangs.PutGroup(old)
	ofOld := member("of-old", "", "")
	ofOld.Labels, ofOld.Annotations = map[string]string{annotation.PodGroup: "old"}, nil
	runs := member("runs", "degraded", "2")
	runs.Spec.NodeName = "n"
	created(runs, 3)
	high := int32(1)
	urgent := single("urgent", 200)
	urgent.Spec.Priority = &high
	want := []*corev1.Pod{
		urgent, created(member("of-degraded", "degraded", "2"), 100), single("first", 1), created(ofOld, 50),
		created(member("m0", "young", "2"), 4), created(member("m1", "young", "2"), 60), single("last", 5),
		single("last-tried", 5),
	}
	var queued []fwk.QueuedEntityInfo
	for i, pod := range want {
		info, err := framework.NewPodInfo(pod)
		testkit.Check(t, err)
		queued = append(queued, &framework.QueuedPodInfo{
			PodInfo: info, QueueingParams: framework.QueueingParams{Timestamp: at(300 + int64(i)).Time},
		})
	}
	for i, a := range queued {
		for j, b := range queued {
			if p.Less(a, b) != (i < j) {
				t.Errorf("%s is before %s: %t", want[i].Name, want[j].Name, p.Less(a, b))
			}
		}
	}
}

func TestAllProfilesSortTheQueueAlike(t *testing.T) {
	t.Parallel()
	set := func(enabled ...string) (s config.PluginSet) {
		for _, name := range enabled {
			s.Enabled = append(s.Enabled, config.Plugin{Name: name})
		}
		return s
	}
	only := func(name string) config.PluginSet {
		s := set(name)
		s.Disabled = []config.Plugin{{Name: "*"}}
		return s
	}
	profile := func(multi, sort config.PluginSet, args ...config.PluginConfig) config.KubeSchedulerProfile {
		return config.KubeSchedulerProfile{
			Plugins: &config.Plugins{MultiPoint: multi, QueueSort: sort}, PluginConfig: args,
		}
	}
	ours := set(names.PrioritySort, coscheduling.Name)
	args := config.PluginConfig{Name: coscheduling.Name, Args: &runtime.Unknown{Raw: []byte("{}")}}
	for name, c := range map[string]struct{ given, want []config.KubeSchedulerProfile }{
		"a profile with the plugin": {
			[]config.KubeSchedulerProfile{profile(ours, config.PluginSet{})},
			[]config.KubeSchedulerProfile{profile(ours, only(coscheduling.Name))},
		},
		"another without it has the same order and arguments": {
			[]config.KubeSchedulerProfile{
				profile(ours, config.PluginSet{}, args), profile(set(names.PrioritySort), config.PluginSet{}), {},
			},
			[]config.KubeSchedulerProfile{
				profile(ours, only(coscheduling.Name), args),
				profile(set(names.PrioritySort), only(coscheduling.Name), args),
				{},
			},
		},
		"what one profile says holds for all": {
			[]config.KubeSchedulerProfile{profile(ours, config.PluginSet{}), profile(ours, only(names.PrioritySort))},
			[]config.KubeSchedulerProfile{
				profile(ours, only(names.PrioritySort)), profile(ours, only(names.PrioritySort)),
			},
		},
		"no profile with the plugin": {
			[]config.KubeSchedulerProfile{profile(set(names.PrioritySort), config.PluginSet{})},
			[]config.KubeSchedulerProfile{profile(set(names.PrioritySort), config.PluginSet{})},
		},
	} {
		coscheduling.SortQueue(c.given)
		if diff := cmp.Diff(c.want, c.given); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestANominationIsShownAgain: when pods are evicted for members whose nominations were removed, and nothing is written
// twice, nor where a write fails.
func TestANominationIsShownAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next gang.Failure
		want string
	}{
		"pods are evicted":    {gang.Failure{UID: "uid-b", Preempts: true}, "n"},
		"no nodes are kept":   {gang.Failure{UID: "uid-b", Outlook: gang.Short}, ""},
		"nodes are kept more": {gang.Failure{UID: "uid-b", Outlook: gang.Reserved}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gangs := newPlugin(t)
			w := newWriter(t, gangs)
			for _, name := range []string{"a", "b"} {
				p := member(name, "g", "2")
				p.Status.NominatedNodeName = "n"
				gangs.PutPod(p)
			}
			fails := func(f gang.Failure) {
				t.Helper()
				plan, _, refused := gangs.Begin(member("a", "g", "2"))
				if plan == nil {
					t.Fatalf("the gang is not planned: %+v", refused)
				}
				conclude(gangs, plan.Members, nil, f, w.clock.Now())
			}
			again := w.clock.Now().Add(time.Second)
			fails(gang.Failure{UID: "uid-b", Outlook: gang.Reserved, Again: again})
			w.pass(t.Context(), 100)
			if len(w.cleared) > 0 {
				t.Fatalf("%v are cleared early", w.cleared)
			}
			w.fails = true
			w.pass(t.Context(), 30)
			w.fails = false
			if gangs.Concealed("uid-a") != "" {
				t.Error("a nomination that the API shows is concealed")
			}
			w.pass(t.Context(), 10)
			slices.Sort(w.cleared)
			if !slices.Equal(w.cleared, []string{"a", "b"}) || gangs.Concealed("uid-a") != "n" {
				t.Fatalf("%v are cleared", w.cleared)
			}
			expire(gangs, w.clock.Now())
			fails(c.next)
			w.pass(t.Context(), 3)
			if w.nodes["a"] != c.want || len(w.cleared) != 2 {
				t.Errorf("nominated to %q, and %v are cleared", w.nodes["a"], w.cleared)
			}
		})
	}
}
