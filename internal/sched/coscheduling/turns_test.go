package coscheduling_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
)

// loop is a scheduling loop in which no pod fits, and each attempt takes a while.
type loop struct {
	*coscheduling.Rounds
	queue queue.SchedulingQueue
	fresh []*corev1.Pod
	takes time.Duration
	aside string
}

func newLoop(ctx context.Context, t *testing.T, gangs, members int) *loop {
	metrics.Register()
	p, known := newPlugin(t)
	q := queue.NewTestQueue(ctx, p.Less, queue.WithPodInitialBackoffDuration(time.Hour),
		queue.WithPodMaxBackoffDuration(time.Hour))
	l := &loop{queue: q}
	l.Rounds = &coscheduling.Rounds{
		Gangs: known, Core: &scheduler.Scheduler{SchedulingQueue: q}, Events: func() uint64 { return 0 },
		Newcomers: l,
	}
	for i := range gangs {
		for j := range members {
			m := member(fmt.Sprintf("g%d-%d", i, j), fmt.Sprint("g", i), fmt.Sprint(members))
			known.PutPod(m)
			q.Add(ctx, m)
		}
	}
	return l
}

// come adds pods of no gang.
func (l *loop) come(ctx context.Context, priority int32, names ...string) {
	for _, name := range names {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now()),
		}}
		p.Spec.Priority = ptr.To(priority)
		l.queue.Add(ctx, p)
		l.fresh = append(l.fresh, p)
	}
}

func (l *loop) Newcomer(logger klog.Logger, priority int32, skip func(*corev1.Pod) bool) *framework.QueuedPodInfo {
	for i, p := range l.fresh {
		if corev1helpers.PodPriority(p) >= priority && !skip(p) {
			l.fresh = slices.Delete(l.fresh, i, i+1)
			return l.queue.PopSpecificPod(logger, p)
		}
	}
	return nil
}

func (l *loop) SetAside(pod *framework.QueuedPodInfo) {
	if l.aside = ""; pod != nil {
		l.aside = "/" + pod.Pod.Name
	}
}

// run tries so many pods, and calls f after each.
func (l *loop) run(ctx context.Context, t *testing.T, n int, f func(pod string)) string {
	t.Helper()
	logger := klog.FromContext(ctx)
	next := l.Next(l.Interleave(l.queue.Pop))
	fail := l.Fail(func(_ context.Context, _ framework.Framework, pod *framework.QueuedPodInfo, _ *fwk.Status,
		_ *fwk.NominatingInfo, _ time.Time,
	) {
		if err := l.queue.AddUnschedulableIfNotPresent(logger, pod, l.queue.SchedulingCycle()); err != nil {
			t.Error(err)
		}
	})
	var order []string
	for range n {
		pod, err := next(logger)
		if err != nil || pod == nil {
			t.Fatalf("after %v: %v, %v", order, pod, err)
		}
		if l.aside == "/"+pod.Pod.Name {
			t.Errorf("%s is tried and set aside", l.aside)
		}
		order = append(order, pod.Pod.Name+l.aside)
		<-time.After(l.takes)
		fail(ctx, nil, pod, fwk.NewStatus(fwk.Unschedulable, "no"), nil, time.Now())
		f(pod.Pod.Name)
	}
	return strings.Join(order, " ")
}

// TestNewcomersAreTriedBetweenRounds: half as many as the round before had members, if their priority is not lower.
func TestNewcomersAreTriedBetweenRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gangs, members int
		priorities     []int32
		want           string
	}{
		"no pods of no gang": {2, 2, nil, "g0-0 g0-1 g1-0 g1-1"},
		"more than a turn":   {2, 3, []int32{0, 0, 0, 0}, "g0-0 g0-1 g0-2 a/g1-0 b/g1-0 g1-0 g1-1 g1-2 c d"},
		"a turn of one":      {3, 2, []int32{0, 0, 0}, "g0-0 g0-1 a/g1-0 g1-0 g1-1 b/g2-0 g2-0 g2-1 c"},
		"of lower priority":  {2, 2, []int32{-1}, "g0-0 g0-1 g1-0 g1-1 a"},
		"of other priority":  {2, 2, []int32{-1, 0}, "g0-0 g0-1 b/g1-0 g1-0 g1-1 a"},
		"of higher priority": {2, 2, []int32{1, 0}, "a g0-0 g0-1 b/g1-0 g1-0 g1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t.Context(), t, c.gangs, c.members)
			for i, priority := range c.priorities {
				l.come(t.Context(), priority, string(rune('a'+i)))
			}
			got := l.run(t.Context(), t, c.gangs*c.members+len(c.priorities), func(pod string) {
				l.fresh = slices.DeleteFunc(l.fresh, func(p *corev1.Pod) bool { return p.Name == pod })
			})
			if got != c.want {
				t.Errorf("tried %s, want %s", got, c.want)
			}
		})
	}
}

