package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
)

// plain is a node without a topology; shared is a pod without exclusive CPUs.
func plain(name string, cpus int) string {
	return fmt.Sprintf(
		"\n{apiVersion: v1, kind: Node, metadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s}}, "+
			"status: {capacity: {cpu: %[2]d, memory: 64Gi, pods: 110}}}\n---", name, cpus)
}

func shared(name, cpu, head, tail string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, "+
		"spec: {containers: [{name: c, image: i, resources: {requests: {cpu: %s, memory: 1Gi}}}]%s}}\n---", name, head,
		cpu, tail)
}

func placements(r Result) map[string]string {
	out := map[string]string{}
	for _, p := range r.Pods {
		out[p.Name] = strings.TrimSpace(p.State + " " + p.Node)
	}
	return out
}

// simulated decides about a text, after change has had the engine.
func simulated(t *testing.T, in string, change func(*engine)) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	docs, err := readDocuments([]string{stdin}, strings.NewReader(in), io.Discard)
	testkit.Check(t, err)
	w, err := Input{Warn: io.Discard}.readWorld(docs)
	testkit.Check(t, err)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	change(e)
	r, err := e.decide(ctx, w, io.Discard)
	for _, p := range e.core.SchedulingQueue.InFlightPods() { // a leak (kubernetes #140478) but for what waits
		if e.core.Profiles[p.Spec.SchedulerName].GetWaitingPod(p.UID) == nil {
			t.Errorf("pod %s was taken from the queue and has not come back", p.Name)
		}
	}
	return r, err
}

// rooms panics in Reserve, for pods whose names begin with bad.
type rooms struct{ elasticquota.Rooms }

func (rooms) Yield(_ fwk.CycleState, pod *corev1.Pod, _ string) {
	if strings.HasPrefix(pod.Name, "bad") {
		panic("no room")
	}
}

// TestAPodAtWhichAPluginPanicsIsUndecided: the other pods are answered.
func TestAPodAtWhichAPluginPanicsIsUndecided(t *testing.T) {
	gang := ", annotations: {gang.scheduling.koordinator.sh/name: g, gang.scheduling.koordinator.sh/min-available: '2'}"
	in := plain("n0", 8) + shared("bad", "1", "", ", priority: 10") + shared("good", "1", "", "") +
		shared("member", "1", gang, "") + shared("bad-member", "1", gang, "")
	r, err := simulated(t, in, func(e *engine) {
		for _, f := range e.core.Profiles {
			for _, p := range f.EnqueueExtensions() {
				if quotas, ok := p.(*elasticquota.Plugin); ok {
					quotas.Rooms = rooms{}
				}
			}
		}
	})
	testkit.Check(t, err)
	const failed = "a scheduler plugin failed: plugin ElasticQuota panicked in Reserve for pod default/"
	for pod, want := range map[string]string{
		"bad": "Unschedulable: " + failed + "bad: no room; held back until ", "good": "Scheduled n0",
		"bad-member": "Unschedulable: " + failed + "bad-member: no room; held back until ", "member": "Waiting: ",
	} {
		if got := outcomes(r)[pod]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q…", pod, got, want)
		}
	}
}

