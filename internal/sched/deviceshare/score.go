package deviceshare

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// stateKey is where PreScore leaves the input of the scores.
const stateKey fwk.StateKey = "PreScore" + Name

// unfit is the gain, for each GPU, of a choice that needs more thousandths than are free. It is worse than any other,
// so that such a node comes last.
const unfit = -1_000_000_000

// scoring is what the scores of one cycle are computed from. PreScore stores it.
type scoring struct {
	cycle   *placement.Cycle // nil for a pod without devices that placement treats as any other
	devices *device.Request  // nil for none
	// milliCPU is what the pod requests of CPU.
	milliCPU int64
	// values is the generation in force when the cycle's scores began; nil for Koordinator's strategies.
	values *generation
}

// Clone returns s, which is never changed.
func (s *scoring) Clone() fwk.StateData { return s }

// read returns the input of the cycle's scores; nil for a pod that is not scored.
func read(cs fwk.CycleState) *scoring { return placement.State[*scoring](cs, stateKey) }

// scoring returns the input of the scores, without values.
func (p *Plugin) scoring(cs fwk.CycleState, pod *corev1.Pod) *scoring {
	s := &scoring{cycle: placement.Read(cs), milliCPU: convert.MilliCPU(pod)}
	if s.cycle != nil {
		s.devices = s.cycle.Request.Devices
	}
	return s
}

// view returns the account of a node as the cycle sees it.
func (p *Plugin) view(s *scoring, node string) *ledger.View {
	if s.cycle != nil {
		return s.cycle.View(node)
	}
	return p.Store().View(node)
}

// PreScore skips pods without devices, unless a candidate has GPUs that the pod's CPUs could make useless.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if !p.Store().AnyInventory() {
		return fwk.NewStatus(fwk.Skip)
	}
	s := p.scoring(cs, pod)
	if p.weights == nil {
		s.values = p.learner.current()
	}
	if s.devices == nil && (s.values == nil && !p.avoids || !p.anyGPU(s, nodes)) {
		return fwk.NewStatus(fwk.Skip)
	}
	cs.Write(stateKey, s)
	return nil
}

// anyGPU reports whether a node has GPUs; a ranking of all nodes, which says none, counts as one that has.
func (p *Plugin) anyGPU(s *scoring, nodes []fwk.NodeInfo) bool {
	return nodes == nil || slices.ContainsFunc(nodes, func(n fwk.NodeInfo) bool {
		name := n.Node().Name
		return len(p.learner.gpusOf(name, p.view(s, name)).free) > 0
	})
}

// idle returns the percentage of a node's GPUs that is not allocated: 0 for a node without GPUs.
func (g *gpus) idle() (percent int64) {
	for _, milli := range g.free {
		percent += max(milli, 0)
	}
	return percent / 10 / max(int64(len(g.free)), 1)
}

// withIdle puts what a node's GPUs leave behind the other score of the node; splitIdle reads both again. Of equal other
// scores the one with less idle GPUs is greater.
func withIdle(score, idle int64) int64 { return score<<7 + 100 - idle }

func splitIdle(score int64) (other, used int64) { return score >> 7, score & 127 }

// avoid makes a normalized score of two, for a pod without devices: nine tenths are other, which ranks nodes by what
// their GPUs lose, and a tenth is used, the percentage of their GPUs that is allocated.
func avoid(other, used int64) int64 { return (9*other + used) / 10 }

// Score returns the change in value, in micro-GPUs, of what the node has free when the pod runs there: 0 for a node
// without GPUs, and less the more is lost. With avoidWithoutDevices, that of a pod without devices also has
// how much of the GPUs is idle. For Koordinator's strategies it is from 0 to 100 for each type of device.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	s := read(cs)
	if s == nil {
		return 0, nil
	}
	name := n.Node().Name
	view := p.view(s, name)
	if s.values == nil && s.devices != nil {
		return p.allocated(view.Devices(), s.devices), nil
	}
	g := p.learner.gpusOf(name, view)
	if s.devices == nil {
		loss := int64(0)
		if s.values != nil && len(g.free) > 0 {
			loss = gain(s.values, g.state(n), specOf(nil, s.milliCPU, &g.unit), ^uint64(0))
		}
		if p.avoids {
			return withIdle(loss, g.idle()), nil
		}
		return loss, nil
	}
	usable, cost, account := ^uint64(0), int64(0), view.Devices()
	if account != nil && (account.AnyDegraded() || len(g.free) > 0 && demands(s.devices, account)) {
		usable, cost = taken(s.values, account, p.Ranked(name, view, s.cycle.Request), g)
	}
	if len(g.free) == 0 {
		return -cost, nil
	}
	return gain(s.values, g.state(n), specOf(s.devices, s.milliCPU, &g.unit), usable) - cost, nil
}

