package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// live is an engine in whose cluster pods come and go.
type live struct {
	testing.TB
	*engine
	ctx  context.Context
	born int64
	all  func(*corev1.Pod) // changes every pod; nil does not
}

// newLive returns an engine with what a text has, which is not to have pods without a node.
func newLive(t testing.TB, in string, changes ...func(*core.Options)) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	t.Cleanup(cancel)
	docs, err := readDocuments([]string{stdin}, strings.NewReader(in), io.Discard)
	testkit.Check(t, err)
	w, err := Input{Warn: io.Discard}.readWorld(docs)
	testkit.Check(t, err)
	e, err := newEngineFor(ctx, w, nil, changes...)
	testkit.Check(t, err)
	return &live{TB: t, engine: e, ctx: ctx}
}

// pod creates a pod that is younger than all before it.
func (l *live) pod(name string, cpus int64, change ...func(*corev1.Pod)) {
	l.born++
	p := testobject.Pod(name, testobject.UID("uid-"+name), testobject.Created(time.Unix(1_800_000_000+l.born, 0)),
		testobject.Scheduler(corev1.DefaultSchedulerName), testobject.Priority(0),
		testobject.Requests("cpu", fmt.Sprint(cpus)))
	for _, f := range append(change, l.all) {
		if f != nil {
			f(p)
		}
	}
	l.api.create(l.api.pods, p)
}

func inGangOf(name string, least int) func(*corev1.Pod) {
	return testobject.Gang(name, fmt.Sprint(least))
}

func priority(n int32) func(*corev1.Pod) { return testobject.Priority(n) }

// gang creates a gang of members that ask for so many CPUs each.
func (l *live) gang(name string, members int, cpus int64, change ...func(*corev1.Pod)) {
	for i := range members {
		l.pod(fmt.Sprint(name, i), cpus, append(change, inGangOf(name, members))...)
	}
}

func (l *live) runUntilIdle() {
	l.Helper()
	if err := l.run(l.ctx); err != nil {
		l.Fatal(err)
	}
}

// on returns the pods with a node whose names begin so, sorted by age.
func (l *live) on(prefix string) (pods []*corev1.Pod) {
	for _, o := range l.api.pods.GetStore().List() {
		if p := o.(*corev1.Pod); strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != "" {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return pods
}

func (l *live) end(prefix string) {
	l.Helper()
	pods := l.on(prefix)
	if len(pods) == 0 {
		l.Fatalf("no pod %s… has a node", prefix)
	}
	l.api.remove(pods[0])
}

func (l *live) why(gangName string) gang.Refusal {
	var r gang.Report
	l.gangs.Read(func(s *gang.State) { r, _ = s.Find("default/" + gangName) })
	return r.Why
}

// overtakes lets a gang of two whole nodes wait behind small pods: one of these ends at a time, and another comes. It
// returns how many were started after the gang had failed, and before it started; false where it did not.
func (l *live) overtakes(steps int) (started int, served bool) { return l.overtakesIn(8, steps) }

func (l *live) overtakesIn(old, steps int) (started int, served bool) {
	l.Helper()
	for i := range old {
		l.pod(fmt.Sprint("old", i), 1)
	}
	l.runUntilIdle()
	l.gang("a", 2, 4)
	l.runUntilIdle()
	return l.overtakesMore(0, steps)
}

// overtakesMore goes on from a step.
func (l *live) overtakesMore(from, steps int) (started int, served bool) {
	l.Helper()
	for i := from; i < from+steps; i++ {
		prefix := "s"
		if len(l.on("old")) > 0 {
			prefix = "old"
		}
		l.end(prefix)
		l.pod(fmt.Sprint("s", i), 1)
		before := len(l.on("s"))
		l.runUntilIdle()
		if len(l.on("a")) == 2 {
			return started, true
		}
		started += len(l.on("s")) - before
	}
	return started, false
}

// TestAStreamOfSmallPodsDoesNotStarveAGang: after ten of them have overtaken it, what it needs is kept for it.
//
// F16: a big gang starves behind small pods.
func TestAStreamOfSmallPodsDoesNotStarveAGang(t *testing.T) {
	l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	if started, served := l.overtakes(60); !served || started != 10 {
		t.Errorf("%d small pods were started before the gang, want 10, and it started: %t; it waits by %+v", started,
			served, l.why("a"))
	}
	l = newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(0) })
	if started, served := l.overtakes(60); served || started != 60 {
		t.Errorf("with maxOvertakes 0 %d were started, want 60, and the gang: %t", started, served)
	}
	if r := l.why("a"); r.Code != why.GangSiblingFailed {
		t.Errorf("it waits by %+v", r)
	}
}

