package nodenumaresource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/place"
)

// PreScore skips pods that are scored as any other.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	s := read(cs)
	if s == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	s.milliCPU, s.memory = asked.Cpu().MilliValue(), asked.Memory().Value()
	return nil
}

// Score ranks a node: 0–100, comparable across nodes, so that nothing is left to normalise. For pods that are ranked as
// Volcano does it is a number of NUMA nodes.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	s := read(cs)
	if s == nil {
		return 0, nil
	}
	if p.ranksAsVolcano(s.request) {
		return p.spanOn(s, n.Node().Name), nil
	}
	used, room := n.GetRequested(), n.GetAllocatable()
	usage := place.Usage{
		MilliCPU: used.GetMilliCPU() + s.milliCPU, AllocatableMilliCPU: room.GetMilliCPU(),
		Memory: used.GetMemory() + s.memory, AllocatableMemory: room.GetMemory(),
	}
	view := p.viewOf(s, n.Node().Name)
	if view.Facts().Model.Concerns(s.request.Kubelet) && p.tracker.suspects(n.Node().Name) {
		return 0, nil
	}
	return place.Score(view, s.request, usage, p.args.Scoring), nil
}
