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

// A pod that stays refused for one cause is told of again at most this often, and only with new numbers.
const repeatAfter = time.Minute

// Events of refusals, for the whole process.
const (
	eventsPerSecond = 10
	eventsBurst     = 100
)

// reporter tells why a pod was refused: by root cause, once for each cause.
type reporter struct {
	client  clientset.Interface
	metrics *metricSet
	now     func() time.Time
	budget  flowcontrol.RateLimiter
	judge   *judge

	mu      sync.Mutex // guards pending
	pending map[types.UID]attempt
}

// attempt is the last refusal of a pod.
type attempt struct {
	code     why.Code
	message  string
	attempts int
	at       time.Time
	told     time.Time // when message, or one before it with the same code, was reported
	heard    hearing
	causes   causes
	refusals []refusal
	read     time.Time // when the nodes' refusals were last read one by one
}

// hearing is what all filters said when first was what each node had refused first. It holds until first changes, or a
// minute is over.
type hearing struct {
	first   string
	root    why.Obstacle
	message string
	at      time.Time // zero: not heard
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
		judge:   newJudge(now),
		pending: map[types.UID]attempt{},
	}
}

// wrap lets upstream's handler do its work and replaces what it writes.
func (r *reporter) wrap(inner scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		causes := causesOf(f, status)
		if r.repeats(pod, causes) {
			inner(ctx, &telling{Framework: f, ctx: ctx, reporter: r}, pod, status, nominating, start)
			return
		}
		findings, nodes := findingsOf(f, pod.Pod, status)
		if len(findings) == 0 {
			inner(ctx, f, pod, status, nominating, start)
			return
		}
		heard := r.hear(ctx, f, pod.Pod, status, findings, nodes)
		message, tell := r.remember(pod, heard, causes, refusalsOf(findings))
		inner(ctx, &telling{Framework: f, ctx: ctx, reporter: r, message: message, tell: tell}, pod, status, nominating, start)
	}
}

// hear completes what each node refused first by what the other filters say, so that Event and condition name the root
// cause that explain finds. Where that was done for the same refusals not long ago, or would take too much of the
// scheduler's time, it is not done again.
func (r *reporter) hear(ctx context.Context, f framework.Framework, pod *corev1.Pod, status *fwk.Status, findings []why.Finding, nodes int) hearing {
	first := why.Message(findings, nodes)
	if !byFilters(status) {
		return hearing{first: first, root: why.Root(findings), message: first}
	}
	last, known := r.last(pod.UID)
	if known && !last.heard.at.IsZero() && last.heard.first == first && r.now().Sub(last.heard.at) < repeatAfter {
		return last.heard
	}
	all, done := r.judge.complete(ctx, f, pod, findings)
	if !done {
		return hearing{first: first, root: why.Root(findings), message: first}
	}
	return hearing{first: first, root: why.Root(all), message: why.Message(all, nodes), at: r.now()}
}

// remember keeps the refusal and decides whether it is told.
func (r *reporter) remember(pod *framework.QueuedPodInfo, heard hearing, causes causes, refusals []refusal) (_ string, tell bool) {
	root, message := heard.root, heard.message
	r.count(root.Plugin, refusals)
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.pending[pod.Pod.UID]
	tell = !known || last.code != root.Code || last.message != message && now.Sub(last.told) >= repeatAfter
	next := attempt{
		code: root.Code, message: message, attempts: pod.Attempts, at: now, told: last.told, heard: heard,
		causes: causes, refusals: refusals, read: now,
	}
	if tell {
		next.told = now
	} else {
		next.message = last.message // what was told is what the next one is compared with
	}
	r.pending[pod.Pod.UID] = next
	return message, tell
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

// forgetDeleted forgets pods that go without ever being bound, or that somebody else binds.
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

// byFilters tells whether it was nodes that refused, one by one.
func byFilters(status *fwk.Status) bool {
	fit := fitOf(status)
	return fit != nil && fit.Diagnosis.PreFilterMsg == ""
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