// TestAStreamOfSmallPodsDoesNotTakeAGangsQuota: of 8 CPUs, on nodes with room for more.
func TestAStreamOfSmallPodsDoesNotTakeAGangsQuota(t *testing.T) {
	l := newLive(t, elastic("scheduling.sigs.k8s.io", "eight", "", "{cpu: 8}", "{cpu: 8}")+cpuNode("n0", 16)+
		cpuNode("n1", 16))
	l.all = func(p *corev1.Pod) { p.Labels[annotation.QuotaName] = "eight" }
	if started, served := l.overtakes(60); !served || started != 10 {
		t.Errorf("%d small pods were started before the gang, want 10, and it started: %t; it waits by %+v", started,
			served, l.why("a"))
	}
}

// TestAStreamOfExclusivePodsDoesNotStarveAGang: a node of 32 CPUs has room for five pods with 6 of their own, or for
// one of the gang with 24 and one of them.
func TestAStreamOfExclusivePodsDoesNotStarveAGang(t *testing.T) {
	l := newLive(t, machine("n0")+machine("n1"))
	l.all = func(p *corev1.Pod) {
		c := &p.Spec.Containers[0].Resources
		cpus := c.Requests.Cpu().Value() * 6
		c.Requests = corev1.ResourceList{"cpu": *resource.NewQuantity(cpus, resource.DecimalSI)}
		c.Limits = c.Requests
		p.Labels[annotation.QoSClass] = "LSR"
		p.Spec.Priority = new(int32(9500))
	}
	if started, served := l.overtakes(60); !served || started != 10 {
		t.Errorf("%d small pods were started before the gang, want 10, and it started: %t; it waits by %+v", started,
			served, l.why("a"))
	}
	for _, p := range l.on("a") {
		if held := l.store.View(p.Spec.NodeName); !slices.ContainsFunc(slices.Collect(held.Entries()),
			func(e ledger.Entry) bool { return e.UID == string(p.UID) }) {
			t.Errorf("%s has no CPUs of its own on %s", p.Name, p.Spec.NodeName)
		}
	}
}

// TestAStreamOfSmallPodsDoesNotStarveAGangInADomain: room is kept for it in the block in which it can be, and nowhere
// else.
func TestAStreamOfSmallPodsDoesNotStarveAGangInADomain(t *testing.T) {
	for most, want := range map[int]bool{0: false, 10: true} {
		l := newLive(t, layers+networkNode("n0", 4, "s", "b0")+networkNode("n1", 4, "s", "b1")+
			networkNode("n2", 4, "s", "b1"))
		l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(most) })
		l.all = func(p *corev1.Pod) {
			if p.Annotations[annotation.GangName] != "" {
				p.Annotations[annotation.GangNetworkTopology] = inOneBlock
			}
		}
		_, served := l.overtakesIn(12, 100)
		if served != want {
			t.Errorf("with maxOvertakes %d the gang starts: %t; it waits by %+v", most, served, l.why("a"))
		}
		for _, p := range l.on("a") {
			if p.Spec.NodeName == "n0" {
				t.Error("a member is on n0, alone in its block")
			}
		}
	}
}

// TestAGangWithMinResourcesIsNotStarved: what must be free in the whole cluster for it is also counted on nodes that
// are kept for it.
func TestAGangWithMinResourcesIsNotStarved(t *testing.T) {
	for cpus, want := range map[int]bool{8: true, 9: false} {
		l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
		g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		g.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: "PodGroup"})
		g.Spec.MinResources = corev1.ResourceList{"cpu": *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
		l.gangs.PutGroup(g)
		l.all = func(p *corev1.Pod) {
			if p.Annotations[annotation.GangName] != "" {
				p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
			}
		}
		if started, served := l.overtakes(60); served != want || want && started != 10 {
			t.Errorf("with minResources of %d CPUs %d pods were started before the gang, and it: %t; it waits by %+v",
				cpus, started, served, l.why("a"))
		}
	}
}

// TestAnUnschedulableGangDoesNotBlockTheHead: pods behind it start, and it is tried once after each end of a pod.
//
// F4: an unschedulable gang blocks the head of the queue.
func TestAnUnschedulableGangDoesNotBlockTheHead(t *testing.T) {
	l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(0) }) // else it is also tried after every ten pods
	plans := 0
	for name, f := range l.core.Profiles {
		l.core.Profiles[name] = &counting{f.(*profile), &plans}
	}
	l.gang("a", 3, 4, priority(10))
	l.runUntilIdle()
	for i := range 20 {
		before := plans
		l.pod(fmt.Sprint("s", i), 4)
		l.runUntilIdle()
		if len(l.on("s")) == 0 {
			t.Fatalf("pod %d behind the gang was not started", i)
		}
		if plans > before {
			t.Errorf("pod %d was started, and the gang was tried for it", i)
		}
		l.end("s")
		l.runUntilIdle()
		if plans > before+2 { // and the member that failed once more without its siblings
			t.Errorf("a pod has ended, and the last member was tried %d times, want twice", plans-before)
		}
	}
}