// demands reports whether the pod may get other GPUs of a node than those that are best by what they have free: hints,
// a required partition, or partitions that are worth keeping decide as well.
func demands(r *device.Request, account *device.View) bool {
	return len(r.Hints) > 0 || r.Partition != nil || account.FreePartitions() != [3]int64{}
}

// taken returns a mask of the GPUs that the pod would get on a node, in the order of g.ids, with all bits set if it can
// have any. cost is in micro-GPUs: for each free partition that the choice breaks, its GPUs times the share of pods
// that ask for a partition of that size; and degradedPenalty for each device that is likely to fail.
func taken(values *generation, account *device.View, r *place.Request, g *gpus) (
	usable uint64, cost int64,
) {
	choice, refused := account.Choose(r.Devices, &r.Options)
	cost = account.Degraded(choice.Grants) * degradedPenalty
	for i := range choice.Grants {
		if at := slices.Index(g.ids, choice.Grants[i].ID); at >= 0 && choice.Grants[i].Type == device.GPU {
			usable |= 1 << at
		}
	}
	if !refused.OK() || usable == 0 {
		return ^uint64(0), cost
	}
	before := account.FreePartitions()
	after := account.With(&device.Holding{UID: r.UID, Grants: choice.Grants}).FreePartitions()
	for i, size := range [...]int64{8, 4, 2} {
		cost += values.Demand(size) * size * (before[i] - after[i])
	}
	return usable, cost
}

// state returns what a node has free, as fragment values it.
func (g *gpus) state(n fwk.NodeInfo) fragment.State {
	return fragment.State{
		MilliCPU: n.GetAllocatable().GetMilliCPU() - n.GetRequested().GetMilliCPU(), Free: g.free, Model: g.model,
	}
}

// gain returns the change in value of a state when the pod gets the best GPUs of the mask usable.
func gain(values *generation, state fragment.State, pod fragment.Spec, usable uint64) int64 {
	choice, fits := values.Choose(state, pod, usable)
	if !fits {
		return unfit * max(pod.GPUs, 1)
	}
	return choice.Gain
}

// rank adds the ranking of a node's GPUs to the options of a request: a share goes to the GPU with which the node keeps
// the most value, and whole GPUs go so that the partitions remain which pods ask for.
func (p *Plugin) rank(node string, v *ledger.View, r *place.Request, o *device.Options) {
	if info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node); err == nil {
		p.rankBy(info, v, r, o)
	}
}

// rankBy is rank for a node that the caller has read. Unknown devices and those of other types rank equally.
func (p *Plugin) rankBy(info fwk.NodeInfo, v *ledger.View, r *place.Request, o *device.Options) {
	g := p.learner.gpusOf(info.Node().Name, v)
	if len(g.free) == 0 {
		return
	}
	values, state, spec := p.learner.current(), g.state(info), specOf(r.Devices, r.RequestMilli, &g.unit)
	spec.GPUs = min(spec.GPUs, 1)
	o.Demand = device.Demand{values.Demand(8), values.Demand(4), values.Demand(2)}
	o.Worth = func(t device.Type, id string) int64 {
		i := slices.Index(g.ids, id)
		if t != device.GPU || i < 0 {
			return 0
		}
		return gain(values, state, spec, 1<<i)
	}
}

// ScoreExtensions returns p.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives 100 to the best node and at most 99 to all others. Of equal ones the name decides. For pods
// without devices any number of nodes may be the best.
func (p *Plugin) NormalizeScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod,
	scores fwk.NodeScoreList,
) *fwk.Status {
	s, winner := read(cs), -1
	avoids := p.avoids && s != nil && s.devices == nil
	values, used := make([]int64, len(scores)), make([]int64, len(scores))
	for i := range scores {
		if values[i] = scores[i].Score; avoids {
			values[i], used[i] = splitIdle(scores[i].Score)
		}
	}
	if s != nil && s.devices != nil {
		winner = fragment.Winner(values, func(i int) string { return scores[i].Name })
	}
	fragment.Normalize(values, winner)
	for i := range scores {
		if scores[i].Score = values[i]; avoids {
			scores[i].Score = avoid(values[i], used[i])
		}
	}
	return nil
}
