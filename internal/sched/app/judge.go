package app

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/explain"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
)

// restPerWork bounds what judging costs: it rests this many times as long as it worked, so at most a tenth of the
// scheduler's time goes there.
const restPerWork = 9

// judge asks every filter about a pod that was just refused. The scheduler itself stops at a node's first refusal, and
// the root cause may be behind it.
type judge struct {
	of  func(context.Context, framework.Framework, *corev1.Pod) (explain.Verdict, error)
	now func() time.Time

	mu    sync.Mutex // guards rests
	rests time.Time  // until when
}

func newJudge(now func() time.Time) *judge { return &judge{of: verdict.Of, now: now} }

// complete returns what all filters say on the snapshot of the attempt that ended with first; a node that none of them
// refuses keeps its finding of first, and so does preemption. It must be called from the scheduling cycle, where the snapshot stands still. done
// is false while it rests, and when the filters fail.
func (j *judge) complete(ctx context.Context, f framework.Framework, pod *corev1.Pod, first []why.Finding) (all []why.Finding, done bool) {
	start := j.now()
	if j.restsAt(start) {
		return nil, false
	}
	v, err := j.of(ctx, f, pod)
	end := j.now()
	j.rest(end.Add(restPerWork * end.Sub(start)))
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Refused pod could not be judged", "pod", klog.KObj(pod), "err", err)
		return nil, false
	}
	refused := make(map[string]bool, len(first))
	for _, finding := range v.Findings {
		refused[finding.Object] = true
	}
	all = v.Findings
	for _, finding := range first {
		if !refused[finding.Object] || finding.Phase == why.Preemption {
			all = append(all, finding)
		}
	}
	return all, true
}

func (j *judge) restsAt(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return now.Before(j.rests)
}

func (j *judge) rest(until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rests = until
}