// counting counts the attempts on the last member of the gang a.
type counting struct {
	*profile
	n *int
}

func (c *counting) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, p *corev1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	if p.Name == "a2" {
		*c.n++
	}
	return c.profile.RunPreFilterPlugins(ctx, state, p)
}

// TestAGangThatCanNeverFitClosesNoNode: not even without all that runs would it fit.
func TestAGangThatCanNeverFitClosesNoNode(t *testing.T) {
	l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	l.pod("keeps", 1, priority(1))
	l.runUntilIdle()
	if started, served := l.overtakesIn(7, 40); served || started != 40 {
		t.Errorf("%d small pods were started and the gang %t, want 40 and not", started, served)
	}
	if r := l.why("a"); r.Code != why.GangSiblingFailed {
		t.Errorf("it waits by %+v", r)
	}
	l.api.remove(l.on("keeps")[0]) // now it would
	if started, served := l.overtakesMore(40, 60); !served || started != 10 {
		t.Errorf("%d more were started and the gang %t, want 10 and yes", started, served)
	}
}

// TestWhatIsBeforeAGangPassesItsReservation: pods of higher priority and older ones of the same.
func TestWhatIsBeforeAGangPassesItsReservation(t *testing.T) {
	elder := func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1_700_000_000, 0) }
	for name, c := range map[string]struct {
		change []func(*corev1.Pod)
		passes bool
	}{
		"a higher priority":                      {[]func(*corev1.Pod){priority(1)}, true},
		"older":                                  {[]func(*corev1.Pod){elder}, true},
		"younger":                                {nil, false},
		"older, of lower priority":               {[]func(*corev1.Pod){elder, priority(-1)}, false},
		"an older gang":                          {[]func(*corev1.Pod){elder, inGangOf("b", 1)}, true},
		"an older gang that comes in two halves": {[]func(*corev1.Pod){elder, inGangOf("b", 2)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
			l.overtakes(12)
			if r := l.why("a"); r.Code != why.GangReserved || r.Have != 0 || r.Need != 2 || r.Pod == "" {
				t.Fatalf("it waits by %+v", r)
			}
			l.pod("p", 1, c.change...)
			l.runUntilIdle()
			if passes := len(l.on("p")) == 1; passes != c.passes {
				t.Errorf("it was started: %t", passes)
			}
			for len(l.on("s")) > 0 {
				l.end("s")
				l.runUntilIdle()
			}
			if started := len(l.on("a")) == 2; started == c.passes {
				t.Errorf("all small pods have ended, and the gang was started: %t", started)
			}
			if c.passes {
				l.end("p")
				l.runUntilIdle()
			}
			if len(l.on("a")) != 2 {
				t.Errorf("all have ended, and it waits by %+v", l.why("a"))
			}
		})
	}
}

// TestANewSchedulerKeepsReservations: all that it reads is which nodes the members are nominated to.
func TestANewSchedulerKeepsReservations(t *testing.T) {
	l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	l.overtakes(12)
	again := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
	for _, o := range l.api.pods.GetStore().List() {
		again.api.create(again.api.pods, o.(*corev1.Pod))
	}
	again.born = l.born
	again.runUntilIdle()
	again.end("s")
	again.pod("late", 1)
	again.runUntilIdle()
	if r := again.why("a"); r.Code != why.GangReserved || len(again.on("late")) > 0 {
		t.Errorf("it waits by %+v, and %d pods behind it were started", r, len(again.on("late")))
	}
	for len(again.on("s")) > 0 {
		again.end("s")
	}
	again.runUntilIdle()
	if len(again.on("a")) != 2 {
		t.Errorf("all have ended, and it waits by %+v", again.why("a"))
	}
}

