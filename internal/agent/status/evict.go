package status

import (
	"context"
	gojson "encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
)

// Outcomes of evictions, as values of a metric's label.
const (
	outcomeEvicted = "evicted"
	outcomeFailed  = "failed"
)

// Evict deletes a best-effort pod of the node, with its grace period, and says why in its condition DisruptionTarget,
// by which Jobs may leave the failure out of their backoff limit, and in an Event. A pod that is gone counts as
// evicted.
//
// It is not the Eviction API: an Eviction does not say on which node the pod is, so no admission policy could keep an
// agent from evicting the pods of other nodes.
func (r *Reporter) Evict(ctx context.Context, v besteffort.Eviction) error {
	pods := r.o.Client.CoreV1().Pods(v.Pod.Namespace)
	patch, err := gojson.Marshal(map[string]any{
		"metadata": map[string]any{"uid": v.Pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: event.BestEffortEvicted.String(),
			Message: shorten("%s", v.Why), LastTransitionTime: metav1.NewTime(r.o.Clock.Now()),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition of pod %s: %w", klog.KObj(v.Pod), err)
	}
	_, err = pods.Patch(ctx, v.Pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		err = pods.Delete(ctx, v.Pod.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &v.Pod.UID},
		})
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // another pod has its name, or none
	case err != nil:
		return fmt.Errorf("evict pod %s: %w", klog.KObj(v.Pod), err)
	}
	r.o.Metrics.Evictions.WithLabelValues(string(v.Cause), outcomeEvicted).Inc()
	klog.FromContext(ctx).Info("Evicted a best-effort pod", "pod", klog.KObj(v.Pod), "node", r.o.Node, "why", v.Why)
	r.send(podObject(v.Pod.Namespace, v.Pod.Name, v.Pod.UID), event.BestEffortEvicted, "Evict", "evicted: %s", v.Why)
	return nil
}

// NotEvicted reports that Evict failed.
func (r *Reporter) NotEvicted(ctx context.Context, v besteffort.Eviction, err error) {
	r.o.Metrics.Evictions.WithLabelValues(string(v.Cause), outcomeFailed).Inc()
	klog.FromContext(ctx).Error(err, "Cannot evict a best-effort pod, will retry", "pod", klog.KObj(v.Pod),
		"node", r.o.Node)
}
