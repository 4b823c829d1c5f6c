package podqueue

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestMain(m *testing.M) {
	metrics.Register() // upstream's; queues cannot do without
	os.Exit(m.Run())
}

// byPriority is a total order: no two pods are equal.
func byPriority(a, b fwk.QueuedEntityInfo) bool {
	x, y := PodOf(a), PodOf(b)
	return cmp.Or(cmp.Compare(*y.Spec.Priority, *x.Spec.Priority), cmp.Compare(x.Name, y.Name)) < 0
}

// bench is a queue with a PreEnqueue plugin, which holds back some pods, and a plugin Fit, which refuses others and
// wakes them when their labels change.
type bench struct {
	Queue
	inner *queue.PriorityQueue
	ctx   context.Context
	clock *testclock.FakeClock
	held  map[string]bool // by name
}

// Name and PreEnqueue are those of the plugin that holds pods back.
func (*bench) Name() string { return "Hold" }

func (b *bench) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if b.held[pod.Name] {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	return nil
}

func newBench(tb testing.TB, less fwk.LessFunc) *bench {
	tb.Helper()
	logger := klog.New(logr.Discard().GetSink())
	b := &bench{
		ctx: klog.NewContext(tb.Context(), logger), clock: testclock.NewFakeClock(time.Unix(1e9, 0)),
		held: map[string]bool{},
	}
	queues := func(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil }
	b.inner = queue.NewPriorityQueue(less, known(), queue.WithClock(b.clock),
		queue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(10, time.Hour, tb.Context().Done())),
		queue.WithPodInitialBackoffDuration(time.Minute), queue.WithPodMaxBackoffDuration(time.Hour),
		queue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"": {b.Name(): b}}),
		queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"": {
			{Resource: fwk.Pod, ActionType: fwk.UpdatePodLabel}: {{PluginName: "Fit", QueueingHintFn: queues}},
		}}))
	q, err := New(b.inner)
	testkit.Check(tb, err)
	b.Queue = q
	return b
}

// known has the pods that may be nominated.
var known = sync.OnceValue(func() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for i := range 8 {
		if err := factory.Core().V1().Pods().Informer().GetStore().Add(waiting(i, 0)); err != nil {
			panic(err)
		}
	}
	return factory
})

// waiting returns pod i.
func waiting(i int, priority int32) *corev1.Pod {
	return object.Pod(fmt.Sprint("p", i), object.Priority(priority))
}

// fail queues a popped pod as the handler of failures does.
func (b *bench) fail(tb interface{ Fatal(...any) }, info *framework.QueuedPodInfo, refusedBy ...string) {
	info.UnschedulablePlugins = sets.New(refusedBy...)
	if err := b.AddUnschedulablePodIfNotPresent(klog.FromContext(b.ctx), info, b.SchedulingCycle()); err != nil {
		tb.Fatal(err)
	}
}

func namesOf(pods []*corev1.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, fmt.Sprint(p.Name, p.UID, p.Labels))
	}
	slices.Sort(names)
	return names
}

// state returns what is where.
func (b *bench) state() map[string][]string {
	out := map[string][]string{
		"active": namesOf(b.PodsInActiveQ()), "backoff": namesOf(b.PodsInBackoffQ()),
		"unschedulable": namesOf(b.UnschedulablePods()), "in flight": namesOf(b.InFlightPods()),
	}
	for _, node := range []string{"n0", "n1"} {
		for _, p := range b.NominatedPodsForNode(node) {
			out[node] = append(out[node], p.GetPod().Name)
		}
	}
	return out
}

