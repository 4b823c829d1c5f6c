package refusals

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// reporting lets upstream's failure handler write the root cause, and nothing that was reported before.
type reporting struct {
	framework.Framework
	ctx      context.Context // of the one call that the value lives for
	reporter *Reporter
	// message replaces upstream's text in the Event and the condition.
	message string
	// reason replaces upstream's Unschedulable in the condition.
	reason string
	// report is false for a refusal that was reported before: then neither is written.
	report bool
}

// EventRecorder returns a recorder that writes the message.
func (r *reporting) EventRecorder() events.EventRecorderLogger {
	return &recorder{EventRecorderLogger: r.Framework.EventRecorder(), reporting: r}
}

// APICacher returns a cacher that writes the message as condition.
func (r *reporting) APICacher() fwk.APICacher {
	return &conditions{APICacher: r.Framework.APICacher(), reporting: r}
}

// recorder sends the Event of a refusal with the message of the report, within the budget of Events.
type recorder struct {
	events.EventRecorderLogger
	reporting *reporting
}

// WithLogger returns a recorder with the same report.
func (r *recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return &recorder{EventRecorderLogger: r.EventRecorderLogger.WithLogger(logger), reporting: r.reporting}
}

// Eventf ignores upstream's note.
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

// conditions writes the condition of a refused pod with the message of the report.
type conditions struct {
	fwk.APICacher // nil unless API calls are asynchronous
	reporting     *reporting
}

// PatchPodStatus writes in one request what differs of the conditions and the nominated node. PodScheduled is written
// if it is to be reported, with the text of the report.
func (c *conditions) PatchPodStatus(pod *corev1.Pod, all []*corev1.PodCondition, nominating *fwk.NominatingInfo,
) (<-chan error, error) {
	t := c.reporting
	var written []*corev1.PodCondition
	for _, condition := range all {
		if condition.Type == corev1.PodScheduled {
			if !t.report {
				continue
			}
			condition = condition.DeepCopy()
			if condition.Message = t.message; condition.Reason == corev1.PodReasonUnschedulable {
				condition.Reason = t.reason
			}
		}
		written = append(written, condition)
	}
	if c.APICacher != nil {
		return c.APICacher.PatchPodStatus(pod, written, nominating)
	}
	status := pod.Status.DeepCopy()
	changed := false
	for _, condition := range written {
		changed = podutil.UpdatePodCondition(status, condition) || changed
	}
	if nominating.Mode() == fwk.ModeOverride && status.NominatedNodeName != nominating.NominatedNodeName {
		status.NominatedNodeName, changed = nominating.NominatedNodeName, true
	}
	if !changed {
		return nil, nil
	}
	err := schedpod.PatchStatus(t.ctx, t.reporter.client, pod, status)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return nil, err
}

// reasonOf returns the reason of the condition of a pod that is refused for a cause.
func (r *Reporter) reasonOf(root why.Obstacle) string {
	if r.PlainReasons {
		return why.Unschedulable
	}
	return root.Code.Condition()
}

// write writes the Event and the condition of an attempt on a pod. now is the pod as it is now, said what this process
// wrote of it before.
func (r *Reporter) write(ctx context.Context, f framework.Framework, pod, now *corev1.Pod, found analysis,
	said string,
) {
	t := &reporting{Framework: f, ctx: ctx, reporter: r, message: found.message, report: true}
	t.EventRecorder().WithLogger(klog.FromContext(ctx)).Eventf(now, nil, corev1.EventTypeWarning, "FailedScheduling",
		"Scheduling", "")
	seen := podutil.CalculatePodConditionObservedGeneration(&now.Status, pod.Generation, corev1.PodScheduled)
	err := r.patch(ctx, now, &corev1.PodCondition{
		Type: corev1.PodScheduled, ObservedGeneration: seen, Status: corev1.ConditionFalse,
		Reason: r.reasonOf(found.root), Message: found.message,
	}, said)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to write why a pod is refused", "pod", klog.KObj(pod))
	}
}

// unschedulable exports the pods that are refused, by root cause, as count sees them at each scrape.
type unschedulable struct {
	metrics.BaseStableCollector
	// count returns the number of refused pods by code.
	count func() map[why.Code]int
	desc  *metrics.Desc
}

// Unschedulable returns the metric of the refused pods.
func (r *Reporter) Unschedulable() metrics.StableCollector {
	return &unschedulable{count: r.byCode, desc: metrics.NewDesc("tenon_unschedulable_pods",
		"Pods whose last attempt was refused, by root cause.", []string{"code"}, nil, metrics.ALPHA, "")}
}

// DescribeWithStability describes the one metric.
func (u *unschedulable) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- u.desc }

// CollectWithStability counts the pods at this scrape.
func (u *unschedulable) CollectWithStability(ch chan<- metrics.Metric) {
	for code, n := range u.count() {
		ch <- metrics.NewLazyConstMetric(u.desc, metrics.GaugeValue, float64(n), code.String())
	}
}
