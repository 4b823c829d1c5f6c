package sim

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// runsFor declares a run time.
func runsFor(text string) func(*corev1.Pod) {
	return testobject.Annotation(annotation.ExpectedRuntime, text)
}

// ends makes a pod one that is evicted after so many seconds, as its own deadline says.
func ends(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
}

// pass lets time pass.
func (l *live) pass(d time.Duration) {
	l.time.at = l.time.at.Add(d)
	if l.api.clock.now.Before(l.time.at) {
		l.api.clock.now = l.time.at
	}
}

// hold sets who may hold nodes.
func (l *live) hold(change func(*gang.HoldRules)) {
	l.gangs.Read(func(s *gang.State) {
		rules := s.HoldRules()
		change(&rules)
		s.SetHoldRules(rules)
	})
}

// newHolding is a cluster in which one unit may hold nodes.
func newHolding(t testing.TB, in string) *live {
	t.Helper()
	l := newLive(t, in)
	l.hold(func(r *gang.HoldRules) { r.Most = 1 })
	return l
}

// started reports whether a pod has a node.
func (l *live) started(name string) bool { return len(l.on(name)) > 0 }

// node changes a node.
func (l *live) node(name string, change func(*corev1.Node)) {
	o, _, _ := l.api.nodes.GetStore().GetByKey(name)
	was := o.(*corev1.Node)
	now := was.DeepCopy()
	change(now)
	utilruntime.Must(l.api.nodes.GetStore().Update(now))
	for _, h := range l.api.nodes.handlers {
		h.OnUpdate(was, now)
	}
}

// nodeGoes deletes a node.
func (l *live) nodeGoes(name string) {
	o, _, _ := l.api.nodes.GetStore().GetByKey(name)
	utilruntime.Must(l.api.nodes.GetStore().Delete(o))
	for _, h := range l.api.nodes.handlers {
		h.OnDelete(o)
	}
}

// nodeComes adds a node of 4 CPUs.
func (l *live) nodeComes(name string) {
	o, _, _ := l.api.nodes.GetStore().GetByKey("n0")
	n := o.(*corev1.Node).DeepCopy()
	n.Name, n.UID, n.Labels = name, types.UID(name), map[string]string{corev1.LabelHostname: name}
	l.api.create(l.api.nodes, n)
}

// beforeStart is a cluster of two nodes of 4 CPUs. A pod of one hour has just ended on n0, and one of two hours runs on
// n1 for another hour; a gang of two whole nodes waits for it.
func beforeStart(t *testing.T, change ...func(*live)) *live {
	t.Helper()
	l := newHolding(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	for _, f := range change {
		f(l)
	}
	l.pod("old0", 4, runsFor("1h"))
	l.pod("old1", 4, runsFor("2h"))
	l.runUntilIdle()
	l.gang("a", 2, 4)
	l.runUntilIdle()
	l.pass(time.Hour)
	l.end("old0")
	l.runUntilIdle()
	return l
}

// TestNodesAreHeldUntilADeclaredStart: the first gang in the order holds the nodes on which it can start first. Pods
// that end by then use them.
func TestNodesAreHeldUntilADeclaredStart(t *testing.T) {
	for name, c := range map[string]struct {
		rules                                 func(*gang.HoldRules)
		undeclared, ends, late, short, starts bool
	}{
		"EASY":             {func(*gang.HoldRules) {}, false, true, false, true, true},
		"without backfill": {func(r *gang.HoldRules) { r.Backfill = false }, false, false, false, false, true},
		"without a hold":   {func(r *gang.HoldRules) { r.Most = 0 }, true, true, true, true, false},
		"no loss below 0":  {func(r *gang.HoldRules) { r.Below = 0 }, false, true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := beforeStart(t, func(l *live) { l.hold(c.rules) })
			if holds := kube.Ask(l.gangs, (*gang.State).Holds); (len(holds) == 1) != c.starts ||
				c.starts && (holds[0].Unit() != "gang/default/a" || len(holds[0].Nodes) != 2) {
				t.Errorf("published are %+v", holds)
			}
			l.pod("undeclared", 1)
			l.pod("late", 1, runsFor("61m"))
			l.pod("ends", 1, ends(3600))
			l.pod("short", 1, runsFor("30m"))
			l.runUntilIdle()
			for pod, want := range map[string]bool{
				"undeclared": c.undeclared, "late": c.late, "ends": c.ends, "short": c.short,
			} {
				if got := l.started(pod); got != want {
					t.Errorf("pod %s was started: %t, want %t; the gang waits by %+v", pod, got, want, l.why("a"))
				}
			}
			l.pass(time.Hour)
			for _, pod := range []string{"old1", "ends", "short"} {
				if l.started(pod) {
					l.end(pod)
				}
			}
			l.runUntilIdle()
			if holds := kube.Ask(l.gangs, (*gang.State).Holds); len(holds) > 0 {
				t.Errorf("it has started, and %+v is published", holds)
			}
			if got := l.started("a"); got != c.starts {
				t.Errorf("declared times are over: the gang was started: %t, want %t; %+v", got, c.starts, l.why("a"))
			}
		})
	}
}

