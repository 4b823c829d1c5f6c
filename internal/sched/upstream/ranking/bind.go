package ranking

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Pauses between the attempts to bind a member of a gang.
const (
	firstBindPause  = 100 * time.Millisecond
	lastBindPause   = 1600 * time.Millisecond
	bindPauseFactor = 4
)

// RunBindPlugins counts the Binding. Pods that wait for a permit or for their volumes are not counted: others may have
// to be scheduled before they go on. A member of a gang keeps what is reserved for it during a few attempts on its
// node: its siblings are bound already. Where the Binding is refused after all, that is remembered.
func (p *Profile) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	isMember := p.Together != nil && p.Together.IsMember(pod)
	if p.Bindings != nil {
		defer p.Bindings.Begin(isMember)()
	}
	status := p.bind(ctx, state, pod, node, isMember)
	if p.Rejections != nil {
		p.Rejections.note(pod.UID, node, status)
	}
	return status
}

// bind binds a pod, a member of a gang with several attempts.
func (p *Profile) bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string, member bool,
) *fwk.Status {
	status := p.Framework.RunBindPlugins(ctx, state, pod, node)
	if !member {
		return status
	}
	for pause := firstBindPause; !status.IsSuccess() && pause <= lastBindPause; pause *= bindPauseFactor {
		// The Binding may have been carried out although its answer was lost.
		current, err := p.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && current.UID != pod.UID:
			return status
		case err == nil && current.Spec.NodeName == node:
			return nil
		case err == nil && current.Spec.NodeName != "":
			return status
		}
		select {
		case <-ctx.Done():
			return status
		case <-time.After(pause):
		}
		status = p.Framework.RunBindPlugins(ctx, state, pod, node)
	}
	return status
}
