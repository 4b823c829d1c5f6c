package podqueue

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Next waits for a pod and returns it; nil where the queue is closed.
type Next = func(klog.Logger) (*framework.QueuedPodInfo, error)

// Pods returns the pods of next. Upstream's queue also has groups of pods if the feature gate GenericWorkload is on.
// Tenon has gangs of its own, and does not start with that gate: a group is an error.
func Pods(next func(klog.Logger) (framework.QueuedEntityInfo, error)) Next {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		entity, err := next(logger)
		if entity == nil || err != nil {
			return nil, err
		}
		pod, ok := entity.(*framework.QueuedPodInfo)
		if !ok {
			return nil, fmt.Errorf("the scheduling queue has a %T, want pods alone: the feature gate GenericWorkload "+
				"must be off", entity)
		}
		return pod, nil
	}
}

// PodOf returns the pod of an entry of the queue. It panics for a group, which only the feature gate makes.
func PodOf(entry fwk.QueuedEntityInfo) *corev1.Pod { return entry.(*framework.QueuedPodInfo).Pod }

// Entities returns the pods of next as kube-scheduler takes them.
func Entities(next Next) func(klog.Logger) (framework.QueuedEntityInfo, error) {
	return func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		pod, err := next(logger)
		if pod == nil {
			return nil, err // a nil pod in an interface would not be nil
		}
		return pod, err
	}
}