// TestAPodThatStartsAloneHoldsANode until the declared start, and no longer.
func TestAPodThatStartsAloneHoldsANode(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		l := newHolding(t, cpuNode("n0", 4))
		l.pod("old0", 2, runsFor("1h"))
		l.pod("old1", 2, runsFor("2h"))
		l.runUntilIdle()
		l.pod("big", 4)
		l.runUntilIdle()
		l.pass(time.Hour)
		l.end("old0")
		l.pod("undeclared", 1)
		l.pod("short", 1, runsFor("1h"))
		l.runUntilIdle()
		if l.started("undeclared") || !l.started("short") {
			t.Errorf("started: a pod without an end %t, one that ends %t", l.started("undeclared"), l.started("short"))
		}
		if leaves {
			o, _, _ := l.api.pods.GetStore().GetByKey("default/big")
			l.api.remove(o.(*corev1.Pod))
			l.end("short")
			l.runUntilIdle()
			if !l.started("undeclared") {
				t.Error("the pod that held the node is gone, and another one was not started")
			}
			continue
		}
		l.pass(time.Hour)
		l.end("old1")
		l.end("short")
		l.runUntilIdle()
		if !l.started("big") {
			t.Error("all have ended, and the pod that held the node was not started")
		}
	}
}

// TestOneUnitHoldsNodes: with EASY the first in the order, with more holds also those behind it.
func TestOneUnitHoldsNodes(t *testing.T) {
	for most, want := range map[int]bool{1: true, 2: false} {
		l := newHolding(t, cpuNode("n0", 4)+cpuNode("n1", 2))
		l.hold(func(r *gang.HoldRules) { r.Most = most })
		l.pod("old0", 4, runsFor("1h"))
		l.pod("old1", 1, runsFor("1h"))
		l.runUntilIdle()
		l.pod("first", 4)
		l.runUntilIdle()
		l.pod("second", 2)
		l.runUntilIdle()
		l.pod("undeclared", 1) // beside old1, where the second one would start
		l.runUntilIdle()
		if got := l.started("undeclared"); got != want {
			t.Errorf("with %d holds the pod was started: %t, want %t", most, got, want)
		}
	}
}