// TestTakeMovesOnePodAlone compares Take with a model in random steps: the pod leaves the queue for those in flight if
// it is in the queue and not held back, and nothing else changes. The pods that are left keep their order.
func TestTakeMovesOnePodAlone(t *testing.T) {
	t.Parallel()
	taken, absent := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		logger := klog.New(logr.Discard().GetSink())
		b := newBench(t, byPriority)
		pods, popped := map[int]*corev1.Pod{}, map[int]*framework.QueuedPodInfo{}
		for step := range 60 {
			i := rapid.IntRange(0, 7).Draw(rt, "pod")
			pod := pods[i]
			switch what := rapid.IntRange(0, 11).Draw(rt, "what"); {
			case pod == nil:
				pod = waiting(i, rapid.Int32Range(0, 3).Draw(rt, "priority"))
				pod.Status.NominatedNodeName = rapid.SampledFrom([]string{"", "", "n0"}).Draw(rt, "nominated")
				pods[i] = pod
				b.Add(b.ctx, pod)
			case what == 0:
				b.Delete(logger, pod)
				b.Done(pod.UID)
				delete(pods, i)
				delete(popped, i)
			case what == 1:
				now := pod.DeepCopy()
				now.Labels = map[string]string{"step": fmt.Sprint(step)}
				pods[i] = now
				b.Update(b.ctx, pod, now)
			case what == 2:
				b.held[pod.Name] = !b.held[pod.Name]
			case what == 3:
				b.clock.Step(40 * time.Second)
			case what == 4:
				node := rapid.SampledFrom([]string{"n0", "n1"}).Draw(rt, "node")
				b.AddNominatedPod(logger, &framework.PodInfo{Pod: pod},
					&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node})
			case what == 5:
				b.DeleteNominatedPodIfExists(pod)
			case what <= 7 && popped[i] != nil: // it fails: to the backoff, or until an event
				plugins := rapid.SampledFrom([][]string{nil, {"Fit"}}).Draw(rt, "refused by")
				popped[i].PodInfo, _ = framework.NewPodInfo(pod)
				b.fail(rt, popped[i], plugins...)
				delete(popped, i)
			default:
				want, name := b.state(), namesOf([]*corev1.Pod{pod})[0]
				attempts := 1
				if info, waits := b.GetPod(pod.Name, pod.Namespace, nil); waits {
					attempts += info.Attempts
				}
				comes := slices.Contains(want["active"], name) || slices.Contains(want["backoff"], name) ||
					slices.Contains(want["unschedulable"], name) && !b.held[pod.Name]
				if comes {
					for _, part := range []string{"active", "backoff", "unschedulable"} {
						want[part] = slices.DeleteFunc(want[part], func(other string) bool { return other == name })
					}
					want["in flight"] = slices.Sorted(slices.Values(append(want["in flight"], name)))
				}
				info := b.Take(logger, pod)
				if info != nil != comes || comes && (info.Pod != pod || info.Attempts != attempts) {
					rt.Fatalf("step %d: took %+v of %s, want it: %t, attempt %d", step, info, name, comes, attempts)
				}
				if diff := gocmp.Diff(want, b.state()); diff != "" {
					rt.Fatalf("step %d, want - got +:\n%s", step, diff)
				}
				if !comes {
					absent++
					break
				}
				taken++
				popped[i] = info
			}
		}
		left := slices.SortedFunc(slices.Values(b.PodsInActiveQ()), func(x, y *corev1.Pod) int {
			return cmp.Or(cmp.Compare(*y.Spec.Priority, *x.Spec.Priority), cmp.Compare(x.Name, y.Name))
		})
		for _, want := range left {
			if first, err := Pods(b.Pop)(logger); err != nil || first.Pod.Name != want.Name {
				rt.Fatalf("popped %v, %v, want %s", first, err, want.Name)
			}
		}
	})
	if !testing.Short() && (taken < 300 || absent < 100) {
		t.Errorf("%d pods were taken, %d not: too few", taken, absent)
	}
}

