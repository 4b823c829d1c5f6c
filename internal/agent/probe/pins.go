package probe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Pins are the pods whose CPUs the kubelet decides about: those in its state that the API knows and that carry no
// allocation of Tenon. In Own mode a pod with a QoS label that says where it runs is not pinned, and neither is one
// that started after the take-over began: their CPUs are the shared pool's, whatever the kubelet recorded for them.
func Pins(state host.CPUState, pods []*convert.Pod, mode annotation.Mode, since time.Time) []annotation.PodCPUAlloc {
	if mode == annotation.ModeBlind {
		return nil
	}
	var pins []annotation.PodCPUAlloc
	for _, pod := range pods {
		cpus := state.Pods[convert.NodeUID(pod.Pod)]
		if len(cpus) == 0 || convert.Ended(pod.Pod) || pod.Entry.CPUList != "" ||
			mode == annotation.ModeOwn && !ownLeaves(pod, since) {
			continue
		}
		pins = append(pins, annotation.PodCPUAlloc{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, CPUSet: cpuset.FormatIDs(cpus),
			ManagedByKubelet: true,
		})
	}
	return pins
}

// Left are the pins of a static kubelet that have outlived it: those of pods whose containers all run since before it
// was gone. A container that starts later gets the CPUs of its class, and its pod with it.
func Left(pins []annotation.PodCPUAlloc, pods []*convert.Pod, until time.Time) []annotation.PodCPUAlloc {
	outlived := map[types.UID]bool{}
	for _, pod := range pods {
		outlived[pod.UID] = runsSince(pod.Pod, until)
	}
	return slices.DeleteFunc(slices.Clone(pins), func(p annotation.PodCPUAlloc) bool { return !outlived[p.UID] })
}

// started are the containers of a pod that the kubelet may record CPUs of.
func started(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
}

// runsSince reports whether all running containers of a pod, and at least one, started no later than t.
func runsSince(pod *corev1.Pod, t time.Time) bool {
	ended := func(s corev1.ContainerStatus) bool { return s.State.Running == nil }
	late := func(s corev1.ContainerStatus) bool { return s.State.Running.StartedAt.After(t) }
	running := slices.DeleteFunc(started(pod), ended)
	return len(running) > 0 && !slices.ContainsFunc(running, late)
}

// ownLeaves reports whether a pod of a static kubelet keeps the kubelet's CPUs in Own mode.
func ownLeaves(pod *convert.Pod, since time.Time) bool {
	class, _, _ := convert.PodQoS(pod.Pod)
	return (class == qos.None || class == qos.LSE || class == qos.LSR) &&
		(since.IsZero() || startedBefore(pod.Pod, since))
}

// startedBefore reports whether a container of the pod started before t, or in its second: the API has whole seconds,
// and a pod that runs is not moved. A kubelet reports the Unix epoch for a container that never started.
func startedBefore(pod *corev1.Pod, t time.Time) bool {
	for _, s := range started(pod) {
		for _, at := range []time.Time{runningSince(s.State), runningSince(s.LastTerminationState)} {
			if at.Unix() > 0 && !at.After(t) {
				return true
			}
		}
	}
	return false
}

func runningSince(s corev1.ContainerState) time.Time {
	switch {
	case s.Running != nil:
		return s.Running.StartedAt.Time
	case s.Terminated != nil:
		return s.Terminated.StartedAt.Time
	}
	return time.Time{}
}