// timed runs test on a clock of its own, with two gangs of two and attempts that take 100 ms.
func timed(t *testing.T, test func(context.Context, *testing.T, *loop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			<-time.After(time.Minute) // the queue's metrics end
		}()
		l := newLoop(ctx, t, 2, 2)
		l.takes = 100 * time.Millisecond
		test(ctx, t, l)
	})
}

// TestNoNewcomerIsLost when the time ends that all of them have after a failure.
func TestNoNewcomerIsLost(t *testing.T) {
	timed(t, func(ctx context.Context, t *testing.T, l *loop) {
		newcomers := strings.Fields(strings.Repeat("a ", 50))
		for i := range newcomers {
			newcomers[i] += fmt.Sprint(i)
		}
		order := strings.Fields(l.run(ctx, t, 4+len(newcomers), func(pod string) {
			if pod == "g0-1" {
				l.FailPlan(false)
				l.come(ctx, 0, newcomers...)
			}
		}))
		if at := slices.Index(order, "g1-0"); at != 2+39 { // nineteen times 200 ms, and the one that is under way then
			t.Errorf("tried %v, want the next round behind 39 of them", order)
		}
	})
}

// TestARoundWaitsForNewcomersThatAreBeingBound: for four times as long as the round before it took, nineteen
// times if its plan has failed and nothing is evicted, or until none is.
func TestARoundWaitsForNewcomersThatAreBeingBound(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, c := range map[string]struct {
		busy, come int   // how long after the first round, in milliseconds; a newcomer comes
		want       int   // between the rounds
		fails      *bool // the first round; whether it evicts
	}{
		"nothing is bound":               {0, 0, 0, nil},
		"a short while":                  {20, 0, 20, nil},
		"always":                         {1000, 0, 800, nil},
		"one comes, and the turn ends":   {1000, 50, 150, nil},
		"one comes, and none is bound":   {60, 50, 150, nil},
		"one comes after the next round": {20, 1000, 20, nil},
		"always, after a failure":        {5000, 0, 3800, new(bool)},
		"always, after evictions":        {5000, 0, 800, ptr.To(true)},
		"one comes after a failure":      {5000, 50, 3800, new(bool)},
		"a short while after a failure":  {20, 0, 20, new(bool)},
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(ctx context.Context, t *testing.T, l *loop) {
				var ended, began time.Time
				n := 4
				if c.come > 0 && c.come < c.want {
					n++
				}
				l.run(ctx, t, n, func(pod string) {
					switch pod {
					case "g0-1":
						if ended = time.Now(); c.fails != nil {
							l.FailPlan(*c.fails)
						}
						l.Busy = func() bool {
							since := time.Since(ended)
							if c.come > 0 && since >= ms(c.come) {
								l.come(ctx, 0, "a")
								c.come = 0
							}
							return since < ms(c.busy)
						}
					case "g1-0":
						began = time.Now().Add(-l.takes)
					}
				})
				if got := began.Sub(ended).Round(ms(10)); got != ms(c.want) {
					t.Errorf("the next round began after %s, want %s", got, ms(c.want))
				}
			})
		})
	}
}

// TestMembersOfAFailedRoundGoBackBetweenNewcomers: eight at a time while pods of no gang are bound. None comes between
// members that have nodes, which it might take, nor one of lower priority.
func TestMembersOfAFailedRoundGoBackBetweenNewcomers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy, nodes bool
		priority    int32
		want        string // how many go back, and the newcomers
	}{
		"eight at a time":         {busy: true, want: "1 8 a 8 b 8 c 2 d"},
		"none is bound":           {want: "27 a b c d"},
		"nodes are kept for them": {busy: true, nodes: true, want: "27 a b c d"},
		"of lower priority":       {busy: true, priority: -1, want: "1 26 a b c d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, logger := t.Context(), klog.FromContext(t.Context())
			l := newLoop(ctx, t, 1, 28)
			l.Quotas, l.Nominated = kube.NewQuotas(time.Now), func(types.UID) string { return "" }
			l.Busy = func() bool { return c.busy }
			back := map[string]bool{}
			var got []string
			count := func(before int) {
				if n := len(back) - before; n > 0 {
					got = append(got, fmt.Sprint(n))
				}
			}
			l.Fail(func(_ context.Context, _ framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
				_ *fwk.NominatingInfo, _ time.Time,
			) {
				if back[pod.Pod.Name] || status.IsSuccess() {
					t.Errorf("%s goes back twice, or without a reason: %s", pod.Pod.Name, status)
				}
				back[pod.Pod.Name] = true
			})
			next := l.Next(l.Interleave(l.queue.Pop))
			first, err := next(logger)
			if err != nil {
				t.Fatal(err)
			}
			l.come(ctx, c.priority, "a", "b", "c", "d")
			l.FailAll(ctx, first.Pod, c.nodes)
			count(0)
			for range 4 {
				before := len(back)
				pod, err := next(logger)
				if err != nil {
					t.Fatal(err)
				}
				count(before)
				got = append(got, pod.Pod.Name)
			}
			if got := strings.Join(got, " "); got != c.want || back[first.Pod.Name] {
				t.Errorf("there go back, and come between: %s, want %s", got, c.want)
			}
		})
	}
}
