package sim

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
)

// writer is an engine that writes what tenon-scheduler does about pods that wait, and the writes that clients asked
// for: METHOD and subresource, by pod.
type writer struct {
	*live
	held   *coscheduling.Held
	clock  *testclock.FakeClock
	writes map[string][]string
}

func newWriter(t *testing.T, in string) *writer {
	t.Helper()
	w := &writer{live: newLive(t, in), clock: testclock.NewFakeClock(time.Unix(1e9, 0)), writes: map[string][]string{}}
	w.api.fault = func(r *http.Request, _ []byte) error {
		path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if r.Method != http.MethodGet {
			what := strings.Join(append([]string{r.Method}, path[6:]...), " ")
			w.writes[path[5]] = append(w.writes[path[5]], what)
		}
		return nil
	}
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://simulate.invalid", Transport: w.api, QPS: -1})
	reporter := refusals.NewReporter(client, func(...metrics.Registerable) {}, func(string, string) {}, w.clock)
	w.handle = reporter.Wrap(w.handle)
	for name, f := range w.core.Profiles {
		w.core.Profiles[name] = &writing{f.(*profile), client, w.gangs}
	}
	w.held = &coscheduling.Held{
		Gangs: w.gangs, Client: client, Clock: w.clock, Leading: func() bool { return true },
		Recorder:         func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		LookForDeadlocks: func(klog.Logger) bool { return false }, Withdraw: w.rounds.Withdraw,
	}
	return w
}

// writing is a profile whose failures are written before the next cycle.
type writing struct {
	*profile
	client kubernetes.Interface
	gangs  *kube.Gangs
}

func (w *writing) APICacher() fwk.APICacher { return &patcher{client: w.client, gangs: w.gangs} }

type patcher struct {
	fwk.APICacher // not called
	client        kubernetes.Interface
	gangs         *kube.Gangs
}

func (p *patcher) PatchPodStatus(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo,
) (<-chan error, error) {
	pod = shown(p.gangs, pod).(*corev1.Pod)
	status := pod.Status.DeepCopy()
	changed := false
	for _, condition := range conditions {
		changed = podutil.UpdatePodCondition(status, condition) || changed
	}
	if nominating.Mode() == fwk.ModeOverride && status.NominatedNodeName != nominating.NominatedNodeName {
		status.NominatedNodeName, changed = nominating.NominatedNodeName, true
	}
	if !changed {
		return nil, nil
	}
	return nil, schedutil.PatchPodStatus(context.Background(), p.client, pod.Name, pod.Namespace, &pod.Status, status)
}

// look lets time pass, until what waits may be said.
func (w *writer) look(after time.Duration) {
	w.Helper()
	w.clock.Step(after)
	for range 2 { // what has come is said when it has lasted
		w.held.Look(w.ctx)
		w.clock.Step(10 * time.Second)
	}
	w.runUntilIdle()
}

// taken returns the writes since the last call, about pods whose names begin so.
func (w *writer) taken(prefix string) map[string][]string {
	writes := w.writes
	w.writes = map[string][]string{}
	maps.DeleteFunc(writes, func(pod string, _ []string) bool { return !strings.HasPrefix(pod, prefix) })
	return writes
}

func (w *writer) cycleOf(name string) (cycle int) {
	w.gangs.Read(func(s *gang.State) {
		r, _ := s.Find("default/" + name)
		cycle = r.Cycle
	})
	return cycle
}

