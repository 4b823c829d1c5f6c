package nodenumaresource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

const stateKey fwk.StateKey = "PreScore" + Name

// scoring is what the scores of one cycle are made of: the cycle, and the pod's requests (memory in bytes).
type scoring struct {
	*placement.Cycle
	// What the pod requests, added to what the node's pods request already.
	milliCPU, memory int64
}

// Clone returns s, which is never changed.
func (s *scoring) Clone() fwk.StateData { return s }

// read returns the input of the cycle's scores; nil for a pod that is not scored.
func read(cs fwk.CycleState) *scoring { return placement.State[*scoring](cs, stateKey) }

// PreScore skips pods that are scored as any other, and those that are scored by their devices: CPUs of their own alone
// are ranked beside these.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	cycle := placement.Read(cs)
	if cycle == nil || p.ByDevices(cycle) && !cycle.Request.Role.Binds() {
		return fwk.NewStatus(fwk.Skip)
	}
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	cs.Write(stateKey, &scoring{cycle, asked.Cpu().MilliValue(), asked.Memory().Value()})
	return nil
}

// Score ranks a node: 0–100, comparable across nodes; a number of NUMA nodes for pods that are ranked as by Volcano.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	s := read(cs)
	if s == nil {
		return 0, nil
	}
	name := n.Node().Name
	if p.ranksAsVolcano(s.Request) {
		return p.spanOn(s, name), nil
	}
	view := s.View(name)
	// A node whose kubelet has been predicted wrong comes last for pods that depend on it.
	if p.Suspects(view, s.Request, name) {
		return 0, nil
	}
	used, room := n.GetRequested(), n.GetAllocatable()
	usage := place.Usage{
		MilliCPU: used.GetMilliCPU() + s.milliCPU, AllocatableMilliCPU: room.GetMilliCPU(),
		Memory: used.GetMemory() + s.memory, AllocatableMemory: room.GetMemory(),
	}
	return place.Score(view, s.Request, usage, p.args.Scoring), nil
}