func TestPodsOfHigherPriorityPreempt(t *testing.T) {
	const low, high = ", priority: 10", ", priority: 1000"
	budget := "\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, " +
		"selector: {matchLabels: {app: kept}}}}\n---"
	nodes := plain("n0", 8) + plain("n1", 8)
	for name, c := range map[string]struct {
		in   string
		want map[string]string
	}{
		"a pod that is there is evicted": {
			plain("n0", 8) + shared("old", "6", "", low+", nodeName: n0") + shared("new", "6", "", high),
			map[string]string{"old": "Preempted n0", "new": "Scheduled n0"},
		},
		"no more pods than needed are evicted": {
			plain("n0", 8) + shared("a", "4", "", low+", nodeName: n0") + shared("b", "4", "",
				low+", nodeName: n0") + shared("new", "3", "", high),
			map[string]string{"a": "Existing n0", "b": "Preempted n0", "new": "Scheduled n0"},
		},
		"a budget is spared": {
			nodes + budget + shared("kept", "6", ", labels: {app: kept}", low+", nodeName: n0") + shared("other", "6",
				"", low+", nodeName: n1") +
				shared("new", "6", "", high),
			map[string]string{"kept": "Existing n0", "other": "Preempted n1", "new": "Scheduled n1"},
		},
		"a policy of Never waits": {
			plain("n0", 8) + shared("old", "6", "", low+", nodeName: n0") + shared("new", "6", "",
				high+", preemptionPolicy: Never"),
			map[string]string{"old": "Existing n0", "new": "Unschedulable"},
		},
		"a pod that has no node yet comes after": {
			plain("n0", 8) + shared("late", "6", "", low) + shared("first", "6", "", high),
			map[string]string{"late": "Unschedulable", "first": "Scheduled n0"},
		},
		"exclusive CPUs are freed": {
			machine("n0") + exclusive("old", 30, "LSR", "", "\n  priority: 9000\n  nodeName: n0") + exclusive("new", 20,
				"LSR", "", "\n  priority: 9500"),
			map[string]string{"old": "Preempted n0", "new": "Scheduled n0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, c.in, "-")
			if diff := cmp.Diff(c.want, placements(r)); diff != "" {
				t.Errorf("states (-want +got):\n%s\nof %+v", diff, r.Pods)
			}
			for _, p := range r.Pods {
				if p.State == Preempted && (len(p.Reasons) != 1 || p.Reasons[0].Code != why.Preempted ||
					!strings.Contains(p.Reasons[0].Message, "default/new of priority")) {
					t.Errorf("%s does not name its preemptor: %+v", p.Name, p.Reasons)
				}
			}
		})
	}
}

func TestAnInputWithoutPriorityOfItsClassIsNotPreempted(t *testing.T) {
	in := plain("n0", 8) + shared("old", "6", "", ", priorityClassName: koord-prod, nodeName: n0") + shared("new", "6",
		"", ", priority: 8000")
	r, _ := simulate(t, in, "-")
	if got := stateOf(r, "old").State; got != Existing {
		t.Errorf("a pod of class koord-prod (9000) is %s for one of 8000", got)
	}
}

func TestServicesCount(t *testing.T) {
	const service = "\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: web}, ports: " +
		"[{port: 80}]}}\n---"
	in := plain("n0", 8) + plain("n1", 8) + shared("heavy", "4", "", ", nodeName: n1")
	for i := range 6 {
		in += shared(fmt.Sprintf("web%d", i), "10m", ", labels: {app: web}", ", nodeName: n0")
	}
	in += shared("new", "10m", ", labels: {app: web}", "")
	for want, in := range map[string]string{"n0": in, "n1": in + service} {
		r, warn := simulate(t, in, "-")
		if got := stateOf(r, "new").Node; got != want || warn != "" {
			t.Errorf("got %s, want %s; warnings %q", got, want, warn)
		}
	}
}

// crowd is a cluster with equal nodes and pods that fit, do not fit, evict each other and tie.
func crowd() string {
	var b strings.Builder
	for i := range 4 {
		b.WriteString(machine(fmt.Sprintf("n%d", i)))
		for j := range 3 {
			old := shared(fmt.Sprintf("old%d%d", i, j), "8", "", fmt.Sprintf(", priority: 10, nodeName: n%d", i))
			// victims tie
			b.WriteString(strings.Replace(old, "kind: Pod,", "kind: Pod, status: {startTime: 2026-03-01T12:00:00Z},",
				1))
		}
	}
	for i := range 12 {
		b.WriteString(exclusive(fmt.Sprintf("e%d", i), 4+i%3*6, "LSR", "", ""))
		b.WriteString(shared(fmt.Sprintf("s%d", i), "7", fmt.Sprintf(", labels: {app: a%d}", i%2),
			fmt.Sprintf(", priority: %d", i%5*100)))
	}
	b.WriteString(
		"\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: a1}, ports: [{port: 80}]}}\n---")
	return b.String()
}

