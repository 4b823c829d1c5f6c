package coscheduling_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestPodsPrecedeGangsBehindAFailedRound: gangs g0, g1, … of two members come first in the queue, and rounds take 100
// ms.
// After a round that failed, pods of no gang are tried for 300 ms before the next gang, unless their priority is lower.
func TestPodsPrecedeGangsBehindAFailedRound(t *testing.T) {
	metrics.Register()
	for name, c := range map[string]struct {
		gangs      int
		fails      bool
		evicts     bool
		takes      time.Duration // a pod of no gang
		priorities []int32       // of pods of no gang
		want       string
	}{
		"no other pods":      {2, true, false, 0, nil, "g0 g0 g1 g1"},
		"a failed round":     {2, true, false, 100 * time.Millisecond, make([]int32, 5), "g0 g0 a b c g1 g1 d e"},
		"one that fits":      {2, false, false, 100 * time.Millisecond, make([]int32, 2), "g0 g0 g1 g1 a b"},
		"one that evicts":    {2, true, true, 100 * time.Millisecond, make([]int32, 2), "g0 g0 g1 g1 a b"},
		"of lower priority":  {2, true, false, 100 * time.Millisecond, []int32{-1, -1}, "g0 g0 g1 g1 a b"},
		"of other priority":  {2, true, false, 100 * time.Millisecond, []int32{-1, 0}, "g0 g0 b g1 g1 a"},
		"of higher priority": {2, true, false, 100 * time.Millisecond, []int32{1, 0}, "a g0 g0 b g1 g1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer func() {
					cancel()
					<-time.After(time.Minute) // the queue's metrics end
				}()
				p, gangs := newPlugin(t)
				q := takeable(t, queue.NewTestQueue(ctx, p.Less, queue.WithPodInitialBackoffDuration(time.Hour),
					queue.WithPodMaxBackoffDuration(time.Hour)))
				r := coscheduling.NewRounds(coscheduling.Cluster{
					Gangs: gangs, Core: loop.Of(&scheduler.Scheduler{SchedulingQueue: q}), Events: &hooks.Events{},
				})
				for i := range 2 * c.gangs {
					m := member(fmt.Sprint("g", i/2, "-", i%2), fmt.Sprint("g", i/2), "2")
					gangs.PutPod(m)
					q.Add(ctx, m)
				}
				for i, priority := range c.priorities {
					name := string(rune('a' + i))
					pod := object.Pod("ns/"+name, object.Priority(priority),
						object.Created(time.Now().Add(time.Duration(i)*time.Second)))
					q.Add(ctx, pod)
				}
				next := r.Next(r.Share(podqueue.Pods(q.Pop)))
				fail := r.Fail(func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status,
					*fwk.NominatingInfo, time.Time,
				) {
				})
				var order []string
				for range 2*c.gangs + len(c.priorities) {
					pod, err := next(klog.FromContext(ctx))
					if err != nil || pod == nil {
						t.Fatalf("after %v: %v, %v", order, pod, err)
					}
					gang, _, _ := strings.Cut(pod.Pod.Name, "-")
					order = append(order, gang)
					takes := c.takes
					if gangs.GangOf(pod.Pod) != "" {
						takes = 50 * time.Millisecond
						if c.fails {
							r.FailPlan(c.evicts)
						}
					}
					<-time.After(takes)
					fail(ctx, nil, pod, fwk.NewStatus(fwk.Unschedulable, "no"), nil, time.Now())
				}
				if got := strings.Join(order, " "); got != c.want {
					t.Errorf("tried %s, want %s", got, c.want)
				}
			})
		})
	}
}

// takeable returns a queue of upstream as Tenon uses it.
func takeable(t *testing.T, q queue.SchedulingQueue) podqueue.Queue {
	t.Helper()
	out, err := podqueue.New(q)
	testkit.Check(t, err)
	return out
}
