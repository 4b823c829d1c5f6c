package quotarevoke

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
)

// ConditionType is the condition of pods that are to be evicted because their quota uses more than its share.
const ConditionType corev1.PodConditionType = "tenon.sh/QuotaRevocation"

// adopt learns which pods an earlier leader has marked, so that marks end with their plan.
func (c *Controller) adopt() error {
	pods, err := c.Pods.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == ConditionType {
				c.marked[pod.UID] = &mark{pod: pod}
			}
		}
	}
	return nil
}

// mark makes the victims of the plans, and no other pods, have the condition.
func (c *Controller) mark(ctx context.Context, now time.Time, plans []plan) {
	wanted, marks := map[types.UID]bool{}, 0
	for _, p := range plans {
		for _, unit := range p.units {
			for _, pod := range unit {
				wanted[pod.UID] = true
				if c.DryRun {
					continue
				}
				m := c.marked[pod.UID]
				if (m == nil || !m.due.Equal(p.due)) && marks < marksPerPass {
					marks++
					c.announce(ctx, now, pod, p)
				} else if m != nil && !m.warned && p.due.Sub(now) <= imminent {
					m.warned = true
					c.event(pod, nil, event.QuotaRevocationPlanned, "Imminent", "%s; evicted in %v", p.text,
						p.left(now))
				}
			}
		}
	}
	for uid, m := range c.marked {
		if wanted[uid] && !c.DryRun {
			continue
		}
		pod, err := c.Pods.Pods(m.pod.Namespace).Get(m.pod.Name)
		if err != nil || pod.UID != uid || pod.DeletionTimestamp != nil {
			delete(c.marked, uid)
		} else if c.setCondition(ctx, pod, map[string]any{"$patch": "delete", "type": ConditionType}) {
			delete(c.marked, uid)
			c.event(pod, nil, event.QuotaRevocationCancelled, "Cancel", "the pod stays: what it uses is not needed")
		}
	}
}

// announce marks a pod, and reports when it goes.
func (c *Controller) announce(ctx context.Context, now time.Time, pod *corev1.Pod, p plan) {
	if !c.setCondition(ctx, pod, map[string]any{
		"type": ConditionType, "status": corev1.ConditionTrue, "reason": "QuotaOveruse",
		"message": "not evicted before " + p.due.UTC().Format(time.RFC3339) + ": " + p.text,
	}) {
		return
	}
	known := c.marked[pod.UID] != nil
	c.marked[pod.UID] = &mark{pod: pod, due: p.due, warned: p.due.Sub(now) <= imminent}
	if !known {
		c.event(pod, nil, event.QuotaRevocationPlanned, "Plan", "%s; evicted in %v unless the need ends", p.text,
			p.left(now))
	}
}

// left is the time until the first eviction.
func (p plan) left(now time.Time) time.Duration { return max(p.due.Sub(now), 0).Round(time.Second) }

// setCondition changes one condition of a pod, and reports whether the pod has the change.
func (c *Controller) setCondition(ctx context.Context, pod *corev1.Pod, condition map[string]any) bool {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // of no namesake
		"status":   map[string]any{"conditions": []any{condition}},
	})
	if err == nil {
		_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Pod not marked", "pod", klog.KObj(pod))
	}
	return err == nil
}
