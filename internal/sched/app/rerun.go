package app

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
	"github.com/tenon-project/tenon/internal/view"
)

// restPerWork bounds the cost of filterRerun: it rests this many times as long as it worked, so it takes at most a
// tenth of the scheduler's time.
const restPerWork = 9

// filterRerun runs every filter for a pod that was just rejected. The scheduler itself stops at a node's first refusal,
// which may hide the root cause.
type filterRerun struct {
	of  func(context.Context, framework.Framework, *corev1.Pod) (view.Verdict, error)
	now func() time.Time

	mu    sync.Mutex // guards rests
	rests time.Time  // until when
}

func newFilterRerun(now func() time.Time) *filterRerun { return &filterRerun{of: verdict.Of, now: now} }

// complete returns the findings of all filters on the snapshot of the attempt that ended with first; a node that none
// of them rejects keeps its finding of first, and so does preemption. It must be called from the scheduling cycle,
// where the snapshot does not change. done is false while it rests, and when the filters fail.
func (r *filterRerun) complete(ctx context.Context, f framework.Framework, pod *corev1.Pod,
	first []why.Finding,
) (all []why.Finding, done bool) {
	start := r.now()
	if r.restsAt(start) {
		return nil, false
	}
	v, err := r.of(ctx, f, pod)
	end := r.now()
	r.rest(end.Add(restPerWork * end.Sub(start)))
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Filters failed for rejected pod", "pod", klog.KObj(pod), "err", err)
		return nil, false
	}
	return completed(v.Findings, first), true
}

// completed adds to the findings of all filters those of first about nodes that none of them rejects, and about
// preemption.
func completed(all, first []why.Finding) []why.Finding {
	refused := make(map[string]bool, len(all))
	for _, f := range all {
		refused[f.Object] = true
	}
	for _, f := range first {
		if !refused[f.Object] || f.Phase == why.Preemption {
			all = append(all, f)
		}
	}
	return all
}

func (r *filterRerun) restsAt(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.rests)
}

func (r *filterRerun) rest(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rests = until
}