// TestAMemberIsBoundWithOneWrite: the Binding, with what it is allocated; its siblings come one after the other, some
// after it has been held back for them.
func TestAMemberIsBoundWithOneWrite(t *testing.T) {
	const members = 8
	w := newWriter(t, cpuNode("n0", 8)+cpuNode("n1", 8))
	for i := range members {
		w.held.Look(w.ctx)
		w.runUntilIdle()
		w.pod(fmt.Sprint("g", i), 2, inGangOf("g", members))
		w.clock.Step(100 * time.Millisecond)
	}
	w.runUntilIdle()
	w.look(time.Hour)
	writes := w.taken("g")
	for i := range members {
		if got := writes[fmt.Sprint("g", i)]; !slices.Equal(got, []string{"POST binding"}) {
			t.Errorf("member %d: %q, want one Binding", i, got)
		}
	}
	if len(writes) != members {
		t.Errorf("writes about %d pods, want %d: %v", len(writes), members, writes)
	}
}

// TestAFailedRoundWritesOnce at most, for all of its members; what each of them waits for is written once, beside the
// rounds. When there is room each member is bound with one more write.
func TestAFailedRoundWritesOnce(t *testing.T) {
	const members, others = 8, 12
	w := newWriter(t, cpuNode("n0", 8)+cpuNode("n1", 8))
	for i := range others {
		w.pod(fmt.Sprint("o", i), 1)
	}
	w.runUntilIdle()
	w.gang("g", members, 2)
	cycle := w.cycleOf("g")
	failed := func(when string) {
		t.Helper()
		n := 0
		for _, writes := range w.taken("g") {
			n += len(writes)
		}
		rounds := w.cycleOf("g") - cycle
		if cycle += rounds; rounds == 0 || n > rounds {
			t.Errorf("%s: %d writes in %d rounds", when, n, rounds)
		}
	}
	w.runUntilIdle()
	failed("the first one")
	w.look(10 * time.Second)
	said := w.taken("g")
	for i := range members {
		if got := said[fmt.Sprint("g", i)]; len(got) > 1 || len(got) == 1 && got[0] != "PATCH status" {
			t.Errorf("member %d: %q, want its condition", i, got)
		}
	}
	if len(said) != members-1 {
		t.Errorf("conditions of %d members, want all but the one that did not fit: %v", len(said), said)
	}
	for i := range others - 1 {
		w.end("o")
		w.runUntilIdle()
		failed(fmt.Sprintf("with %d pods less", i+1))
		w.clock.Step(20 * time.Second)
	}
	w.end("o")
	w.runUntilIdle()
	writes := w.taken("g")
	for i := range members {
		if got := writes[fmt.Sprint("g", i)]; !slices.Equal(got, []string{"POST binding"}) {
			t.Errorf("member %d: %q, want one Binding", i, got)
		}
	}
}

// concealing is a handler of pods behind an informer with the transform of the gangs.
type concealing struct {
	cache.ResourceEventHandler
	gangs *kube.Gangs
}

func (c concealing) OnUpdate(old, now any) {
	c.ResourceEventHandler.OnUpdate(shown(c.gangs, old), shown(c.gangs, now))
}

// shown returns what an informer has of a pod.
func shown(gangs *kube.Gangs, object any) any {
	object, _ = gangs.ShowConcealed(object.(*corev1.Pod).DeepCopy())
	return object
}

// nominations are the nominated nodes of the members of a gang that the API shows.
func (w *writer) nominations(gangName string) (all []string) {
	for _, o := range w.api.pods.GetStore().List() {
		if p := o.(*corev1.Pod); p.Annotations[annotation.GangName] == gangName && p.Status.NominatedNodeName != "" {
			all = append(all, p.Name+" "+p.Status.NominatedNodeName)
		}
	}
	slices.Sort(all)
	return all
}

