package refusals

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// Bounds of the explanations that are due, and of the tables with a status of each node that these keep: refusals for
// the same reasons share one. While there are as many, attempts explain themselves.
const (
	dueKept    = runsKept
	tablesKept = 32
)

// explanation is due for attempts on pods of one signature that failed for the same causes. Run has it alone once it
// has begun.
type explanation struct {
	key    runKey
	causes causes
	// framework and status are those of the first attempt, text is upstream's.
	framework framework.Framework
	status    *fwk.Status
	text      string
	// pods has one for each attempt, in their order. The attempts are counted in metrics when their codes are known.
	pods []*corev1.Pod
}

// backlog is the explanations that are due, the oldest first, and how many of them keep each table.
type backlog struct {
	explanations []*explanation
	tables       map[*framework.NodeToStatus]int
}

// add returns the explanation that is due for a refusal like e, or else e, which is due then; nil where too many are.
func (b *backlog) add(e *explanation) *explanation {
	for _, other := range b.explanations {
		if other.key == e.key && other.causes == e.causes {
			return other
		}
	}
	if len(b.explanations) >= dueKept || b.tables[e.table()] == 0 && len(b.tables) >= tablesKept {
		return nil
	}
	b.tables[e.table()]++
	b.explanations = append(b.explanations, e)
	return e
}

// next takes the explanation that is due for longest; nil where none is.
func (b *backlog) next() *explanation {
	if len(b.explanations) == 0 {
		return nil
	}
	e := b.explanations[0]
	b.explanations = slices.Delete(b.explanations, 0, 1)
	if b.tables[e.table()]--; b.tables[e.table()] == 0 {
		delete(b.tables, e.table())
	}
	return e
}

// table has the status of each node.
func (e *explanation) table() *framework.NodeToStatus { return fitOf(e.status).Diagnosis.NodeToStatus }

// ExplainBeside lets Run explain what it can instead of the attempts themselves. It must be called before the first
// attempt.
func (r *Reporter) ExplainBeside(live *Live) { r.beside, r.placed = live.Refusals, live.Placed }

// Run explains refusals beside the scheduling loop until ctx ends, and writes the Events and conditions of their pods.
func (r *Reporter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			for r.explainNext(ctx) {
			}
		}
	}
}

// postpone leaves the explanation of a refusal to Run, and reports whether it does. Nothing is written before. short is
// the status with upstream's text alone.
//
// The attempt explains itself if what was found for an equal refusal can be written at once, if nodes may refuse the
// pod for more than what they are by themselves, if too many explanations are due, and if one is due for this pod: a
// pod waits for its condition until its next attempt at most. It does so too where API calls are asynchronous, since
// these do not name the version of the pod.
func (r *Reporter) postpone(f framework.Framework, pod *framework.QueuedPodInfo, status, short *fwk.Status, c causes,
) bool {
	fit, now := ByFilters(status), r.clock.Now()
	s, summarizes := f.(summarizer)
	key := runKey{f.ProfileName(), string(pod.PodSignature)}
	if r.beside == nil || fit == nil || !summarizes || key.signature == "" || f.APICacher() != nil {
		return false
	}
	if _, ran := r.recall(key, c, now); ran || !s.Retain(fit) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.pending[pod.Pod.UID]
	if last.due != nil {
		return false
	}
	e := r.due.add(&explanation{key: key, causes: c, framework: f, status: status, text: short.Message()})
	if e == nil {
		return false
	}
	e.pods = append(e.pods, pod.Pod)
	last.attempts, last.at, last.due = pod.Attempts, now, e
	r.pending[pod.Pod.UID] = last
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

// explainNext makes the explanation that is due for longest, and reports whether there was one. After the end of ctx,
// which may cut an explanation off, it writes nothing.
func (r *Reporter) explainNext(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	e := r.due.next()
	r.mu.Unlock()
	if e == nil {
		return false
	}
	found := r.analyzeBeside(ctx, e)
	for _, pod := range e.pods {
		if ctx.Err() != nil {
			return false
		}
		now := r.waiting(e.framework, pod)
		if said, report := r.conclude(e, pod.UID, found, now != nil); report {
			r.publish(pod)
			r.write(ctx, e.framework, pod, now, found, said)
		}
	}
	return true
}

// waiting returns a pod of an attempt as it is now; nil for one that is gone, or that has a node.
func (r *Reporter) waiting(f framework.Framework, pod *corev1.Pod) *corev1.Pod {
	now, err := f.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || r.placed(pod) {
		return nil
	}
	return now
}

// conclude counts an attempt that an explanation is of, and reports whether it is to be written, and what was written
// before. It is not for a pod that does not wait any more, and not if a later attempt was explained.
func (r *Reporter) conclude(e *explanation, pod types.UID, found analysis, waits bool) (said string, report bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.pending[pod] // the zero value for a pod that is gone
	next := attempt{analysis: found, causes: e.causes, attempts: last.attempts, at: last.at}
	if waits && last.due == e {
		return last.said, r.remember(pod, next)
	}
	r.count(next)
	if last.due == e {
		last.due = nil
		r.pending[pod] = last
	}
	return "", false
}

// analyzeBeside is explain on the nodes as the scheduler has them now.
func (r *Reporter) analyzeBeside(ctx context.Context, e *explanation) analysis {
	start := r.clock.Now()
	if found, ran := r.recall(e.key, e.causes, start); ran {
		return found
	}
	first, v, err := r.beside(ctx, e.key.profile, e.status)
	found := r.analyzeRun(ctx, first, v, e.status, err)
	if found.message == "" {
		found.message = e.text // none of the nodes is there any more
	}
	r.ran(e.key, filterRun{e.causes, start, found})
	return found
}

// patch writes a condition of a pod. The patch is for the version of the pod that was read. A pod that is bound
// meanwhile keeps the condition that the Binding gave it, and one with a condition that another process has written
// meanwhile keeps that: the other process leads now.
func (r *Reporter) patch(ctx context.Context, pod *corev1.Pod, condition *corev1.PodCondition, said string) error {
	pods := r.client.CoreV1().Pods(pod.Namespace)
	_, read := podutil.GetPodCondition(&pod.Status, condition.Type)
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool {
		return ctx.Err() == nil && schedpod.Retriable(err)
	}, func() error {
		_, has := podutil.GetPodCondition(&pod.Status, condition.Type)
		foreign := has != nil && has.Message != said && !equality.Semantic.DeepEqual(has, read)
		if foreign || pod.Spec.NodeName != "" || !podutil.UpdatePodCondition(pod.Status.DeepCopy(), condition) {
			return nil
		}
		change, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
			"status":   map[string]any{"conditions": []*corev1.PodCondition{condition}},
		})
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, change, metav1.PatchOptions{}, "status")
		if !apierrors.IsConflict(err) {
			return err
		}
		now, gone := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if gone != nil || now.UID != pod.UID {
			return gone
		}
		pod = now
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