func TestEqualBytesWhateverRunsBeside(t *testing.T) {
	in := crowd()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var first string
	states := map[string]int{}
	for i := range 100 {
		runtime.GOMAXPROCS([]int{1, 8}[i%2])
		r, _ := simulate(t, in, "-")
		if got := string(printed(t, r, "json")); i == 0 {
			first = got
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Fatalf("run %d differs:\n%s", i, diff)
		}
		for _, p := range r.Pods {
			states[p.State]++
		}
	}
	for _, state := range []string{Scheduled, Unschedulable, Preempted, Existing} {
		if states[state] == 0 {
			t.Errorf("no pod is %s, so the test says little: %v", state, states)
		}
	}
}

// unranked makes each pod a pass over all nodes.
type unranked struct{ *journal.Cycle }

func (unranked) Unranked() bool { return true }

func TestARankingPlacesAsAPassOverAllNodesDoes(t *testing.T) {
	in := crowd() + fleet(8, 60)
	ranked, err := simulated(t, in, func(*engine) {})
	testkit.Check(t, err)
	passed, err := simulated(t, in, func(e *engine) {
		for _, f := range e.core.Profiles {
			f.(*profile).Cycle = unranked{&journal.Cycle{}}
		}
	})
	if diff := cmp.Diff(passed, ranked); err != nil || diff != "" {
		t.Errorf("error %v; with a ranking (-without +with):\n%s", err, diff)
	}
}