// TestFaultsBesideAHold: each is a bad input, or something that goes wrong, one hour before the promised start of a
// gang. Afterwards a pod of half an hour and one without an end ask for what is held. At last all but that one end.
func TestFaultsBesideAHold(t *testing.T) {
	old1 := func(f ...func(*corev1.Pod)) func(*live) {
		return func(l *live) {
			for _, change := range f {
				l.update("old1", change)
			}
		}
	}
	started := func(at time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(p.Status.StartTime.Add(at))) }
	}
	type expected struct{ short, undeclared, gang bool }
	kept, ended := expected{short: true, gang: true}, expected{short: true, undeclared: true}
	for name, c := range map[string]struct {
		fault func(*live)
		want  expected
	}{
		"none":                                 {func(*live) {}, kept},
		"a declared time is negative":          {old1(runsFor("-1h")), ended},
		"a declared time is zero":              {old1(runsFor("0s")), ended},
		"a declared time is too long":          {old1(runsFor("8761h")), ended},
		"a declared time overflows":            {old1(runsFor("99999999999h")), ended},
		"a declared time has no unit":          {old1(runsFor("3600")), ended},
		"a declared time is a word":            {old1(runsFor("soon")), ended},
		"a declared time is removed":           {old1(undeclared), ended},
		"a declared time becomes longer":       {old1(runsFor("5h")), kept},
		"a declared time becomes shorter":      {old1(runsFor("61m")), expected{gang: true}},
		"a declared time was over long ago":    {old1(runsFor("1s")), expected{gang: true}},
		"a deadline is added that is earlier":  {old1(ends(3660)), expected{gang: true}},
		"a deadline is negative":               {old1(ends(-5)), kept},
		"a deadline alone is negative":         {old1(undeclared, ends(-5)), ended},
		"a deadline alone overflows":           {old1(undeclared, ends(math.MaxInt64)), kept},
		"a pod outlives its time by a day":     {func(l *live) { l.pass(25 * time.Hour) }, kept},
		"the clock steps back by a day":        {func(l *live) { l.pass(-24 * time.Hour) }, kept},
		"the clock steps to the first second":  {func(l *live) { l.time.at = time.Unix(1, 0) }, kept},
		"the clock steps forward by ten years": {func(l *live) { l.pass(87600 * time.Hour) }, kept},
		"a pod starts in the future":           {old1(started(48 * time.Hour)), kept},
		"a pod has started before all time":    {old1(started(-1 << 62)), kept},
		"a pod has no start":                   {old1(func(p *corev1.Pod) { p.Status.StartTime = nil }), kept},
		"another scheduler leads":              {(*live).restart, kept},
		"another one leads, and none is overtaken": {func(l *live) {
			l.restart()
			l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(0) })
		}, kept},
		"the held gang is deleted": {func(l *live) { l.remove("a0"); l.remove("a1") }, ended},
		"a held member is deleted": {func(l *live) { l.remove("a1"); l.withdraw() }, ended},
		"the gang needs a member more": {func(l *live) {
			l.update("a0", inGangOf("a", 3))
			l.update("a1", inGangOf("a", 3))
			l.withdraw()
		}, ended},
		"a held node may not be used": {func(l *live) {
			l.node("n0", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}, expected{}},
		"a held node shrinks": {func(l *live) {
			l.node("n0", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = testobject.List("cpu", "3")["cpu"] })
		}, ended},
		"a node of the start may not be used": {func(l *live) {
			l.node("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		}, ended},
		"a held node is deleted":         {func(l *live) { l.nodeGoes("n0") }, expected{}},
		"a node of the start is deleted": {func(l *live) { l.nodeGoes("n1"); l.remove("old1") }, ended},
		"a node comes on which it fits":  {func(l *live) { l.nodeComes("n2") }, expected{gang: true}},
		"holds are turned off": {func(l *live) {
			l.hold(func(r *gang.HoldRules) { r.Most = 0 })
			l.tryGang()
		}, ended},
		"an urgent pod comes": {func(l *live) {
			l.pod("urgent", 1, priority(5))
			l.runUntilIdle()
		}, expected{short: true, undeclared: true}},
		"the last pod ends early": {func(l *live) { l.end("old1"); l.runUntilIdle() }, expected{gang: true}},
	} {
		t.Run(name, func(t *testing.T) {
			l := beforeStart(t)
			if r := l.why("a"); r.Code != why.GangReserved {
				t.Fatalf("it waits by %+v", r)
			}
			c.fault(l)
			l.pass(11 * time.Second) // a promise is looked at again
			l.tryGang()
			l.pod("short", 1, runsFor("30m"))
			l.pod("undeclared", 1)
			l.runUntilIdle()
			got := expected{short: l.started("short"), undeclared: l.started("undeclared")}
			because := l.why("a")
			l.pass(time.Hour)
			for _, pod := range []string{"old1", "short"} {
				if l.started(pod) {
					l.end(pod)
				}
			}
			l.runUntilIdle()
			if got.gang = l.started("a"); got != c.want {
				t.Errorf("got %+v, want %+v; it waited by %+v, and %+v", got, c.want, because, l.why("a"))
			}
		})
	}
}

// TestAnotherLeaderKnowsWhatIsHeld: it finds the same nodes, which the nominations name, and says that it renews the
// hold. The first leader begins it.
func TestAnotherLeaderKnowsWhatIsHeld(t *testing.T) {
	for unit, come := range map[string]func(*live){
		"gang/default/a":  func(l *live) { l.gang("a", 2, 4) },
		"pod/default/big": func(l *live) { l.pod("big", 4) },
	} {
		l := newHolding(t, cpuNode("n0", 4)+cpuNode("n1", 4))
		l.pod("old0", 3, runsFor("1h"))
		l.pod("old1", 3, runsFor("2h"))
		l.runUntilIdle()
		come(l)
		l.runUntilIdle()
		held := func() gang.Hold {
			if units := l.held(); len(units) != 1 || units[0] != unit {
				t.Fatalf("%v hold nodes, want %s", units, unit)
			}
			return kube.Ask(l.gangs, (*gang.State).Holds)[0]
		}
		first := held()
		l.restart()
		l.tryGang()
		second := held()
		if diff := cmp.Diff(first.Nodes, second.Nodes); diff != "" || first.Renewed || !second.Renewed {
			t.Errorf("%s: renewed by the first leader %t, by the second %t; nodes (-first +second): %s", unit,
				first.Renewed, second.Renewed, diff)
		}
	}
}

// undeclared takes back the run time.
func undeclared(p *corev1.Pod) { delete(p.Annotations, annotation.ExpectedRuntime) }

// withdraw ends the nominations of the gang's members, as Held does for pods that their gang holds back.
func (l *live) withdraw() {
	for _, p := range l.gangs.Pods(func(*corev1.Pod, *gang.State) bool { return true }) {
		if p.Spec.NodeName == "" {
			l.rounds.Withdraw(p)
		}
	}
}

// remove deletes a pod.
func (l *live) remove(name string) {
	o, _, _ := l.api.pods.GetStore().GetByKey("default/" + name)
	l.api.remove(o.(*corev1.Pod))
}

// tryGang lets all that wait be tried again.
func (l *live) tryGang() {
	l.runUntilIdle()
	l.core.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.Background(), framework.EventForceActivate, nil, nil, nil)
	l.runUntilIdle()
}

