package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/config/descheduler"
)

// newRestarts moves pods whose containers have restarted too often.
func newRestarts(a *descheduler.TooManyRestartsArgs, r Round) Plugin {
	violation := func(_ context.Context, pod *corev1.Pod, _ *corev1.Node, _ []*corev1.Node) string {
		var restarts int32
		for _, c := range containers(pod, a.IncludingInitContainers, false) {
			restarts += c.RestartCount
		}
		if restarts < a.PodRestartThreshold || !inState(pod, a.States, a.IncludingInitContainers, false) {
			return ""
		}
		return fmt.Sprintf("the containers of the pod have restarted %d times, of %d", restarts, a.PodRestartThreshold)
	}
	return podRule{"RemovePodsHavingTooManyRestarts", r, among(a.Scope), violation}
}

// newFailedPods removes pods that have failed.
func newFailedPods(a *descheduler.FailedPodsArgs, r Round) Plugin {
	violation := func(_ context.Context, pod *corev1.Pod, _ *corev1.Node, _ []*corev1.Node) string {
		if pod.Status.Phase != corev1.PodFailed || ownedBy(pod, a.ExcludeOwnerKinds) {
			return ""
		}
		if least := a.MinPodLifetimeSeconds; least != nil && age(pod, r) < time.Duration(*least)*time.Second {
			return ""
		}
		if !inState(pod, a.Reasons, a.IncludingInitContainers, false) || !exited(pod, a) {
			return ""
		}
		return "the pod has failed"
	}
	return podRule{"RemoveFailedPods", r, among(a.Scope), violation}
}

// exited reports whether a container ended with one of the codes, if any are given.
func exited(pod *corev1.Pod, a *descheduler.FailedPodsArgs) bool {
	all := containers(pod, a.IncludingInitContainers, false)
	return len(a.ExitCodes) == 0 || slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && slices.Contains(a.ExitCodes, c.State.Terminated.ExitCode)
	})
}

// newLifeTime moves pods that are too old.
func newLifeTime(a *descheduler.LifeTimeArgs, r Round) Plugin {
	most := time.Duration(a.MaxPodLifeTimeSeconds) * time.Second
	violation := func(_ context.Context, pod *corev1.Pod, _ *corev1.Node, _ []*corev1.Node) string {
		if age(pod, r) <= most || !inState(pod, a.States, a.IncludingInitContainers, a.IncludingEphemeralContainers) {
			return ""
		}
		return fmt.Sprintf("the pod is older than %v", most)
	}
	return podRule{"PodLifeTime", r, among(a.Scope), violation}
}

// age is since the pod was created.
func age(pod *corev1.Pod, r Round) time.Duration { return r.Now().Sub(pod.CreationTimestamp.Time) }

// inState reports whether one of the states holds, if any are given: the pod's phase, its reason, or the reason for
// which a container waits or has ended.
func inState(pod *corev1.Pod, states []string, inits, ephemeral bool) bool {
	if len(states) == 0 || slices.Contains(states, string(pod.Status.Phase)) || slices.Contains(states,
		pod.Status.Reason) {
		return true
	}
	return slices.ContainsFunc(containers(pod, inits, ephemeral), func(c corev1.ContainerStatus) bool {
		waits, ended := c.State.Waiting, c.State.Terminated
		return waits != nil && slices.Contains(states, waits.Reason) ||
			ended != nil && slices.Contains(states, ended.Reason)
	})
}

func containers(pod *corev1.Pod, inits, ephemeral bool) []corev1.ContainerStatus {
	all := slices.Clone(pod.Status.ContainerStatuses)
	if inits {
		all = append(all, pod.Status.InitContainerStatuses...)
	}
	if ephemeral {
		all = append(all, pod.Status.EphemeralContainerStatuses...)
	}
	return all
}