func TestAPodThatMeetsErrorsIsTriedTenTimesForEachChange(t *testing.T) {
	calls := map[string]int{}
	r, err := simulated(t, plain("n0", 8)+shared("bad", "1", "", ", priority: 5")+shared("good", "1", "", ""),
		func(e *engine) {
			schedule := e.core.SchedulePod
			e.core.SchedulePod = func(ctx context.Context, f framework.Framework, s fwk.CycleState,
				p *framework.QueuedPodInfo,
			) (scheduler.ScheduleResult, error) {
				if calls[p.Pod.Name]++; p.Pod.Name == "bad" {
					return scheduler.ScheduleResult{}, errors.New("broken on purpose")
				}
				return schedule(ctx, f, s, p)
			}
		})
	testkit.Check(t, err)
	undecided := map[string]string{
		"bad": "Unschedulable: cannot be decided: broken on purpose", "good": "Scheduled n0",
	}
	if diff := cmp.Diff(undecided, outcomes(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := map[string]int{"bad": 2 * maxTries, "good": 1}; !cmp.Equal(want, calls) {
		t.Errorf("attempts: got %v, want %v", calls, want)
	}
}

// gangOf is a profile with a permit plugin: pods named g-N wait until the last of size members is there.
type gangOf struct {
	framework.Framework
	size   int
	reject bool
	seen   int
}

func (g *gangOf) RunPermitPlugins(_ context.Context, _ fwk.CycleState, pod *corev1.Pod,
	_ string,
) (map[string]time.Duration, *fwk.Status) {
	if !strings.HasPrefix(pod.Name, "g-") {
		return nil, nil
	}
	if g.seen++; g.seen < g.size {
		return map[string]time.Duration{"Gang": time.Millisecond}, fwk.NewStatus(fwk.Wait, "for the others")
	}
	g.IterateOverWaitingPods(func(w fwk.WaitingPod) {
		if g.reject {
			w.Reject("Gang", "no")
		} else {
			w.Allow("Gang")
		}
	})
	if g.reject {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no").WithPlugin("Gang")
	}
	return nil, nil
}

func TestPodsThatWaitForAPermit(t *testing.T) {
	in := plain("n0", 8) + shared("g-0", "1", "", "") + shared("g-1", "1", "", "") + shared("x", "1", "",
		"") + shared("g-2", "1", "", "")
	for name, c := range map[string]struct {
		size   int
		reject bool
		want   string // of all members
		bound  []string
	}{
		"all are bound with the last one":  {3, false, Scheduled, []string{"x", "g-2", "g-0", "g-1"}},
		"all fail with the last one":       {3, true, Unschedulable, []string{"x"}},
		"a gang that is not whole waits":   {4, false, Waiting, []string{"x"}},
		"a gang of one waits for no other": {1, false, Scheduled, []string{"g-0", "g-1", "x", "g-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var bound []string
			r, err := simulated(t, in, func(e *engine) {
				for _, f := range e.core.Profiles {
					p := f.(*profile)
					p.Framework = &gangOf{Framework: p.Framework, size: c.size, reject: c.reject}
				}
				if _, err := e.api.pods.AddEventHandler(follower(func(p *corev1.Pod) {
					bound = append(bound,
						p.Name)
				})); err != nil {
					t.Fatal(err)
				}
			})
			testkit.Check(t, err)
			for i := range 3 {
				p := stateOf(r, fmt.Sprintf("g-%d", i))
				if p.State != c.want || (p.Node == "") != (c.want == Unschedulable) {
					t.Errorf("%s: got %s on %q, want %s", p.Name, p.State, p.Node, c.want)
				}
			}
			if !slices.Equal(bound, c.bound) {
				t.Errorf("bound %v, want %v", bound, c.bound)
			}
		})
	}
}

// follower is called with each pod that is bound.
type follower func(*corev1.Pod)

func (follower) OnAdd(any, bool) {}
func (follower) OnDelete(any)    {}

func (f follower) OnUpdate(old, obj any) {
	if was, now := old.(*corev1.Pod), obj.(*corev1.Pod); was.Spec.NodeName != now.Spec.NodeName {
		f(now)
	}
}

// following is the node n0 of 8 CPUs, whose kubelet has a CPU manager policy.
func following(policy string) string {
	var cpus []string
	for c := range 8 {
		cpus = append(cpus, fmt.Sprintf(`{"id":%d,"core":%d,"socket":0,"node":%d}`, c, c, c/4))
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {kubernetes.io/arch: amd64}}, "+
		"status: {nodeInfo: {kubeletVersion: v1.36.3}, capacity: {cpu: 8, memory: 64Gi, pods: 110}}}\n---"+
		"\n{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: n0, annotations: {"+
		"%s: '{\"detail\":[%s]}', %s: Follow, %s: '{\"gen\":1}', "+
		"%s: '{\"cpu\":{\"policy\":\"%s\",\"reserved\":\"0\"},\"topology\":{\"policy\":\"restricted\"}}'}}}\n---",
		annotation.CPUTopology, strings.Join(cpus, ","), annotation.TopologyMode, annotation.ReportKey,
		annotation.KubeletKey, policy)
}

// A pod that waits for a permit is ahead of others in the order of the Bindings of a node whose kubelet chooses. No
// time passes while it waits.
func TestAPodThatWaitsForAPermitHoldsUpNoBinding(t *testing.T) {
	in := following("static")
	for _, name := range []string{"g-0", "x", "g-1"} {
		in += fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, "+
			"image: i, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]}}\n---", name)
	}
	began := time.Now()
	if _, err := simulated(t, in, func(*engine) {}); err != nil {
		t.Fatal(err)
	}
	without := time.Since(began)
	began = time.Now()
	r, err := simulated(t, in, func(e *engine) {
		for _, f := range e.core.Profiles {
			p := f.(*profile)
			p.Framework = &gangOf{Framework: p.Framework, size: 2}
		}
	})
	testkit.Check(t, err)
	if took := time.Since(began); took > 10*without+time.Second { // a Binding waits two seconds
		t.Errorf("it took %v, and %v without permits: a Binding has waited", took, without)
	}
	got := map[string]string{}
	for _, p := range r.Pods {
		got[p.Name] = p.State + " " + p.Annotations[annotation.PredictedPlacementKey]
	}
	const prediction = `Scheduled {"model":"1.36","gen":1,"containers":{"c":{"mask":[%d],"preferred":true,"cpus":%q}}}`
	want := map[string]string{ // in the order of the Bindings: x is bound while g-0 waits, and g-1 allows g-0
		"x": fmt.Sprintf(prediction, 0, "1-2"), "g-1": fmt.Sprintf(prediction, 1, "4-5"),
		"g-0": fmt.Sprintf(prediction, 1, "6-7"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
