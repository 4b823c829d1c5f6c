package claims

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// Wake changes the hints of a queue that kube-scheduler has just made: the deletion of a claim that was made for the
// extended resources of a pod wakes the pod. A scheduler that ends after it creates such a claim, and before it writes
// the devices, leaves it behind, and the next scheduler deletes it. The plugin's own hint ignores the deletion of a
// claim without devices. Then the pod would wait until the queue is flushed.
func Wake(q queue.SchedulingQueue) error {
	profiles, err := inside.Field[queue.QueueingHintMapPerProfile](q, "queueingHintMap")
	if err != nil {
		return err
	}
	for _, events := range *profiles {
		for event, hints := range events {
			for _, h := range hints {
				if h.PluginName == names.DynamicResources && event.Resource == fwk.ResourceClaim {
					h.QueueingHintFn, h.PreQueueingHintFn = wakes(h.QueueingHintFn), finds(h.PreQueueingHintFn)
				}
			}
		}
	}
	return nil
}

// wakes returns a hint that also queues the pod for which a deleted claim was made.
func wakes(inner fwk.QueueingHintFn) fwk.QueueingHintFn {
	return func(logger klog.Logger, pod *corev1.Pod, was, now any) (fwk.QueueingHint, error) {
		if owner := madeFor(was, now); owner != nil && owner.UID == pod.UID {
			return fwk.Queue, nil
		}
		return inner(logger, pod, was, now)
	}
}

// finds returns what also names the pod for which a deleted claim was made; nil if inner is nil.
func finds(inner fwk.PreQueueingHintFn) fwk.PreQueueingHintFn {
	if inner == nil {
		return nil
	}
	return func(logger klog.Logger, was, now any) (fwk.PreQueueingHintResult, error) {
		result, err := inner(logger, was, now)
		if owner := madeFor(was, now); owner != nil {
			name := types.NamespacedName{Namespace: was.(*resourcev1.ResourceClaim).Namespace, Name: owner.Name}
			result.Pods = append(result.Pods, name)
		}
		return result, err
	}
}

// madeFor returns the pod for whose extended resources a deleted claim was made; nil for any other change.
func madeFor(was, now any) *metav1.OwnerReference {
	claim, ok := was.(*resourcev1.ResourceClaim)
	if !ok || now != nil || !convert.IsMade(claim) {
		return nil
	}
	return metav1.GetControllerOf(claim)
}
