package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// report writes the pod's status when it differs from the last written one. Conditions of other writers are kept: a
// strategic merge joins them by type.
func (k *kubelet) report(ctx context.Context, p *pod, obj *corev1.Pod) error {
	status := k.statusOf(p, obj)
	if p.sent != nil && equality.Semantic.DeepEqual(*p.sent, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.n.Client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err := ignoreGone(err); err != nil {
		return fmt.Errorf("patch status of pod %s: %w", p.ref, err)
	}
	p.sent = &status
	if managers := k.gate.kubelet(); managers != nil {
		managers.Observe(p.uid, status.DeepCopy())
	}
	return nil
}

func (k *kubelet) statusOf(p *pod, obj *corev1.Pod) corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: obj.Status.QOSClass, HostIP: nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}},
		StartTime: obj.Status.StartTime,
	}
	if s.StartTime == nil && p.sent != nil {
		s.StartTime = p.sent.StartTime
	}
	if s.StartTime == nil {
		s.StartTime = new(second(time.Now()))
	}
	if r := p.refusal; r != nil {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, r.Reason, r.Message
		return s
	}
	ip := p.ip
	if obj.Spec.HostNetwork {
		ip = nodeIP
	}
	s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	initialized, ready, ran := true, true, false
	for i := range obj.Spec.InitContainers {
		c := &obj.Spec.InitContainers[i]
		b := p.containers[c.Name]
		sidecar := b.isRunning() && podutil.IsRestartableInitContainer(c)
		done := b.State.Terminated != nil && b.State.Terminated.ExitCode == 0 || sidecar
		initialized, ran = initialized && done, ran || sidecar
		s.InitContainerStatuses = append(s.InitContainerStatuses, b.status(done))
	}
	for i := range obj.Spec.Containers {
		b := p.containers[obj.Spec.Containers[i].Name]
		ready = ready && b.isRunning()
		ran = ran || b.State.Waiting == nil || b.RestartCount > 0
		s.ContainerStatuses = append(s.ContainerStatuses, b.status(b.isRunning()))
	}
	switch {
	case finished(p, obj):
		s.Phase = corev1.PodSucceeded
		for i := range obj.Spec.Containers {
			if p.containers[obj.Spec.Containers[i].Name].State.Terminated.ExitCode != 0 {
				s.Phase = corev1.PodFailed
			}
		}
	case obj.DeletionTimestamp != nil:
		s.Phase = corev1.PodFailed
	case ran && initialized:
		s.Phase = corev1.PodRunning
	}
	why := "ContainersNotReady"
	if s.Phase == corev1.PodSucceeded {
		why = "PodCompleted"
	}
	p.setCondition(&s, corev1.PodReadyToStartContainers, !podutil.IsPodPhaseTerminal(s.Phase), "ContainersNotReady")
	p.setCondition(&s, corev1.PodInitialized, initialized, "ContainersNotReady")
	p.setCondition(&s, corev1.PodReady, ready, why)
	p.setCondition(&s, corev1.ContainersReady, ready, why)
	return s
}

// setCondition adds a condition with the time of its last change; why is the reason of a condition that is false.
func (p *pod) setCondition(s *corev1.PodStatus, kind corev1.PodConditionType, holds bool, why string) {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: second(time.Now())}
	if !holds {
		c.Status, c.Reason = corev1.ConditionFalse, why
	}
	if old, ok := p.since[kind]; ok && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	p.since[kind] = c
	s.Conditions = append(s.Conditions, c)
}

func (b *container) status(ready bool) corev1.ContainerStatus {
	s := b.ContainerStatus
	s.Ready, s.Started = ready, new(b.isRunning())
	return s
}

// second returns a time with the precision of the API.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
