package app

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
)

// repeatAfter is the shortest interval between reports of a pod that is rejected again for the same cause. It is
// reported again only if the message differs.
const repeatAfter = time.Minute

// Events of refusals, for the whole process.
const (
	eventsPerSecond = 10
	eventsBurst     = 100
)

// reporter reports why a pod was rejected: by root cause, once for each cause.
type reporter struct {
	client  clientset.Interface
	metrics *metricSet
	now     func() time.Time
	budget  flowcontrol.RateLimiter
	rerun   *filterRerun

	mu      sync.Mutex // guards pending
	pending map[types.UID]attempt
}

// attempt is the last refusal of a pod.
type attempt struct {
	code     why.Code
	message  string
	attempts int
	at       time.Time
	reported time.Time // when message, or one before it with the same code, was reported
	analysis analysis
	causes   causes
	refusals []refusal
	read     time.Time // when the nodes' refusals were last read one by one
}

// analysis is the result of all filters for an attempt in which first was the message of each node's first refusal. It
// is valid until first changes, for at most a minute.
type analysis struct {
	first   string
	root    why.Obstacle
	message string
	at      time.Time // zero: the other filters were not run
}

// clock is the reporter's time for the budget of its Events.
type clock struct{ now func() time.Time }

func (c clock) Now() time.Time { return c.now() }

func (c clock) Since(t time.Time) time.Duration { return c.now().Sub(t) }

// Sleep waits by the real clock. A budget that is only asked, never waited for, does not call it.
func (clock) Sleep(d time.Duration) { <-time.After(d) }

func newReporter(client clientset.Interface, m *metricSet, now func() time.Time) *reporter {
	return &reporter{
		client: client, metrics: m, now: now,
		budget:  flowcontrol.NewTokenBucketRateLimiterWithClock(eventsPerSecond, eventsBurst, clock{now}),
		rerun:   newFilterRerun(now),
		pending: map[types.UID]attempt{},
	}
}

// wrap lets upstream's handler do its work and replaces what it writes.
func (r *reporter) wrap(inner scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		causes := causesOf(f, status)
		if r.repeats(pod, causes) {
			inner(ctx, &reporting{Framework: f, ctx: ctx, reporter: r}, pod, status, nominating, start)
			return
		}
		findings, nodes := findingsOf(f, pod.Pod, status)
		if len(findings) == 0 {
			inner(ctx, f, pod, status, nominating, start)
			return
		}
		found := r.analyze(ctx, f, pod.Pod, status, findings, nodes)
		message, report := r.remember(pod, found, causes, refusalsOf(findings))
		wrapped := &reporting{Framework: f, ctx: ctx, reporter: r, message: message, report: report}
		inner(ctx, wrapped, pod, status, nominating, start)
	}
}

// analyze adds the refusals of the other filters to each node's first refusal, so that Event and condition name the
// root cause that explain finds. It reuses the analysis of the same refusals from less than a minute ago, and skips the
// other filters when they would take too much of the scheduler's time.
func (r *reporter) analyze(ctx context.Context, f framework.Framework, pod *corev1.Pod, status *fwk.Status,
	findings []why.Finding, nodes int,
) analysis {
	first := why.Message(findings, nodes)
	if !byFilters(status) {
		return analysis{first: first, root: why.Root(findings), message: first}
	}
	last, _ := r.last(pod.UID)
	if known := last.analysis; !known.at.IsZero() && known.first == first && r.now().Sub(known.at) < repeatAfter {
		return known
	}
	all, done := r.rerun.complete(ctx, f, pod, findings)
	if !done {
		return analysis{first: first, root: why.Root(findings), message: first}
	}
	return analysis{first: first, root: why.Root(all), message: why.Message(all, nodes), at: r.now()}
}