// TestTake has what a round of a gang relies on.
func TestTake(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	for name, c := range map[string]func(t *testing.T, b *bench){
		"a member in backoff comes with its active siblings": func(t *testing.T, b *bench) {
			b.Add(b.ctx, waiting(0, 0))
			b.fail(t, b.Take(logger, waiting(0, 0)))
			if waits := namesOf(b.PodsInBackoffQ()); len(waits) != 1 {
				t.Fatalf("%v are in backoff", waits)
			}
			b.Add(b.ctx, waiting(1, 0))
			for i := range 2 {
				if info := b.Take(logger, waiting(i, 0)); info == nil || info.Pod.Name != fmt.Sprint("p", i) {
					t.Errorf("took %v for p%d", info, i)
				}
			}
		},
		"a member that waits for an event comes": func(t *testing.T, b *bench) {
			b.Add(b.ctx, waiting(0, 0))
			b.fail(t, b.Take(logger, waiting(0, 0)), "Fit")
			if info := b.Take(logger, waiting(0, 0)); info == nil || info.Attempts != 2 {
				t.Errorf("took %+v", info)
			}
		},
		"a member that is held back is left out": func(t *testing.T, b *bench) {
			b.held["p0"] = true
			b.Add(b.ctx, waiting(0, 0))
			b.Add(b.ctx, waiting(1, 5))
			if info := b.Take(logger, waiting(0, 0)); info != nil {
				t.Errorf("took %v", info.Pod.Name)
			}
			b.held["p0"] = false // it may be tried now, and no event has said so
			if info := b.Take(logger, waiting(0, 0)); info == nil || info.Pod.Name != "p0" {
				t.Errorf("took %v", info)
			}
		},
		"a member that is not in the queue is left out, and no other pod comes in its place": func(
			t *testing.T, b *bench,
		) {
			b.Add(b.ctx, waiting(1, 5))
			if info := b.Take(logger, waiting(0, 0)); info != nil {
				t.Errorf("took %v", info.Pod.Name)
			}
			again := waiting(1, 5)
			again.UID = "another"
			if info := b.Take(logger, again); info != nil {
				t.Errorf("took %v for another pod of its name", info.Pod.Name)
			}
		},
		"a member in flight is left out, and fails as if it had not been asked for": func(t *testing.T, b *bench) {
			b.Add(b.ctx, waiting(0, 0))
			info := b.Take(logger, waiting(0, 0))
			if again := b.Take(logger, waiting(0, 0)); again != nil {
				t.Fatalf("took %v twice", again)
			}
			b.fail(t, info, "Fit")
			if waits := b.UnschedulablePods(); len(waits) != 1 {
				t.Errorf("%v wait for an event, want p0", namesOf(waits))
			}
		},
		"a member in flight whose entry came back is left out, and the first pod stays": func(t *testing.T, b *bench) {
			b.Add(b.ctx, waiting(0, 0))
			b.Take(logger, waiting(0, 0))
			b.Add(b.ctx, waiting(0, 0))
			if again := b.Take(logger, waiting(0, 0)); again != nil {
				t.Fatalf("took %v twice", again)
			}
			b.Add(b.ctx, waiting(1, 0))
			if first, err := Pods(b.Pop)(logger); err != nil || first.Pod.Name != "p1" {
				t.Errorf("popped %v, %v", first, err)
			}
		},
		"a member that is edited during the round wakes after it fails": func(t *testing.T, b *bench) {
			b.Add(b.ctx, waiting(0, 0))
			info := b.Take(logger, waiting(0, 0))
			edited := object.Pod("p0", object.Priority(0), object.Label("zone", "a"))
			b.Update(b.ctx, waiting(0, 0), edited)
			info.PodInfo, _ = framework.NewPodInfo(edited)
			b.fail(t, info, "Fit")
			if waits := b.PodsInBackoffQ(); len(waits) != 1 {
				t.Errorf("it waits as %v", b.state())
			}
		},
		"a pod behind a thousand members comes first, and they keep their order": func(t *testing.T, b *bench) {
			for i := range 1000 {
				b.Add(b.ctx, waiting(i, 1000-int32(i)))
			}
			b.Add(b.ctx, waiting(1000, -5))
			if info := b.Take(logger, waiting(1000, -5)); info == nil || info.Pod.Name != "p1000" {
				t.Fatalf("took %v", info)
			}
			for i := range 1000 {
				if first, err := Pods(b.Pop)(logger); err != nil || first.Pod.Name != fmt.Sprint("p", i) {
					t.Fatalf("popped %v, %v, want p%d", first, err, i)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c(t, newBench(t, byPriority))
		})
	}
}

// TestTakeNeedsNoOrderOfItsOwn: a profile may name any QueueSort plugin, also one in which all pods are equal.
func TestTakeNeedsNoOrderOfItsOwn(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	for name, less := range map[string]fwk.LessFunc{
		"PrioritySort": (&queuesort.PrioritySort{}).Less,
		"no order":     func(fwk.QueuedEntityInfo, fwk.QueuedEntityInfo) bool { return false },
		"always less":  func(fwk.QueuedEntityInfo, fwk.QueuedEntityInfo) bool { return true },
		"by name, reversed": func(a, b fwk.QueuedEntityInfo) bool {
			return PodOf(a).Name > PodOf(b).Name
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, less)
			for i := range 50 {
				b.Add(b.ctx, waiting(i, int32(i%7)))
			}
			for i := range 50 {
				i = i * 7 % 50
				if info := b.Take(logger, waiting(i, int32(i%7))); info == nil || info.Pod.Name != fmt.Sprint("p", i) {
					t.Fatalf("took %v for p%d", info, i)
				}
			}
			if left := b.PodsInActiveQ(); len(left) > 0 {
				t.Errorf("%v are left", namesOf(left))
			}
		})
	}
}