// TestAReservationEndsWithItsReason: of a gang that loses a member, or is changed.
func TestAReservationEndsWithItsReason(t *testing.T) {
	for name, change := range map[string]func(*live){
		"it needs more members than would fit": func(l *live) {
			for i := range 2 {
				l.update(fmt.Sprint("a", i), inGangOf("a", 3))
			}
			l.pod("a2", 4, inGangOf("a", 3))
		},
		"it becomes NonStrict": func(l *live) {
			for i := range 2 {
				l.update(fmt.Sprint("a", i), func(p *corev1.Pod) { p.Annotations[annotation.GangMode] = "NonStrict" })
			}
		},
		"its members ask for a node that does not exist": func(l *live) {
			for _, n := range l.api.nodes.GetStore().List() {
				was := n.(*corev1.Node)
				now := was.DeepCopy()
				now.Spec.Unschedulable = true
				utilruntime.Must(l.api.nodes.GetStore().Update(now))
				for _, h := range l.api.nodes.handlers {
					h.OnUpdate(was, now)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
			l.overtakes(12)
			if r := l.why("a"); r.Code != why.GangReserved {
				t.Fatalf("it waits by %+v", r)
			}
			change(l)
			l.runUntilIdle()
			l.end("s")
			l.runUntilIdle()
			for _, node := range []string{"n0", "n1"} {
				if n := l.core.SchedulingQueue.NominatedPodsForNode(node); len(n) > 0 {
					t.Errorf("%s is kept for %s and %d others; the gang waits by %+v", node, n[0].GetPod().Name,
						len(n)-1, l.why("a"))
				}
			}
		})
	}
}

// update changes a pod.
func (l *live) update(name string, change func(*corev1.Pod)) {
	o, _, _ := l.api.pods.GetStore().GetByKey("default/" + name)
	was := o.(*corev1.Pod)
	now := was.DeepCopy()
	change(now)
	l.api.update(was, now)
}

// TestAGangIsOvertakenSoOftenAtMost is G7 with random pods of three priorities that come and go beside one gang, which
// may evict some of them or none: while it would fit without the pods behind it, two of these are started at most
// before nodes are kept for it, and none takes what is kept. In the end, when none are left, it starts if it can.
func TestAGangIsOvertakenSoOftenAtMost(t *testing.T) {
	const most, size = 2, 4
	kept := 0
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 2).Draw(rt, "nodes")
		members, cpus := rapid.IntRange(1, 3).Draw(rt, "members"), rapid.IntRange(1, size).Draw(rt, "CPUs of each")
		in := ""
		for n := range nodes {
			in += cpuNode(fmt.Sprint("n", n), size)
		}
		l := newLive(t, in)
		l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(most) })
		policy := corev1.PreemptNever
		if rapid.Bool().Draw(rt, "evicts") {
			policy = corev1.PreemptLowerPriority
		}
		small := func(i int) {
			l.pod(fmt.Sprint("s", i), int64(rapid.IntRange(1, 2).Draw(rt, "CPUs")),
				priority(rapid.Int32Range(-1, 1).Draw(rt, "priority")),
				func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) })
		}
		behind := func(p *corev1.Pod) bool {
			return *p.Spec.Priority < 0 || *p.Spec.Priority == 0 && !strings.HasPrefix(p.Name, "s-")
		}
		uses := func(node string, counts func(*corev1.Pod) bool) (sum int) {
			for _, p := range l.on("s") {
				if p.Spec.NodeName == node && counts(p) {
					sum += int(p.Spec.Containers[0].Resources.Requests.Cpu().Value())
				}
			}
			return sum
		}
		before := func(p *corev1.Pod) bool { return !behind(p) }
		// fits reports whether the gang would start without the pods behind it.
		fits := func() bool {
			room := 0
			for n := range nodes {
				room += (size - uses(fmt.Sprint("n", n), before)) / cpus
			}
			return room >= members
		}
		for i := range rapid.IntRange(0, 8).Draw(rt, "before it") {
			small(-1 - i)
		}
		l.runUntilIdle()
		l.gang("a", members, int64(cpus), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &policy })
		l.runUntilIdle()
		overtaken, since, last := 0, map[types.UID]bool{}, "" // nodes are kept
		holdsOf := func() map[string]int {
			holds := map[string]int{}
			for n := range nodes {
				node := fmt.Sprint("n", n)
				holds[node] = len(l.core.SchedulingQueue.NominatedPodsForNode(node)) * cpus
			}
			return holds
		}
		for i := range rapid.IntRange(0, 40).Draw(rt, "steps") {
			known := map[types.UID]bool{}
			for _, p := range l.on("s") {
				known[p.UID] = true
			}
			if running := l.on("s"); len(running) > 0 && rapid.Bool().Draw(rt, "one ends") {
				l.api.remove(running[rapid.IntRange(0, len(running)-1).Draw(rt, "which")])
			} else {
				small(i)
			}
			feasible, reserved, holds := fits(), l.why("a").Code == why.GangReserved, holdsOf()
			l.runUntilIdle()
			switch started := len(l.on("a")); {
			case started == members:
				return
			case started != 0:
				rt.Fatalf("%d of %d members were started", started, members)
			case !feasible || !fits():
				overtaken = 0
			}
			if !reserved {
				for _, p := range l.on("s") {
					if !known[p.UID] && behind(p) && feasible && fits() {
						overtaken++
					}
				}
				if overtaken > most {
					rt.Fatalf("%d pods behind the gang were started; it waits by %+v", overtaken, l.why("a"))
				}
			}
			if holding := fmt.Sprint(holdsOf()); holding != fmt.Sprint(holds) || holding != last { // others are kept
				clear(since)
				last = holding
				continue
			}
			for _, p := range l.on("s") {
				node := p.Spec.NodeName
				if known[p.UID] || !behind(p) || !reserved {
					continue
				}
				kept++
				since[p.UID] = true
				holds := holds[node] + uses(node, before)
				if took := uses(node, func(p *corev1.Pod) bool { return since[p.UID] }); holds <= size &&
					holds+took > size {
					rt.Fatalf("%s took what is kept on %s", p.Name, node)
				}
			}
		}
		for len(l.on("s")) > 0 {
			l.end("s")
			l.runUntilIdle()
		}
		if started := len(l.on("a")) == members; started != fits() {
			rt.Fatalf("no other pod is left, and it was started: %t; it waits by %+v", started, l.why("a"))
		}
	})
	if kept == 0 && !testing.Short() {
		t.Error("no pod was started beside what is kept")
	}
}

