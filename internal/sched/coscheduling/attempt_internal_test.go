package coscheduling

import (
	"context"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// oneProfile is a profile with the nodes n0 and n1.
type oneProfile struct {
	framework.Framework
	snapshot *cache.Snapshot
	claims   openClaims
	// reserve and unreserve replace the plugins; nil for none.
	reserve   func(fwk.CycleState, *corev1.Pod) *fwk.Status
	unreserve func(*corev1.Pod)
}

func (p *oneProfile) SnapshotSharedLister() fwk.SharedLister { return p.snapshot }

func (p *oneProfile) SharedDRAManager() fwk.SharedDRAManager { return &p.claims }

func (p *oneProfile) RunReservePluginsReserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ string,
) *fwk.Status {
	if p.reserve == nil {
		return nil
	}
	return p.reserve(cs, pod)
}

func (p *oneProfile) RunReservePluginsUnreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	if p.unreserve != nil {
		p.unreserve(pod)
	}
}

// openClaims are claims without devices.
type openClaims struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	// alternatives has how many alternatives the request of each claim has, by its name.
	alternatives map[string]int
}

func (o *openClaims) ResourceClaims() fwk.ResourceClaimTracker { return o }

func (o *openClaims) Get(_, name string) (*resourcev1.ResourceClaim, error) {
	c := &resourcev1.ResourceClaim{}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		{FirstAvailable: make([]resourcev1.DeviceSubRequest, o.alternatives[name])},
	}
	return c, nil
}

// noPlugins are those of other features, and their accounts, where these decide nothing.
type noPlugins struct{ Plugins }

func (noPlugins) Trial() Trial            { return noPlugins{} }
func (noPlugins) Planned(fwk.CycleState)  {}
func (noPlugins) Admitted(fwk.CycleState) {}
func (noPlugins) Mark(fwk.CycleState)     {}
func (noPlugins) Leave(string, string)    {}
func (noPlugins) Return(string, string)   {}

// evictionsIn returns what places and evicts the pods of a profile, on whose nodes these pods are.
func evictionsIn(p *oneProfile, schedule loop.Schedule, bound ...*corev1.Pod) *Evictions {
	p.snapshot = cache.NewSnapshot(bound, []*corev1.Node{
		object.Node("n0", nil, "pods", "9"), object.Node("n1", nil, "pods", "9"),
	})
	ev := NewEvictions(Cluster{
		Gangs: kube.NewGangs(), Core: loop.Of(&scheduler.Scheduler{Profiles: profile.Map{"": p}}),
		Changes: &hooks.Changes{}, Plugins: noPlugins{},
	})
	ev.planner.schedule = schedule
	return ev
}

// using gives a pod a claim of this name; "" gives it none.
func using(claim string) object.PodOption {
	return func(p *corev1.Pod) {
		if claim != "" {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
		}
	}
}

// queued returns pods as the queue has them, to be tried in their order.
func queued(t *testing.T, pods ...*corev1.Pod) *members {
	t.Helper()
	m := &members{pods: map[string]*framework.QueuedPodInfo{}}
	for _, p := range pods {
		info, err := framework.NewPodInfo(p)
		testkit.Check(t, err)
		m.pods[string(p.UID)], m.order = &framework.QueuedPodInfo{PodInfo: info}, append(m.order, string(p.UID))
	}
	return m
}

// written is the state of a cycle that notes what is written to it last: packages keep their keys to themselves.
type written struct {
	fwk.CycleState
	key  fwk.StateKey
	data fwk.StateData
}

func (w *written) Write(key fwk.StateKey, data fwk.StateData) { w.key, w.data = key, data }

// whatIsWritten returns what a function writes to an empty state.
func whatIsWritten(write func(fwk.CycleState)) *written {
	w := &written{CycleState: framework.NewCycleState()}
	write(w)
	return w
}

// TestAMemberThatCouldNotBeReservedOnceMoreIsLeft: rollback goes on, and the attempt counts as broken.
func TestAMemberThatCouldNotBeReservedOnceMoreIsLeft(t *testing.T) {
	t.Parallel()
	a := &attempt{placed: map[string]*placed{}}
	a.undo = []func(){func() { a.unreserve("p") }, func() { a.broken = true }}
	if a.rollback(0); !a.broken || len(a.undo) != 0 {
		t.Errorf("broken: %t, with %d steps left", a.broken, len(a.undo))
	}
}

// choice is which choice of devices a state has, the first one or a later one.
type choice int

func (c choice) Clone() fwk.StateData { return c }

