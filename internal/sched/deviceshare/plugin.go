package deviceshare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = placement.DeviceShare

// degradedPenalty is the cost, in micro-GPUs, of each device with the condition Degraded that the pod would get on a
// node. It is that of losing one whole GPU.
const degradedPenalty = 1_000_000

// Plugin is the placement of a profile, with its arguments and its score.
type Plugin struct {
	*placement.Plugin
	// handle is that of the profile, for the snapshot of the cycle under way.
	handle fwk.Handle
	// learner counts the pods that arrive. All profiles share it.
	learner *learner
	// survey answers questions between cycles. nil in processes that answer none.
	survey *survey
	// weights are those of Koordinator's strategies, by resource. nil for the strategy FragmentationAware.
	weights map[string]int64
	// most is true if the fullest nodes are the best, and false if the emptiest are. It is read only with weights.
	most bool
	// avoids is true if pods without devices prefer nodes without unallocated GPUs.
	avoids bool
}

var (
	_ fwk.PreScorePlugin  = (*Plugin)(nil)
	_ fwk.ScorePlugin     = (*Plugin)(nil)
	_ fwk.ScoreExtensions = (*Plugin)(nil)
)

// Factory makes the plugin for each profile; all learn together. Unknown fields and values of arguments are refused.
func Factory(d *placement.Decisions) frameworkruntime.PluginFactory {
	all, parts := newLearner(), &templates{}
	return func(_ context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := v1alpha1.Decode[v1alpha1.DeviceShareArgs](raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		p := &Plugin{Plugin: d.Join(h, Name), handle: h, learner: all, avoids: *args.AvoidWithoutDevices}
		s := placement.Sharing{Apart: args.DisableDeviceNUMATopologyAlignment, Adapt: args.DevicePluginAdaption}
		for _, m := range args.GPUShareUnsupportedModels {
			s.WholeOnly = append(s.WholeOnly, convert.GPUModel(m.Vendor, m.Model))
		}
		if c := args.GPUSharedResourceTemplatesConfig; c != nil {
			if err := parts.follow(h.SharedInformerFactory(), c); err != nil {
				return nil, fmt.Errorf("arguments of %s: %w", Name, err)
			}
			s.Templates = parts.Load
		}
		strategy := args.ScoringStrategy
		if strategy.Type == v1alpha1.FragmentationAware {
			s.Rank = p.rank
		}
		if p.Share(s); s.Rank != nil {
			return p, nil
		}
		p.weights, p.most = map[string]int64{}, strategy.Type == v1alpha1.MostAllocated
		for _, r := range strategy.Resources {
			p.weights[string(r.Name)] = r.Weight
		}
		return p, nil
	}
}

// Arrived learns from a pod at its first attempt. Before the first pod it learns from those that are bound, so that
// nodes are valued by what the cluster runs and not by the one pod that happens to come first.
func (p *Plugin) Arrived(cs fwk.CycleState, pod *corev1.Pod) {
	p.Recall()
	if p.weights == nil && p.Store().AnyInventory() && p.learner.first(pod.UID) {
		s := p.scoring(cs, pod)
		p.learn(pod, s.devices, s.milliCPU)
	}
}

// Recall learns from the pods that are bound. It does so once, as soon as a node has devices.
func (p *Plugin) Recall() {
	if p.weights == nil && p.Store().AnyInventory() {
		p.learner.once.Do(p.recall)
	}
}

// learn counts a pod with this request for devices, nil for none, and these CPUs.
func (p *Plugin) learn(pod *corev1.Pod, r *device.Request, milliCPU int64) {
	var models fragment.Models
	if r != nil {
		models = p.reachable(pod)
	}
	p.learner.learn(p.learner.demandOf(r, milliCPU, models), p.free)
}

// reachable returns the models of the GPUs on the nodes that match the pod's node selector and required node affinity.
// It returns 0 if these exclude no model. It does not matter who wrote them: a user, or an admission plugin that adds
// the selector of a namespace. It looks at each node, once for equal selectors and each generation.
func (p *Plugin) reachable(pod *corev1.Pod) fragment.Models {
	var required *corev1.NodeSelector
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(pod.Spec.NodeSelector) == 0 && required == nil {
		return 0
	}
	key, err := json.Marshal([]any{pod.Spec.NodeSelector, required})
	if err != nil {
		return 0 // selectors are strings: they can always be written
	}
	return p.learner.reach(string(key), func() (matched fragment.Models) {
		all, affinity := fragment.Models(0), nodeaffinity.GetRequiredNodeAffinity(pod)
		for n, g := range p.nodesWithGPUs() {
			all |= fragment.ModelsOf(g.model)
			if ok, err := affinity.Match(n.Node()); ok && err == nil {
				matched |= fragment.ModelsOf(g.model)
			}
		}
		if matched == all {
			return 0
		}
		return matched
	})
}

// free returns the thousandths of GPUs that are free by model, without cordoned nodes.
func (p *Plugin) free() (free fragment.Supply) {
	for n, g := range p.nodesWithGPUs() {
		if n.Node().Spec.Unschedulable {
			continue
		}
		for _, milli := range g.free {
			free[g.model] += max(milli, 0)
		}
	}
	return free
}

// nodesWithGPUs yields each node of the cycle's snapshot whose GPUs Tenon allocates, with its GPUs.
func (p *Plugin) nodesWithGPUs() iter.Seq2[fwk.NodeInfo, *gpus] {
	return func(yield func(fwk.NodeInfo, *gpus) bool) {
		nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
		if err != nil {
			return // without a snapshot no node is known
		}
		for _, n := range nodes {
			name := n.Node().Name
			if g := p.learner.gpusOf(name, p.Store().View(name)); len(g.ids) > 0 && !yield(n, g) {
				return
			}
		}
	}
}

// Epoch returns the number of the generation in force: scores of a node change with it although the node does not. It
// is 0 for strategies that learn nothing.
func (p *Plugin) Epoch() uint64 {
	if p.weights != nil {
		return 0
	}
	return p.learner.current().number
}

// Decides reports whether nodes are compared by their devices for the pod.
func (p *Plugin) Decides(cs fwk.CycleState) bool { return p.ByDevices(placement.Read(cs)) }

// recall counts the bound pods, as if they had arrived in the order of their creation, and creates the first
// generation.
func (p *Plugin) recall() {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return // without a snapshot no pod is known
	}
	var pods []*corev1.Pod
	for _, n := range nodes {
		name := n.Node().Name
		p.learner.gpusOf(name, p.Store().View(name)) // their models and size are known before pods that ask for them
		for _, info := range n.GetPods() {
			pods = append(pods, info.GetPod())
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range pods[max(len(pods)-remembered, 0):] {
		p.learn(pod, p.Devices(pod), convert.MilliCPU(pod))
	}
	p.learner.begin(p.free())
}
