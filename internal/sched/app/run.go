package app

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	upstream "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	groupv1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/expected"
	"github.com/tenon-project/tenon/internal/sched/quotarecord"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/view"
)

// longestLook separates two looks at whether all accounts are known.
const longestLook = 100 * time.Millisecond

// complete is a factory whose caches count as synced when all accounts are known. Upstream starts to schedule after it
// has found once that nothing is missing; the first time that it looks, nothing is.
type complete struct {
	dynamicinformer.DynamicSharedInformerFactory
	known <-chan struct{}
}

// WaitForCacheSync waits until all accounts are known.
func (c complete) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	synced := c.DynamicSharedInformerFactory.WaitForCacheSync(stop)
	select {
	case <-c.known:
	case <-stop:
	}
	return synced
}

// Run schedules until ctx ends, which is not an error. With leader election the process exits when the lock is lost. As
// a method it would be in programs that only simulate, with the diagnostics' server, since the linker would keep it.
func Run(ctx context.Context, s *Scheduler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.serve(ctx, cancel); err != nil {
		return err
	}
	if s.journal != nil {
		written := make(chan struct{})
		go func() {
			defer close(written)
			s.journal.Run(ctx)
		}()
		defer func() {
			cancel(nil)
			<-written
		}()
	}
	// All of these end with ctx. Those that write do so only while this process leads.
	go s.markSynced(ctx)
	go s.reporter.Run(ctx)
	go s.core.Tracker.Audit(ctx, s.pods(), s.reserved, s.quotas)
	go s.core.Tracker.Run(ctx, s.failed)
	go s.quotas.Run(ctx)
	events := s.recorder(s.reserved.Profile)
	s.reserved.Inform = func(r *v1alpha1.Reservation, reason event.Reason, message string) {
		about := &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "Reservation", Name: r.Name, UID: r.UID,
		}
		events.Eventf(about, nil, reason.Type(), reason.String(), "Auditing", "%s", message)
	}
	go (&reserving.Writer{
		Reservations: s.reserved, Nodes: s.config.InformerFactory.Core().V1().Nodes(),
		Leading: s.core.Tracker.Leading.Load,
		Synced:  s.store.Synced(),
	}).Run(ctx)
	go quotarecord.New(quotarecord.Options{
		Pods: s.pods(), Record: s.quotas.Record, Client: s.config.Client, Leading: s.core.Tracker.Leading.Load,
		Synced: s.store.Synced(),
	}).Run(ctx)
	go expected.New(expected.Options{
		Interval: s.options.ForecastInterval, Cluster: expectations{s}, Client: s.client, Synced: s.store.Synced(),
		Errors: s.expectedErrors,
	}).Run(ctx)
	go func() {
		if err := s.explanations(ctx).Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "ScheduleExplanations are not answered")
		}
	}()
	var order func(kube.OwnChange, func(time.Time) bool)
	if s.journal != nil {
		order = s.journal.Gangs
	}
	go (&coscheduling.Held{
		Gangs: s.gangs, Client: s.config.Client, Recorder: s.recorder, Leading: s.core.Tracker.Leading.Load,
		Clock: clock.RealClock{}, LookForDeadlocks: s.core.Rounds.LookForDeadlocks, Withdraw: s.core.Rounds.Withdraw,
		Order: order, PlainReasons: s.reporter.PlainReasons,
	}).Run(ctx)
	// The handler chain of upstream's server cannot be extended, so its server stays off and ours serves the same.
	s.config.SecureServing = nil
	s.config.DynInformerFactory = complete{s.config.DynInformerFactory, s.store.Synced()}
	err := upstream.Run(ctx, s.config, s.core.Scheduler)
	if cause := context.Cause(ctx); ctx.Err() != nil {
		if errors.Is(cause, context.Canceled) {
			return nil
		}
		return cause
	}
	return err
}

// expectations is what expected starts are read from.
type expectations struct{ *Scheduler }

func (s expectations) Leads() bool { return s.core.Tracker.Leading.Load() }

func (s expectations) Waits() bool { return len(objects{s.Scheduler}.Waiting()) > 0 }

func (s expectations) Forecast(ctx context.Context) (*view.Forecast, error) {
	answer, err := s.whatIf.Answer(ctx, &view.WhatIf{Ask: view.Ask{Mode: view.PlayForward}})
	if err != nil {
		return nil, err
	}
	return answer.Forecast, nil
}

func (s expectations) Groups() []*groupv1alpha1.PodGroup { return s.gangs.Objects() }

func (s expectations) Pod(namespace, name string) *corev1.Pod { return s.pod(namespace, name) }

func (s expectations) Warn(pod *corev1.Pod, message string) {
	e := event.RunTimeExceeded
	s.recorder(pod.Spec.SchedulerName).Eventf(pod, nil, e.Type(), e.String(), "Scheduling", "%s", message)
}

// recorder returns the recorder for a profile's name.
func (s *Scheduler) recorder(name string) events.EventRecorderLogger {
	return &recorder{s.config.EventBroadcaster.NewRecorder(name), s.reserved}
}

// markSynced opens the queue when every handler has had every object that existed at start: from then on the accounts
// equal those of any former leader. A waiting replica gets here too and stays warm.
func (s *Scheduler) markSynced(ctx context.Context) {
	start := time.Now()
	now, cancel := context.WithCancel(ctx)
	cancel() // so that the core looks once and does not wait, which it does in steps of 100 ms
	for s.core.WaitForHandlersSync(now) != nil {
		select {
		case <-time.After(min(max(time.Since(start)/50, time.Millisecond), longestLook)):
		case <-ctx.Done():
			return
		}
	}
	s.store.MarkSynced()
	s.rebuild.Observe(time.Since(start).Seconds())
	klog.FromContext(ctx).Info("All accounts are known", "nodes", len(s.store.Nodes()), "took",
		time.Since(start).String())
}