// TestADisplacedMemberReturnsToItsNode: the devices of its claims are chosen anew there, as others may have got some of
// them meanwhile. Where it cannot return, the attempt counts as broken, though another member returns after it.
func TestADisplacedMemberReturnsToItsNode(t *testing.T) {
	t.Parallel()
	const key fwk.StateKey = "choice"
	for name, c := range map[string]struct {
		claim, fails string
		reserved     choice // with which the member is reserved in the end; 0 where it is not
	}{
		"without claims":              {"", "", 1},
		"with a claim":                {"claim", "", 2},
		"no devices are left for it":  {"claim", "choice", 0},
		"its devices are refused":     {"claim", "reservation", 0},
		"refused, and without claims": {"", "reservation", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chosen, reserved := map[string]choice{}, map[string]choice{}
			returns := "" // the one that may fail now
			p := &oneProfile{unreserve: func(pod *corev1.Pod) { delete(reserved, pod.Name) }}
			p.reserve = func(cs fwk.CycleState, pod *corev1.Pod) *fwk.Status {
				if pod.Name == returns && c.fails == "reservation" {
					return fwk.NewStatus(fwk.Unschedulable, "no")
				}
				data, err := cs.Read(key)
				testkit.Check(t, err)
				reserved[pod.Name] = data.(choice)
				return nil
			}
			pl := evictionsIn(p, func(_ context.Context, _ framework.Framework, cs fwk.CycleState,
				pod *framework.QueuedPodInfo,
			) (loop.Result, error) {
				name := pod.Pod.Name
				chosen[name]++
				cs.Write(key, chosen[name])
				nodes, err := p.snapshot.ListNodesInPlacement()
				testkit.Check(t, err)
				if name == returns && (len(nodes) != 1 || nodes[0].Node().Name != "n1") {
					t.Errorf("the choice anew is among %d nodes, want n1 alone", len(nodes))
				}
				if name == returns && c.fails == "choice" {
					return loop.Result{}, errors.New("no")
				}
				return loop.Result{SuggestedHost: "n1"}, nil
			}).planner
			a := pl.attempt(t.Context(), queued(t, object.Pod("a", using(c.claim)), object.Pod("b")), nil, nil)
			for _, uid := range a.order {
				_, err := a.try(uid)
				testkit.Check(t, err)
			}
			before := len(a.undo)
			a.displace([]string{"a", "b"})
			if len(reserved)+len(a.placed) > 0 {
				t.Fatalf("after all are displaced, %v are reserved and %v placed", reserved, a.placed)
			}
			returns = "a"
			a.rollback(before)
			back, lost := a.placed["a"] != nil, c.reserved == 0
			if reserved["a"] != c.reserved || reserved["b"] != 1 || back == lost || a.broken != lost {
				t.Errorf("reserved with choices %v, want %d of a; a is placed: %t, the attempt is broken: %t", reserved,
					c.reserved, back, a.broken)
			}
			a.rollback(0)
			if n, err := p.snapshot.Get("n1"); err != nil || len(n.GetPods()) > 0 || a.broken != lost {
				t.Errorf("in the end n1 has %v, %v; the attempt is broken: %t", n, err, a.broken)
			}
		})
	}
}

// TestAnAttemptKnowsWhichPodsHaveLeftTheirClaims: their devices are free for the members, until the pods return. A pod
// without claims leaves no device.
func TestAnAttemptKnowsWhichPodsHaveLeftTheirClaims(t *testing.T) {
	t.Parallel()
	on := object.On("n0")
	x, y, plain := object.Pod("x", on, using("cx")), object.Pod("y", on, using("cy")), object.Pod("plain", on)
	ev := evictionsIn(&oneProfile{}, nil, x, y, plain)
	p := ev.newPreemption(t.Context(), queued(t, object.Pod("a")), nil, nil)
	p.budgets = kube.NewBudgets(nil)
	together := func(pods ...*corev1.Pod) *unit {
		u := &unit{}
		for _, pod := range pods {
			info, err := framework.NewPodInfo(pod)
			testkit.Check(t, err)
			u.pods = append(u.pods, info)
		}
		return u
	}
	first, second := together(x, plain), together(y)
	for _, step := range []struct {
		name string
		do   func()
		left []*corev1.Pod
	}{
		{"at the beginning", func() {}, nil},
		{"x and plain leave", func() { p.removeVictims(first) }, []*corev1.Pod{x}},
		{"y leaves", func() { p.removeVictims(second) }, []*corev1.Pod{x, y}},
		{"x and plain return", func() { p.returnVictims(first) }, []*corev1.Pod{y}},
		{"they leave once more", func() { p.rollback(2) }, []*corev1.Pod{x, y}},
		{"all return", func() { p.rollback(0) }, nil},
	} {
		step.do()
		key := whatIsWritten(func(cs fwk.CycleState) { claims.Depart(cs, []*corev1.Pod{x}) }).key
		want := whatIsWritten(func(cs fwk.CycleState) { claims.Depart(cs, step.left) }).data
		if got, _ := p.state().Read(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: an attempt knows %+v, want %+v", step.name, got, want)
		}
	}
	if p.broken {
		t.Error("a pod did not leave or return")
	}
}