// TestReservationsDoNotBlockEachOther: of random gangs, many of which have nodes kept for them while small pods come
// and go, each starts when these have ended.
func TestReservationsDoNotBlockEachOther(t *testing.T) {
	reservedAtOnce := map[int]int{}
	rapid.Check(t, func(rt *rapid.T) {
		l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4)+cpuNode("n2", 4))
		l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(1) })
		gangs, most := map[string]int{}, 0
		for i := range rapid.IntRange(4, 30).Draw(rt, "steps") {
			var running []*corev1.Pod
			for _, p := range l.on("") {
				gangName := p.Annotations[annotation.GangName]
				if n := gangs[gangName]; n == 0 || len(l.on(gangName)) == n {
					running = append(running, p)
				}
			}
			never := func(p *corev1.Pod) {
				p.Spec.Priority = new(rapid.Int32Range(0, 1).Draw(rt, "priority"))
				p.Spec.PreemptionPolicy = new(corev1.PreemptNever)
			}
			switch kind := rapid.IntRange(0, 5).Draw(rt, "event"); {
			case kind == 0:
				name := fmt.Sprintf("g%dx", i)
				gangs[name] = rapid.IntRange(1, 3).Draw(rt, "members")
				one := new(corev1.Pod)
				never(one)
				l.gang(name, gangs[name], int64(rapid.IntRange(1, 4).Draw(rt, "CPUs of each")), func(p *corev1.Pod) {
					p.Spec.Priority, p.Spec.PreemptionPolicy = one.Spec.Priority, one.Spec.PreemptionPolicy
				})
			case kind < 3 && len(running) > 0:
				l.api.remove(running[rapid.IntRange(0, len(running)-1).Draw(rt, "ends")])
			default:
				l.pod(fmt.Sprint("s", i), int64(rapid.IntRange(1, 2).Draw(rt, "CPUs")), never)
			}
			l.runUntilIdle()
			reserved := 0
			for name := range gangs {
				if l.why(name).Code == why.GangReserved {
					reserved++
				}
			}
			most = max(most, reserved)
		}
		for range 200 {
			running := l.on("")
			if len(running) == 0 {
				break
			}
			l.api.remove(running[0])
			l.runUntilIdle()
		}
		for _, o := range l.api.pods.GetStore().List() {
			p := o.(*corev1.Pod)
			rt.Fatalf("all that was started has ended, and %s waits by %+v", p.Name,
				l.why(p.Annotations[annotation.GangName]))
		}
		reservedAtOnce[most]++
	})
	if reservedAtOnce[2] == 0 && !testing.Short() {
		t.Error("no two gangs had nodes kept for them at once")
	}
}

// planning counts the nodes that are asked about pods.
type planning struct {
	framework.Framework
	asked *int
}

func (p *planning) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo,
) *fwk.Status {
	*p.asked++
	return p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
}

func (p *planning) ClassOf(ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState,
) string {
	return p.Framework.(*profile).ClassOf(ctx, pod, signature, state)
}

// TestEqualGangsThatDoNotFitCostOnePlan: each waits with a root cause of its own, and those for which a node is freed
// start.
//
// F24: a retry grinds through all hopeless jobs.
func TestEqualGangsThatDoNotFitCostOnePlan(t *testing.T) {
	t.Run("anywhere", func(t *testing.T) { equalGangs(t, func(*corev1.Pod) {}) })
	t.Run("in one block", func(t *testing.T) {
		equalGangs(t, func(p *corev1.Pod) { p.Annotations[annotation.GangNetworkTopology] = inOneBlock })
	})
}

