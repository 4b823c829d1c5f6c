package coscheduling_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
)

// TestSiblingsInBackoffComeWithTheHead: an event wakes one member, and the others follow it at once; after each attempt
// all wait for the same time.
//
// F4: an unschedulable gang blocks the head of the queue; each of its members comes back by itself.
func TestSiblingsInBackoffComeWithTheHead(t *testing.T) {
	t.Parallel()
	metrics.Register()
	ctx, logger := t.Context(), klog.Background()
	p, gangs := newPlugin(t)
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	q := takeable(t, queue.NewTestQueue(ctx, p.Less, queue.WithClock(clock),
		queue.WithPodInitialBackoffDuration(time.Minute),
		queue.WithPodMaxBackoffDuration(time.Hour)))
	r := coscheduling.NewRounds(coscheduling.Cluster{
		Gangs: gangs, Core: loop.Of(&scheduler.Scheduler{SchedulingQueue: q}), Events: &hooks.Events{},
	})
	next := r.Next(podqueue.Pods(q.Pop))
	fail := r.Fail(func(_ context.Context, _ framework.Framework, pod *framework.QueuedPodInfo, _ *fwk.Status,
		_ *fwk.NominatingInfo, _ time.Time,
	) {
		if err := q.AddUnschedulablePodIfNotPresent(logger, pod, q.SchedulingCycle()); err != nil {
			t.Error(err)
		}
	})
	members := []*corev1.Pod{member("a", "g", "3"), member("b", "g", "3"), member("c", "g", "3")}
	for _, m := range members {
		gangs.PutPod(m)
		q.Add(ctx, m)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		for range members {
			pod, err := next(logger)
			if err != nil || pod == nil || pod.Attempts != attempt {
				t.Fatalf("attempt %d: taken %+v, %v", attempt, pod, err)
			}
			fail(ctx, nil, pod, fwk.AsStatus(errors.New("no")), nil, clock.Now())
		}
		if n := len(q.PodsInBackoffQ()); n != len(members) {
			t.Fatalf("%d members are in backoff, want all", n)
		}
		q.Activate(logger, map[string]*corev1.Pod{"ns/b": members[1]})
	}
}
