package sim

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/view"
)

// estimateDeadline bounds a forecast of a simulation, in which no time passes meanwhile.
const estimateDeadline = 10 * time.Minute

// Estimate is the first forecast of a pod or gang that waits with a known start that is not now.
type Estimate struct {
	// After counts seconds from the start until the forecast, Earliest and Latest until the start that it expects.
	// Latest is 0 where it is not known.
	After, Earliest, Latest float64
	Pods                    []string // namespace/name
}

// estimates are forecasts that are made each time that an interval has passed.
type estimates struct {
	*timeline
	every time.Duration
	next  time.Time
	asked *whatif.Engine
	known map[string]bool // units that have an estimate
}

// newEstimates returns what makes forecasts for a timeline.
func newEstimates(ctx context.Context, t *timeline, every time.Duration) *estimates {
	e := t.engine
	out := &estimates{timeline: t, every: every, next: t.at.Add(every), known: map[string]bool{}}
	cluster := app.Asked{Core: e.core, Store: e.store, Quotas: e.quotas, Gangs: e.gangs, Client: e.client}
	out.asked = whatif.New(cluster.Questions(ctx, out, t.passage))
	out.asked.Deadline = estimateDeadline
	return out
}

// passWithEstimates lets the time until to pass, with the forecasts that are due until then.
func (t *timeline) passWithEstimates(ctx context.Context, to time.Time) error {
	for t.expected != nil && !t.expected.next.After(to) {
		if err := t.pass(ctx, t.expected.next); err != nil {
			return err
		}
		t.expected.next = t.expected.next.Add(t.expected.every)
		if err := t.expected.estimate(ctx); err != nil {
			return err
		}
	}
	return t.pass(ctx, to)
}

// estimate makes a forecast, and notes units that have their first one.
func (e *estimates) estimate(ctx context.Context) error {
	answer, err := e.asked.Answer(ctx, &view.WhatIf{Ask: view.Ask{Mode: view.PlayForward}})
	if err != nil {
		return err
	}
	for _, u := range answer.Forecast.Queue {
		if u.Start == nil || u.Start.State != view.StartsAfter || e.known[u.Name] {
			continue
		}
		e.known[u.Name] = true
		found := Estimate{
			After: e.at.Sub(e.out.From).Seconds(), Earliest: u.Start.Earliest.Sub(e.out.From).Seconds(), Pods: u.Pods,
		}
		if u.Start.Latest != nil {
			found.Latest = u.Start.Latest.Sub(e.out.From).Seconds()
		}
		e.out.Estimates = append(e.out.Estimates, found)
	}
	return nil
}

// Pod returns a pod, nil for one that does not exist.
func (e *estimates) Pod(namespace, name string) *corev1.Pod {
	o, known, _ := e.engine.api.pods.GetStore().GetByKey(namespace + "/" + name)
	if !known {
		return nil
	}
	return o.(*corev1.Pod)
}

// Waiting returns the pods that have no node.
func (e *estimates) Waiting() (waiting []*corev1.Pod) {
	for _, o := range e.engine.api.pods.GetStore().List() {
		if p := o.(*corev1.Pod); p.Spec.NodeName == "" {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// Limits is for questions about pods that do not exist.
func (e *estimates) Limits(context.Context, string) (whatif.Limits, error) {
	return nil, errors.New("a forecast reads no limits")
}

// Jobs returns the Jobs of the input.
func (e *estimates) Jobs(context.Context) (map[string]*batchv1.Job, error) { return e.world.jobs, nil }

// Succeeded returns none: nothing is learned.
func (e *estimates) Succeeded(context.Context) ([]corev1.Pod, error) { return nil, nil }