func equalGangs(t *testing.T, all func(*corev1.Pod)) {
	t.Helper()
	const gangs, nodes = 300, 20
	in := layers
	for i := range nodes {
		in += networkNode(fmt.Sprint("n", i), 4, "s", fmt.Sprint("b", i%2))
	}
	l := newLive(t, in)
	l.all = all
	asked := 0
	for name, f := range l.core.Profiles {
		l.core.Profiles[name] = &planning{f, &asked}
	}
	for i := range nodes {
		l.pod(fmt.Sprint("keeps", i), 3)
	}
	l.runUntilIdle()
	asked = 0
	for i := range gangs {
		options := inGangOf(fmt.Sprintf("g%dx", i), 2)
		for m := range 2 { // of every other one the first needs room
			l.pod(fmt.Sprintf("g%dx%d", i, m), int64(3*((i+m)%2)), options, func(p *corev1.Pod) {
				p.Labels["job"] = fmt.Sprint(i)
			})
		}
	}
	l.runUntilIdle()
	one := newLive(t, in)
	one.all = all
	alone := 0
	for name, f := range one.core.Profiles {
		one.core.Profiles[name] = &planning{f, &alone}
	}
	for i := range nodes {
		one.pod(fmt.Sprint("keeps", i), 3)
	}
	one.runUntilIdle()
	alone = 0
	one.gang("g", 1, 3)
	one.pod("h", 0)
	one.runUntilIdle()
	if asked == 0 || asked > 4*alone {
		t.Errorf("nodes were asked %d times, want about the %d of one gang", asked, alone)
	}
	for i := range gangs {
		r := l.why(fmt.Sprintf("g%dx", i))
		large := 1 - i%2
		if want := fmt.Sprintf("default/g%dx%d", i, large); r.Code != why.GangSiblingFailed || r.Pod != want ||
			r.Have != large || r.Need != 2 || r.Cause.Code != why.InsufficientCPU {
			t.Fatalf("gang %d waits by %+v, want %s to fail", i, r, want)
		}
	}
	asked = 0
	for i := range 15 { // which overtake them, and none is planned for that but the first
		l.pod(fmt.Sprint("s", i), 1)
		l.runUntilIdle()
	}
	if len(l.on("s")) != 15 || asked > 15*nodes+20*alone {
		t.Errorf("%d pods behind them were started, and nodes were asked %d times", len(l.on("s")), asked)
	}
	for len(l.on("s")) > 0 {
		l.end("s")
	}
	for range 3 {
		l.end("keeps")
	}
	l.runUntilIdle()
	for i := range gangs {
		if started := len(l.on(fmt.Sprintf("g%dx", i))) == 2; started != (i < 3) {
			t.Errorf("three nodes were freed, and gang %d was started: %t", i, started)
		}
	}
	for i := 3; i < gangs; i++ { // the queue clears what it has of one when that is tried again
		name := fmt.Sprintf("g%dx%d", i, 1-i%2)
		info, waits := l.core.SchedulingQueue.GetPod(name, "default", nil)
		if !waits || info.UnschedulablePlugins.Len() == 0 {
			t.Fatalf("%s waits: %t, for no plugin's events", name, waits)
		}
		info.ClearRejectorPlugins()
	}
}

// TestEqualGangsShareWhatManyDomainsSaid: more than are tried in one plan.
//
// F24: a retry grinds through all hopeless jobs.
func TestEqualGangsShareWhatManyDomainsSaid(t *testing.T) {
	const domains, gangs = 1050, 5
	in := layers
	for i := range domains {
		node := networkNode(fmt.Sprint("n", i), 4, "s", fmt.Sprint("b", i))
		in += strings.Replace(node, "status:", "spec: {unschedulable: true}, status:", 1)
	}
	l, asked := newLive(t, in), 0
	l.all = func(p *corev1.Pod) { p.Annotations[annotation.GangNetworkTopology] = inOneBlock }
	for name, f := range l.core.Profiles {
		l.core.Profiles[name] = &planning{f, &asked}
	}
	for i := range gangs {
		l.gang(fmt.Sprint("g", i, "x"), 1, 3)
	}
	l.runUntilIdle()
	for i := range gangs {
		r := l.why(fmt.Sprint("g", i, "x"))
		if r.Code != why.GangSiblingFailed || r.Tried.Domains != domains || r.Tried.Many != domains {
			t.Errorf("gang %d waits by %+v", i, r)
		}
	}
	if asked < domains || asked >= 2*domains {
		t.Errorf("nodes were asked %d times for %d gangs, want about %d", asked, gangs, domains)
	}
}

