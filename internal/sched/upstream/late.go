package upstream

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
	"github.com/tenon-project/tenon/internal/view"
)

// mostLate bounds what is kept of late attempts, in refusals: one of each node on which preemption was tried.
const mostLate = 1 << 18

// late is an attempt that was refused while the filters rested. The next one may be minutes away.
type late struct {
	framework  framework.Framework
	pod        *corev1.Pod
	at         time.Time // of the attempt
	nodes      int
	preemption []why.Finding // what the attempt knew of it
}

// postpone lets all filters run for a pod as soon as they have rested. Where too many wait for that, its report is left
// as it is until the next attempt.
func (r *Reporter) postpone(ctx context.Context, f framework.Framework, pod *corev1.Pod, findings []why.Finding,
	nodes int,
) {
	l := late{framework: f, pod: pod, nodes: nodes}
	for _, f := range findings {
		if f.Phase == why.Preemption {
			l.preemption = append(l.preemption, f)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Evaluate == nil || (len(r.late)+1)*nodes > mostLate {
		return
	}
	l.at = r.pending[pod.UID].at
	if r.late = append(r.late, l); !r.completes {
		r.completes = true
		go r.complete(context.WithoutCancel(ctx))
	}
}

// complete runs all filters for late attempts, beside the scheduling cycle, and reports the root causes that they find.
func (r *Reporter) complete(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.late) > 0 {
		if rest := r.rests.Sub(r.clock.Now()); rest > 0 {
			r.mu.Unlock()
			r.clock.Sleep(rest)
			r.mu.Lock()
			continue
		}
		l := r.late[0]
		r.late = r.late[1:]
		if !r.awaited(l) {
			continue
		}
		r.mu.Unlock()
		v, err := r.run(func() (view.Verdict, error) { return r.Evaluate(ctx, l.pod) })
		r.mu.Lock()
		switch {
		case err != nil:
			klog.FromContext(ctx).V(2).Info("Filters failed for rejected pod", "pod", klog.KObj(l.pod), "err", err)
		case v.Feasible == 0 && len(v.Findings) > 0 && v.Findings[0].Object != "" && r.awaited(l):
			if is, another := r.correct(l, verdict.Completed(v.Findings, l.preemption)); another {
				r.mu.Unlock()
				r.report(ctx, l.framework, l.pod, is)
				r.mu.Lock()
			}
		}
	}
	r.completes = false
}

// awaited reports whether the attempt is still the last one of its pod. r.mu is held.
func (r *Reporter) awaited(l late) bool {
	last, pending := r.pending[l.pod.UID]
	return pending && !last.whole && last.at.Equal(l.at)
}

// correct remembers what all filters say of an attempt. It returns the message, and whether its root cause is another
// one than was reported. r.mu is held.
func (r *Reporter) correct(l late, all []why.Finding) (message string, another bool) {
	is := r.pending[l.pod.UID]
	was := is.root.Code
	is.root, is.message, is.whole = why.Root(all), why.Message(all, l.nodes), true
	if another = is.root.Code != was; another {
		is.said, is.reported = is.message, r.clock.Now()
	}
	r.pending[l.pod.UID] = is
	return is.message, another
}
