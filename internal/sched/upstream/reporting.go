package upstream

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tenon-project/tenon/internal/core/why"
)

// reporting lets upstream's failure handler write the root cause, and nothing that was reported before.
type reporting struct {
	framework.Framework
	ctx      context.Context // of the one call that the value lives for
	reporter *Reporter
	message  string
	report   bool
}

func (r *reporting) EventRecorder() events.EventRecorderLogger {
	return &recorder{EventRecorderLogger: r.Framework.EventRecorder(), reporting: r}
}

func (r *reporting) APICacher() fwk.APICacher {
	return &conditions{APICacher: r.Framework.APICacher(), reporting: r}
}

type recorder struct {
	events.EventRecorderLogger
	reporting *reporting
}

func (r *recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return &recorder{EventRecorderLogger: r.EventRecorderLogger.WithLogger(logger), reporting: r.reporting}
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, _ string, _ ...any) {
	t := r.reporting
	if !t.report {
		return
	}
	if !t.reporter.budget.TryAccept() {
		t.reporter.dropped.WithLabelValues(reason).Inc()
		return
	}
	r.EventRecorderLogger.Eventf(regarding, related, kind, reason, action, "%s", t.message)
}

type conditions struct {
	fwk.APICacher // nil unless API calls are asynchronous
	reporting     *reporting
}

// PatchPodStatus writes in one request what differs of the condition, if it is to be reported, and the nominated node.
func (c *conditions) PatchPodStatus(pod *corev1.Pod, condition *corev1.PodCondition,
	nominating *fwk.NominatingInfo,
) (<-chan error, error) {
	t := c.reporting
	if condition != nil {
		if t.report {
			condition = condition.DeepCopy()
			condition.Message = t.message
		} else {
			condition = nil
		}
	}
	if c.APICacher != nil {
		return c.APICacher.PatchPodStatus(pod, condition, nominating)
	}
	w := write{ctx: context.WithoutCancel(t.ctx), pod: pod, condition: condition}
	if nominating.Mode() == fwk.ModeOverride {
		w.node = &nominating.NominatedNodeName
	}
	t.reporter.writes.put(w, t.reporter.write)
	return nil, nil
}

// report writes an Event and a condition as upstream's failure handler does.
func (r *Reporter) report(ctx context.Context, f framework.Framework, pod *corev1.Pod, message string) {
	as := &reporting{Framework: f, ctx: ctx, reporter: r, message: message, report: true}
	as.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", message)
	_, err := as.APICacher().PatchPodStatus(pod, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation,
			corev1.PodScheduled),
	}, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Error updating pod", "pod", klog.KObj(pod))
	}
}

// write is what is to be said in the status of a pod; nil where that remains as it is.
type write struct {
	ctx       context.Context // of no cycle
	pod       *corev1.Pod
	condition *corev1.PodCondition
	node      *string // the nominated one
}

// status returns what the status is to be, nil where it is that.
func (w *write) status() *corev1.PodStatus {
	status := w.pod.Status.DeepCopy()
	changed := w.condition != nil && podutil.UpdatePodCondition(status, w.condition)
	if w.node != nil && status.NominatedNodeName != *w.node {
		status.NominatedNodeName, changed = *w.node, true
	}
	if !changed {
		return nil
	}
	return status
}

// writes are done beside their callers, one after the other. A round of a gang nominates nodes to each of its members;
// neither the scheduling cycles of others nor their conditions wait for so many requests.
type writes struct {
	mu    sync.Mutex
	of    map[types.UID]write // what was said last of pods
	due   []types.UID         // first those of due are written
	nodes []types.UID         // then those of which the nominated node alone is
	works bool
}

func (w *writes) put(is write, do func(write)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid := is.pod.UID
	was, known := w.of[uid]
	is.condition, is.node = cmp.Or(is.condition, was.condition), cmp.Or(is.node, was.node)
	if is.status() == nil {
		delete(w.of, uid)
		return
	}
	if w.of == nil {
		w.of = map[types.UID]write{}
	}
	w.of[uid] = is
	switch {
	case is.condition != nil && was.condition == nil:
		w.due = append(w.due, uid)
	case !known:
		w.nodes = append(w.nodes, uid)
	}
	if !w.works {
		w.works = true
		go w.work(do)
	}
}

func (w *writes) work(do func(write)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.due)+len(w.nodes) > 0 {
		from := &w.due
		if len(w.due) == 0 {
			from = &w.nodes
		}
		uid := (*from)[0]
		*from = (*from)[1:]
		is, wanted := w.of[uid]
		delete(w.of, uid)
		if wanted {
			w.mu.Unlock()
			do(is)
			w.mu.Lock()
		}
	}
	w.works = false
}

// write writes a status, after which pods may be bound before the next one.
func (r *Reporter) write(w write) {
	if r.Busy == nil {
		r.patch(w)
		return
	}
	began := r.clock.Now()
	if r.patch(w); r.Busy() {
		r.clock.Sleep(restPerWrite * r.clock.Now().Sub(began))
	}
}

// patch writes a status, not of a pod that is bound or gone: what kept it from that is old.
func (r *Reporter) patch(w write) {
	if _, pending := r.last(w.pod.UID); !pending {
		return
	}
	err := schedutil.PatchPodStatus(w.ctx, r.client, w.pod.Name, w.pod.Namespace, &w.pod.Status, w.status())
	if err != nil && !apierrors.IsNotFound(err) {
		utilruntime.HandleErrorWithContext(w.ctx, err, "Error updating pod", "pod", klog.KObj(w.pod))
	}
}

// unschedulable exports the pods that are refused, by root cause, as count sees them at each scrape.
type unschedulable struct {
	metrics.BaseStableCollector
	count func() map[why.Code]int
	desc  *metrics.Desc
}

// Unschedulable returns the metric of the refused pods.
func (r *Reporter) Unschedulable() metrics.StableCollector {
	return &unschedulable{count: r.byCode, desc: metrics.NewDesc("tenon_unschedulable_pods",
		"Pods whose last attempt was refused, by root cause.", []string{"code"}, nil, metrics.ALPHA, "")}
}

func (u *unschedulable) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- u.desc }

func (u *unschedulable) CollectWithStability(ch chan<- metrics.Metric) {
	for code, n := range u.count() {
		ch <- metrics.NewLazyConstMetric(u.desc, metrics.GaugeValue, float64(n), code.String())
	}
}