// restart replaces the scheduler by one that reads the same objects.
func (l *live) restart() {
	ctx, cancel := context.WithCancel(l.ctx)
	l.Cleanup(cancel)
	again := newHolding(l.TB, cpuNode("n0", 4)+cpuNode("n1", 4))
	again.time.at = l.time.at
	for _, o := range l.api.pods.GetStore().List() {
		again.api.create(again.api.pods, o.(*corev1.Pod))
	}
	l.engine, l.ctx = again.engine, ctx
}

// TestWithoutDeclaredTimesAHoldChangesNothing: a cluster in which no pod declares how long it runs decides the same
// whether pods and gangs may hold nodes until a declared start or not, also while a pod terminates.
func TestWithoutDeclaredTimesAHoldChangesNothing(t *testing.T) {
	play := func(most int) (on map[string][]string) {
		l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4)+cpuNode("n2", 2))
		l.hold(func(r *gang.HoldRules) { r.Most = most })
		for _, name := range []string{"old0", "old1"} {
			l.pod(name, 4)
		}
		l.runUntilIdle()
		l.gang("a", 2, 4)
		l.pod("big", 3)
		l.runUntilIdle()
		l.update("old0", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(l.time.at.Add(time.Minute))) })
		l.tryGang()
		l.pod("small", 1)
		l.runUntilIdle()
		l.pass(2 * time.Minute)
		l.end("old0")
		l.pod("late", 2)
		l.runUntilIdle()
		l.pass(time.Hour)
		l.tryGang()
		on = map[string][]string{"waits": {l.why("a").Code.String()}}
		for _, name := range []string{"a0", "a1", "big", "small", "late"} {
			for _, p := range l.on(name) {
				on[name] = append(on[name], p.Spec.NodeName)
			}
		}
		return on
	}
	none, one := play(0), play(1)
	if diff := cmp.Diff(none, one); diff != "" {
		t.Errorf("with one hold (-none +one): %s", diff)
	}
	if len(one["a0"]) > 0 || len(one["small"]) == 0 {
		t.Errorf("not what the test is about: %v", one)
	}
}

// TestPodsBehindAHoldStartWhenItMoves: no other event wakes them than that the unit that holds nodes starts later, so
// that more pods end before, or that it holds other nodes.
func TestPodsBehindAHoldStartWhenItMoves(t *testing.T) {
	for name, c := range map[string]struct {
		other     int // CPUs of the node that is not held at first
		behind    []func(*corev1.Pod)
		old, runs string // what a pod declares now
	}{
		"the start is later":   {3, []func(*corev1.Pod){runsFor("90m")}, "old0", "5h"},
		"another node is held": {4, nil, "old1", "50m"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newHolding(t, cpuNode("n0", 4)+cpuNode("n1", c.other))
			l.pod("old0", 3, runsFor("1h"))
			l.pod("old1", 3, runsFor("2h"))
			l.runUntilIdle()
			l.pod("big", 4)
			l.runUntilIdle()
			l.held()
			held := kube.Ask(l.gangs, (*gang.State).Holds)
			if len(held) != 1 || held[0].Nodes["uid-big"] != "n0" {
				t.Fatalf("nodes are held by %+v", held)
			}
			l.pod("behind", 1, append(c.behind, onlyOn("n0"))...)
			l.update(c.old, runsFor(c.runs))
			l.runUntilIdle()
			if l.started("behind") {
				t.Fatal("it was started before the hold moved")
			}
			l.pass(11 * time.Second)
			l.tryOnly("big")
			l.held() // the next cycle begins
			l.runUntilIdle()
			if !l.started("behind") {
				t.Errorf("the hold has moved, %+v, and the pod behind it was not started",
					kube.Ask(l.gangs, (*gang.State).Holds))
			}
		})
	}
}

// onlyOn lets a pod on one node alone.
func onlyOn(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: name} }
}