// TestTakeBesideInformers: pods come, change and go while others are taken. Take returns the pod or nil, and waits for
// none.
func TestTakeBesideInformers(t *testing.T) {
	t.Parallel()
	logger := klog.New(logr.Discard().GetSink())
	b := newBench(t, byPriority)
	var informers sync.WaitGroup
	var done atomic.Bool
	const writers, each = 3, 20
	for w := range writers {
		informers.Go(func() {
			for round := 0; !done.Load(); round++ {
				for i := range each {
					n := w*each + i
					pod := waiting(n, int32(n%3))
					pod.UID = types.UID(fmt.Sprint(n, "-", round))
					b.Add(b.ctx, pod)
					now := pod.DeepCopy()
					now.Labels = map[string]string{"round": fmt.Sprint(round)}
					b.Update(b.ctx, pod, now)
					if i%2 == 0 {
						b.Activate(logger, map[string]*corev1.Pod{"default/" + pod.Name: pod})
					}
					b.Delete(logger, now)
				}
			}
		})
	}
	taken, step := 0, 0
	for ; taken < 300; step++ {
		active := b.PodsInActiveQ()
		if len(active) == 0 {
			continue
		}
		pod := active[step%len(active)]
		info := b.Take(logger, pod)
		if info == nil {
			continue
		}
		if info.Pod.UID != pod.UID {
			t.Fatalf("took %s %s for %s %s", info.Pod.Name, info.Pod.UID, pod.Name, pod.UID)
		}
		taken++
		if step%2 == 0 { // another pod of its name may have come meanwhile
			_ = b.AddUnschedulablePodIfNotPresent(logger, info, b.SchedulingCycle())
		}
		b.Done(pod.UID)
	}
	done.Store(true)
	informers.Wait()
	if left := b.InFlightPods(); len(left) > 0 {
		t.Errorf("%v are in flight", namesOf(left))
	}
}

// TestAQueueOfAnotherKindIsRefused: its pods cannot be taken by name, which shows at start.
func TestAQueueOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	_, err := New(struct{ queue.SchedulingQueue }{newBench(t, byPriority).inner})
	if err == nil || !strings.Contains(err.Error(), "the scheduling queue cannot pop pods by name") {
		t.Errorf("got %v", err)
	}
}

// BenchmarkTake takes the members of a gang out of a queue.
func BenchmarkTake(b *testing.B) {
	const members, pods = 1000, 5000
	logger := klog.New(logr.Discard().GetSink())
	b.Run(fmt.Sprintf("members=%d/pods=%d", members, pods), func(b *testing.B) {
		b.ReportAllocs()
		var all []*corev1.Pod
		for i := range pods {
			all = append(all, waiting(i, int32(i%11)))
		}
		for b.Loop() {
			b.StopTimer()
			q := newBench(b, byPriority)
			for _, pod := range all {
				q.Add(q.ctx, pod)
			}
			b.StartTimer()
			for i := range members {
				if q.Take(logger, all[i*5]) == nil {
					b.Fatal("a member is not in the queue")
				}
			}
		}
	})
}

// TestAGroupIsAnError: only the feature gate GenericWorkload makes one. It is not taken for a pod, nor left out.
func TestAGroupIsAnError(t *testing.T) {
	t.Parallel()
	group := func(klog.Logger) (framework.QueuedEntityInfo, error) { return &framework.QueuedPodGroupInfo{}, nil }
	if pod, err := Pods(group)(klog.Background()); pod != nil || err == nil ||
		!strings.Contains(err.Error(), "GenericWorkload") {
		t.Errorf("got %v, %v", pod, err)
	}
	closed := func(klog.Logger) (framework.QueuedEntityInfo, error) { return nil, nil }
	if pod, err := Pods(closed)(klog.Background()); pod != nil || err != nil {
		t.Errorf("a closed queue: got %v, %v", pod, err)
	}
	if entity, err := Entities(Pods(closed))(klog.Background()); entity != nil || err != nil {
		t.Errorf("kube-scheduler gets %v, %v from a closed queue", entity, err)
	}
	failing := func(klog.Logger) (framework.QueuedEntityInfo, error) { return nil, os.ErrClosed }
	if entity, err := Entities(Pods(failing))(klog.Background()); entity != nil || err == nil {
		t.Errorf("kube-scheduler gets %v, %v for an error", entity, err)
	}
}