// TestAutoscalersSeeAGangForWhichNodesAreKeptLong: the API shows its nominations for two minutes. The nodes are kept
// for it longer, and by a scheduler that serves no autoscaler they are shown as long.
func TestAutoscalersSeeAGangForWhichNodesAreKeptLong(t *testing.T) {
	for name, plain := range map[string]bool{"concealed": false, "plain reasons": true} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, cpuNode("n0", 4)+cpuNode("n1", 4))
			for i, h := range w.api.pods.handlers {
				w.api.pods.handlers[i] = concealing{h, w.gangs}
			}
			w.held.PlainReasons = plain
			w.overtakes(12)
			nominated := []string{"a0 n0", "a1 n1"}
			if r := w.why("a"); r.Code != why.GangReserved || !slices.Equal(w.nominations("a"), nominated) {
				t.Fatalf("it waits by %+v, nominated to %q", r, w.nominations("a"))
			}
			w.look(time.Minute)
			if got := w.nominations("a"); !slices.Equal(got, nominated) {
				t.Errorf("after a minute %q are nominated", got)
			}
			w.look(2 * time.Minute)
			want := []string(nil)
			if plain {
				want = nominated
			}
			if got := w.nominations("a"); !slices.Equal(got, want) {
				t.Errorf("after three minutes %q are nominated, want %q", got, want)
			}
			w.end("s")
			w.runUntilIdle()
			w.pod("late", 1)
			w.look(time.Second)
			if got := w.nominations("a"); len(w.on("late")) > 0 || !slices.Equal(got, want) {
				t.Errorf("%d pods behind it were started; nominated are %q, want %q", len(w.on("late")), got, want)
			}
			for len(w.on("s")) > 0 {
				w.end("s")
				w.runUntilIdle()
			}
			w.look(time.Second)
			if len(w.on("a")) != 2 || len(w.on("late")) != 0 {
				t.Errorf("all have ended, and it waits by %+v", w.why("a"))
			}
			if w.gangs.Concealed("uid-a0") != "" {
				t.Error("a member that has started is still concealed")
			}
		})
	}
}

// TestAnotherLeaderReportsAConcealedHoldOnce: it does not see the nominations that the first leader has removed for
// autoscalers, and says all the same not again that the gang holds nodes, but once that it no longer does.
func TestAnotherLeaderReportsAConcealedHoldOnce(t *testing.T) {
	said := events.NewFakeRecorder(100)
	lead := func() *writer {
		w := newWriter(t, cpuNode("n0", 4)+cpuNode("n1", 4))
		for i, h := range w.api.pods.handlers {
			w.api.pods.handlers[i] = concealing{h, w.gangs}
		}
		w.held.Recorder = func(string) events.EventRecorderLogger { return said }
		w.live.hold(func(r *gang.HoldRules) { r.Most = 1 })
		return w
	}
	first := lead()
	first.pod("old0", 3, runsFor("1h"))
	first.pod("old1", 3, runsFor("2h"))
	first.runUntilIdle()
	first.gang("a", 2, 4)
	first.runUntilIdle()
	for range 4 {
		first.live.held()
		first.look(time.Minute)
	}
	if got := first.nominations("a"); len(got) > 0 {
		t.Fatalf("the API shows %q", got)
	}
	second := lead()
	second.time.at = first.time.at
	for _, o := range first.api.pods.GetStore().List() {
		second.api.create(second.api.pods, o.(*corev1.Pod))
	}
	second.tryGang()
	second.look(time.Second)
	if got := second.live.held(); len(got) != 1 {
		t.Fatalf("%v hold nodes", got)
	}
	second.look(time.Second)
	second.update("old1", undeclared)
	second.pass(11 * time.Second)
	second.tryOnly("a")
	if got := second.live.held(); len(got) != 0 {
		t.Fatalf("%v hold nodes", got)
	}
	for range 3 {
		second.look(10 * time.Second)
	}
	var got []string
	for len(said.Events) > 0 {
		if e := strings.Fields(<-said.Events)[1]; strings.Contains(e, "Hold") || strings.Contains(e, "Held") {
			got = append(got, e)
		}
	}
	got = slices.DeleteFunc(got, func(e string) bool { return e == "GangHeld" })
	if want := []string{"NodesHeld", "HoldEnded"}; !slices.Equal(got, want) {
		t.Errorf("both leaders said %q, want %q", got, want)
	}
}