// remember records the refusal and decides whether it is reported.
func (r *reporter) remember(pod *framework.QueuedPodInfo, found analysis, causes causes, refusals []refusal) (_ string,
	report bool,
) {
	root, message := found.root, found.message
	r.count(root.Plugin, refusals)
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.pending[pod.Pod.UID]
	report = !known || last.code != root.Code || last.message != message && now.Sub(last.reported) >= repeatAfter
	next := attempt{
		code: root.Code, message: message, attempts: pod.Attempts, at: now, reported: last.reported, analysis: found,
		causes: causes, refusals: refusals, read: now,
	}
	if report {
		next.reported = now
	} else {
		next.message = last.message // the next message is compared with the one reported last
	}
	r.pending[pod.Pod.UID] = next
	return message, report
}

// last returns the last refusal of a pod that is still pending.
func (r *reporter) last(uid types.UID) (attempt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.pending[uid]
	return a, ok
}

func (r *reporter) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, uid)
}

// byCode counts the refused pods by root cause.
func (r *reporter) byCode() map[why.Code]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[why.Code]int{}
	for _, a := range r.pending {
		counts[a.code]++
	}
	return counts
}

// forgetDeleted forgets pods that are deleted before they are bound, or bound by another scheduler.
func (r *reporter) forgetDeleted(pods cache.SharedIndexInformer) {
	_, _ = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only on an informer that has ended
		UpdateFunc: func(old, obj any) {
			was, is := old.(*corev1.Pod), obj.(*corev1.Pod)
			if was.Spec.NodeName == "" && is.Spec.NodeName != "" {
				r.forget(is.UID)
			}
		},
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				r.forget(pod.UID)
			}
		},
	})
}

// fitOf returns what nodes and PreFilter plugins said, nil for an attempt that failed otherwise.
func fitOf(status *fwk.Status) *framework.FitError {
	var fit *framework.FitError
	if errors.As(status.AsError(), &fit) {
		return fit
	}
	return nil
}

// byFilters reports whether Filter plugins rejected the nodes, one by one.
func byFilters(status *fwk.Status) bool {
	fit := fitOf(status)
	return fit != nil && fit.Diagnosis.PreFilterMsg == ""
}

// Refusals returns why an attempt failed, with what every filter says of every node where it was filters that refused;
// none for an attempt that failed for another reason than a refusal. It must be called from the scheduling cycle, where
// the snapshot does not change.
func Refusals(ctx context.Context, f framework.Framework, pod *corev1.Pod, status *fwk.Status) ([]why.Finding, error) {
	first, _ := findingsOf(f, pod, status)
	if !byFilters(status) {
		return first, nil
	}
	v, err := verdict.Of(ctx, f, pod)
	if err != nil {
		return nil, err
	}
	return completed(v.Findings, first), nil
}

// findingsOf reads an attempt's refusals and the number of nodes that were asked; none for an attempt that failed for
// another reason than a refusal.
func findingsOf(f framework.Framework, pod *corev1.Pod, status *fwk.Status) ([]why.Finding, int) {
	fit := fitOf(status)
	if fit == nil {
		if !status.IsRejected() || status.Plugin() == "" {
			return nil, 0
		}
		return verdict.Findings(pod, nil, why.Reserve, status, ""), 0
	}
	statuses := fit.Diagnosis.NodeToStatus
	if fit.Diagnosis.PreFilterMsg != "" {
		return verdict.Findings(pod, nil, why.PreFilter, statuses.AbsentNodesStatus(), ""), fit.NumAllNodes
	}
	lister := f.SnapshotSharedLister().NodeInfos()
	nodes, err := lister.List()
	if err != nil {
		return nil, 0
	}
	findings := make([]why.Finding, 0, len(nodes))
	for _, n := range nodes {
		findings = append(findings, verdict.Findings(pod, n, why.Filter, statuses.Get(n.Node().Name), "")...)
	}
	return append(findings, preemptionFindings(pod, fit, lister)...), fit.NumAllNodes
}
