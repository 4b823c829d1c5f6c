package app

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// What keeps the agent small: it runs on every node.
const (
	// gcPercent is how much the heap may grow before it is collected, where the environment does not say. The heap is
	// small and little happens, so that collecting twice as often costs nothing that can be measured.
	gcPercent = 50
	// readyPoll is the time between two questions whether the start is over.
	readyPoll = time.Second
	// lastApplied is what kubectl leaves on objects: the object once more.
	lastApplied = corev1.LastAppliedConfigAnnotation
)

// collectOften makes the garbage collector prefer memory over CPU, unless the operator has decided.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// releaseStart waits until ready answers nil, or ctx ends. Then it gives back the memory that only the start needed.
func releaseStart(ctx context.Context, c clock.WithTicker, ready func() error) {
	tick := c.NewTicker(readyPoll)
	defer tick.Stop()
	for ready() != nil {
		select {
		case <-tick.C():
		case <-ctx.Done():
			return
		}
	}
	debug.FreeOSMemory()
}

// trim drops, before a pod is cached, the fields that the agent does not read: most of it, where pods have sidecars and
// long environments.
func trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields, pod.OwnerReferences = nil, nil
	delete(pod.Annotations, lastApplied)
	s := &pod.Spec
	*s = corev1.PodSpec{
		NodeName: s.NodeName, Priority: s.Priority, PriorityClassName: s.PriorityClassName,
		SchedulerName: s.SchedulerName,
		Overhead:      s.Overhead, Resources: s.Resources, RestartPolicy: s.RestartPolicy, HostNetwork: s.HostNetwork,
		ResourceClaims:      s.ResourceClaims,
		InitContainers:      trimContainers(s.InitContainers),
		Containers:          trimContainers(s.Containers),
		EphemeralContainers: trimEphemeral(s.EphemeralContainers),
	}
	return pod, nil
}

func trimContainers(all []corev1.Container) []corev1.Container {
	for i := range all {
		c := &all[i]
		*c = corev1.Container{
			Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy,
			RestartPolicy: c.RestartPolicy,
		}
	}
	return all
}

func trimEphemeral(all []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	for i := range all {
		c := &all[i].EphemeralContainerCommon
		*c = corev1.EphemeralContainerCommon{Name: c.Name, Resources: c.Resources}
	}
	return all
}