// TestNodesAreKeptWhenAllOfAPlanHasFailed: they are not looked for after the first portion of its domains, in the rest
// of which the gang may fit; what is kept for it remains meanwhile.
func TestNodesAreKeptWhenAllOfAPlanHasFailed(t *testing.T) {
	const domains = 1050
	in := layers + cpuNode("free", 4) + networkNode("kept", 2, "s", "a") + networkNode("large", 8, "s", "z")
	for i := range domains {
		node := networkNode(fmt.Sprint("n", i), 4, "s", fmt.Sprint("b", i))
		in += strings.Replace(node, "status:", "spec: {unschedulable: true}, status:", 1)
	}
	l, asked := newLive(t, in), 0
	l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(1) })
	for name, f := range l.core.Profiles {
		l.core.Profiles[name] = &planning{f, &asked}
	}
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	block := func(p *corev1.Pod) { p.Annotations[annotation.GangNetworkTopology] = inOneBlock }
	l.pod("old", 8, on("large"))
	l.pod("g0", 1, inGangOf("g", 2), block)
	l.pod("behind", 1, on("kept"))
	l.pod("g1", 1, inGangOf("g", 2), block)
	l.runUntilIdle()
	l.pod("s", 1)
	l.runUntilIdle()
	if r := l.why("g"); r.Code != why.GangReserved {
		t.Fatalf("the gang was overtaken, and waits by %+v", r)
	}
	asked = 0
	l.end("old")
	l.runUntilIdle()
	for _, p := range l.on("g") {
		if p.Spec.NodeName != "large" {
			t.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
		}
	}
	const own = 4 // each member is tried in the domain's plan, and in its own cycle
	if n := len(l.on("g")); n != 2 || asked != domains+own {
		t.Errorf("%d members run, and %d nodes were asked, want 2 and %d", n, asked, domains+own)
	}
}

// TestAGangIsPlannedWhoseQuotaHasGrown: no event of the queue says so. Other gangs of its shape did not fit before.
func TestAGangIsPlannedWhoseQuotaHasGrown(t *testing.T) {
	l := newLive(t, elastic("scheduling.sigs.k8s.io", "team", "", "{cpu: 2}", "{cpu: 2}")+cpuNode("n0", 16))
	l.all = func(p *corev1.Pod) { p.Labels[annotation.QuotaName] = "team" }
	l.gang("a", 2, 2)
	l.gang("b", 2, 2)
	l.runUntilIdle()
	all, _ := l.quotas.Objects()
	for _, q := range all {
		if q.Name == "team" {
			more := q.DeepCopy()
			more.Spec.Max["cpu"], more.Spec.Min["cpu"] = resource.MustParse("16"), resource.MustParse("16")
			l.quotas.PutQuota(more)
		}
	}
	l.gang("c", 2, 2)
	l.runUntilIdle()
	if len(l.on("c")) != 2 {
		t.Errorf("there is room in the quota and on the node, and it waits by %+v", l.why("c"))
	}
}

// TestNoGangIsSkippedThatFits is G11 by brute force: gangs of two shapes, pods that come and go, and after each event
// no gang waits for which there is room.
func TestNoGangIsSkippedThatFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))
		l.gangs.Read(func(s *gang.State) { s.LimitOvertakes(0) })
		gangs := map[string]int{} // CPUs of each member
		for i := range rapid.IntRange(10, 40).Draw(rt, "steps") {
			switch kind := rapid.IntRange(0, 4).Draw(rt, "event"); {
			case kind < 2:
				name := fmt.Sprintf("g%dx", i)
				gangs[name] = rapid.SampledFrom([]int{1, 2}).Draw(rt, "CPUs of each")
				l.gang(name, 2, int64(gangs[name]))
			case kind == 2:
				l.pod(fmt.Sprint("s", i), int64(rapid.IntRange(1, 3).Draw(rt, "CPUs")))
			case kind == 3:
				for range rapid.IntRange(1, 3).Draw(rt, "end") {
					if len(l.on("")) > 0 {
						l.end("")
					}
				}
			default:
				l.update(l.name(rt), func(p *corev1.Pod) {
					metav1.SetMetaDataLabel(&p.ObjectMeta, "changed", fmt.Sprint(i))
				})
			}
			l.runUntilIdle()
			free := map[string]int{"n0": 4, "n1": 4}
			for _, p := range l.on("") {
				free[p.Spec.NodeName] -= int(p.Spec.Containers[0].Resources.Requests.Cpu().Value())
			}
			for name, cpus := range gangs {
				if l.why(name).Code != why.None && free["n0"]/cpus+free["n1"]/cpus >= 2 {
					rt.Fatalf("gang %s of 2 pods with %d CPUs waits by %+v, and %v are free", name, cpus, l.why(name),
						free)
				}
			}
		}
	})
}

