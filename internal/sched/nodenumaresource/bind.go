package nodenumaresource

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// allocation returns the annotations that record what was reserved, nil when there is nothing to record.
func allocation(cs fwk.CycleState) map[string]string {
	s := read(cs)
	if s == nil || s.reserved == "" || s.view.Machine() == nil {
		return nil
	}
	var record map[string]string
	put := func(key string, value fmt.Stringer) {
		if record == nil {
			record = map[string]string{}
		}
		record[key] = value.String()
	}
	status := convert.Status(s.view.Machine(), s.view, s.request, s.offer)
	if status.CPUSet != "" || len(status.CPUSharedPools) > 0 || len(status.NUMANodeResources) > 0 {
		put(annotation.ResourceStatusKey, status)
	}
	if predicted, ok := convert.Predicted(s.offer); ok {
		put(annotation.PredictedPlacementKey, predicted)
	}
	return record
}

// Bind writes node and allocation in one request, for this very pod and not for a namesake. Pods without allocation are
// left to the next binder. Where the kubelet chooses, pods of one node are bound in the order of their reservations; when
// one of them is not bound after all, those behind it are predicted anew. Unreserve lets them go on after an error.
func (p *Plugin) Bind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	record := allocation(cs)
	if record == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if p.tracker.turns.wait(ctx, node, pod.UID) {
		if err := p.renew(read(cs)); err != nil {
			return fwk.AsStatus(err)
		}
		record = allocation(cs)
	}
	klog.FromContext(ctx).V(3).Info("Binding pod with its CPUs", "pod", klog.KObj(pod), "node", node,
		"resourceStatus", record[annotation.ResourceStatusKey], "predictedPlacement", record[annotation.PredictedPlacementKey])
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: record},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := p.write(ctx, binding); err != nil {
		return fwk.AsStatus(err)
	}
	p.tracker.turns.leave(node, pod.UID)
	p.tellIgnored(cs, pod, node)
	return nil
}

func (p *Plugin) write(ctx context.Context, binding *corev1.Binding) error {
	cacher := p.handle.APICacher()
	if cacher == nil {
		return p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	}
	done, err := cacher.BindPod(binding)
	if err != nil {
		return err
	}
	return cacher.WaitOnFinish(ctx, done)
}

// ignoredPolicy is the reason of the Event that tells of an exclusive policy without effect.
const ignoredPolicy = "ExclusivePolicyIgnored"

// tellIgnored warns when the node's architecture does not have the pod's exclusive policy: the pod runs, and something
// that its owner asked for does not hold.
func (p *Plugin) tellIgnored(cs fwk.CycleState, pod *corev1.Pod, node string) {
	s := read(cs)
	if effect, _ := place.EffectOn(s.view, s.request); effect.Ignored {
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, ignoredPolicy, "Binding",
			"%s: preferredCPUExclusivePolicy %s does not exist on arm64, so other pods may share cores with this one on node %s",
			ignoredPolicy, s.request.Exclusive, node)
	}
}

// PreBindPreFlight skips every pod that this plugin binds itself, so that nothing is written twice.
func (p *Plugin) PreBindPreFlight(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if read(cs) == nil || p.binds(pod) || allocation(cs) == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind records the allocation before another binder binds. The framework asks the pre-flight only while it nominates
// nodes for expected binds, so PreBind decides again. The other binder knows no order: nobody waits for a turn.
func (p *Plugin) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if read(cs) == nil || p.binds(pod) {
		return nil
	}
	if p.tracker.turns.isStale(node, pod.UID) {
		if err := p.renew(read(cs)); err != nil {
			return fwk.AsStatus(err)
		}
	}
	record := allocation(cs)
	if record == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": record}})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("record the allocation of %s: %w", klog.KObj(pod), err))
	}
	_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("record the allocation of %s: %w", klog.KObj(pod), err))
	}
	p.tracker.turns.leave(node, pod.UID)
	return nil
}

// binds reports whether Bind of this plugin is the one that will bind the pod.
func (p *Plugin) binds(pod *corev1.Pod) bool {
	for _, e := range p.handle.Extenders() {
		if e.IsBinder() && e.IsInterested(pod) {
			return false
		}
	}
	return p.bindsFirst()
}

// bindsFirst reports whether the profile asks this plugin to bind before any other that binds every pod.
func bindsFirst(h fwk.Handle) bool {
	profile, ok := h.(interface{ ListPlugins() *config.Plugins })
	if !ok {
		return false
	}
	binders := profile.ListPlugins().Bind.Enabled
	return len(binders) > 0 && binders[0].Name == Name
}