// name draws a pod, and creates one where there is none.
func (l *live) name(rt *rapid.T) string {
	var names []string
	for _, o := range l.api.pods.GetStore().List() {
		names = append(names, o.(*corev1.Pod).Name)
	}
	if len(names) == 0 {
		l.pod("first", 1)
		return "first"
	}
	slices.Sort(names)
	return rapid.SampledFrom(names).Draw(rt, "pod")
}

// nominationEnds ends the nomination of another pod when the first member of a plan that has failed comes back.
type nominationEnds struct {
	podqueue.Queue
	pod *corev1.Pod
}

func (q *nominationEnds) AddUnschedulablePodIfNotPresent(
	logger klog.Logger, pod *framework.QueuedPodInfo, n int64,
) error {
	if owner := q.pod; owner != nil {
		q.pod = nil
		q.DeleteNominatedPodIfExists(owner)
		q.MoveAllToActiveOrBackoffQueue(logger, framework.EventAssignedPodDelete, owner, nil, nil)
	}
	return q.Queue.AddUnschedulablePodIfNotPresent(logger, pod, n)
}

// TestAGangStartsForWhichANodeIsFreedWhileItsPlanFails: its first member does not fit, and then it does.
func TestAGangStartsForWhichANodeIsFreedWhileItsPlanFails(t *testing.T) {
	l := newLive(t, cpuNode("n0", 4))
	l.pod("nominated", 4, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/x"}}
	})
	l.runUntilIdle()
	var other *corev1.Pod
	for _, o := range l.api.pods.GetStore().List() {
		other = o.(*corev1.Pod)
	}
	info, err := framework.NewPodInfo(other)
	testkit.Check(t, err)
	l.core.SchedulingQueue.AddNominatedPod(klog.Background(), info,
		&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n0"})
	other = other.DeepCopy()
	other.Status.NominatedNodeName = "n0"
	l.core.SchedulingQueue = &nominationEnds{loop.Of(l.core.Scheduler).Queue(), other}
	l.gang("a", 2, 2)
	l.runUntilIdle()
	if len(l.on("a")) != 2 {
		t.Errorf("the node is free, and the gang waits by %+v", l.why("a"))
	}
}

// TestNodesAreKeptWhateverIsTaken: a node is kept whose pods behind the gang take what it needs, of any resource; not
// one that has too little even without them.
func TestNodesAreKeptWhateverIsTaken(t *testing.T) {
	asks := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount) }
	}
	for name, c := range map[string]struct {
		resource      corev1.ResourceName
		younger       int // pods on each node
		takes, member string
		want          why.Code
	}{
		"CPUs":                  {corev1.ResourceCPU, 1, "4", "4", why.GangReserved},
		"memory":                {corev1.ResourceMemory, 3, "2Gi", "8Gi", why.GangReserved},
		"places for pods":       {corev1.ResourceCPU, 4, "0", "2m", why.GangReserved},
		"devices":               {"example.com/d", 2, "1", "2", why.GangReserved},
		"more than there is":    {corev1.ResourceMemory, 1, "8Gi", "9Gi", why.GangSiblingFailed},
		"more devices than are": {"example.com/d", 2, "1", "3", why.GangSiblingFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes strings.Builder
			for _, n := range []string{"a", "b", "small"} {
				fmt.Fprintf(&nodes, "{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: ", n)
				if n == "small" {
					nodes.WriteString("{cpu: 1m, pods: '50'}}}\n---\n")
				} else {
					nodes.WriteString("{cpu: '4', memory: 8Gi, pods: '4', example.com/d: '2'}}}\n---\n")
				}
			}
			l := newLive(t, nodes.String())
			for i := range 2 * c.younger {
				l.pod(fmt.Sprint("younger", i), 0, asks(c.resource, c.takes), func(p *corev1.Pod) {
					p.Spec.NodeName = string("ab"[i%2])
					p.CreationTimestamp = metav1.Unix(1_900_000_000, 0)
				})
			}
			l.gang("g", 2, 0, asks(c.resource, c.member))
			l.runUntilIdle()
			for i := range 10 {
				l.pod(fmt.Sprint("s", i), 0)
			}
			l.runUntilIdle()
			if got := l.why("g"); got.Code != c.want {
				t.Errorf("the gang waits with %v, want %v: %+v", got.Code, c.want, got)
			}
		})
	}
}
