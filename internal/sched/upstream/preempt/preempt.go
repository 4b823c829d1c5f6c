package preempt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	upstream "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Chooser chooses victims for the pods of one profile, and evicts them: kube-scheduler's plugin with the rules and
// layers of other packages. Two choosers of one plugin are the same. Rules and layers are added before the first pod.
type Chooser struct {
	plugin *defaultpreemption.DefaultPreemption
}

// New makes the plugin of a profile. It looks for victims on as many nodes as kube-scheduler does by default.
func New(ctx context.Context, h fwk.Handle) (*Chooser, error) {
	args := config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
	plugin, err := defaultpreemption.New(ctx, &args, h,
		feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, err
	}
	return &Chooser{plugin}, nil
}

// Of returns the chooser that a plugin of a profile is; nil for another plugin.
func Of(plugin fwk.Plugin) *Chooser {
	if p, ok := plugin.(*defaultpreemption.DefaultPreemption); ok {
		return &Chooser{p}
	}
	return nil
}

// Rule reports whether a pod on a node may be a victim of a preemptor. Its priority is lower than the preemptor's.
type Rule func(node fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool

// Rules returns the rules that were added so far as one: all must allow a victim.
func (c *Chooser) Rules() Rule {
	eligible := c.plugin.IsEligiblePod // without the rules that are added later
	return func(node fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
		return eligible(node, upstream.NewPodVictim(victim, nil, nil), preemptor)
	}
}

// Restrict adds a rule. It is asked about the pods that the rules before it allow.
func (c *Chooser) Restrict(rule Rule) {
	before := c.plugin.IsEligiblePod
	c.plugin.IsEligiblePod = func(node fwk.NodeInfo, victim upstream.Victim, preemptor *corev1.Pod) bool {
		return before(node, victim, preemptor) && !slices.ContainsFunc(victim.Pods(),
			func(pod fwk.PodInfo) bool { return !rule(node, pod, preemptor) })
	}
}

// MoreImportant reports whether pod a is spared before pod b.
func (c *Chooser) MoreImportant(a, b *corev1.Pod) bool {
	return c.plugin.MoreImportantVictim(victimOf(a), victimOf(b))
}

// victimOf returns one pod as kube-scheduler's unit of preemption. kube-scheduler makes others, of several pods, only
// if the feature gate GenericWorkload is on, with which Tenon does not start.
func victimOf(pod *corev1.Pod) upstream.Victim {
	return upstream.NewPodVictim(&framework.PodInfo{Pod: pod}, nil, nil)
}

// OrderBy replaces the order in which pods are spared.
func (c *Chooser) OrderBy(moreImportant func(a, b *corev1.Pod) bool) {
	c.plugin.MoreImportantVictim = func(a, b upstream.Victim) bool {
		return moreImportant(a.Pods()[0].GetPod(), b.Pods()[0].GetPod())
	}
}

// MayPreempt reports whether a pod may have victims: its policy allows it, and none of its former victims has yet to
// end on the node to which it is nominated.
func (c *Chooser) MayPreempt(ctx context.Context, pod *corev1.Pod) bool {
	eligible, _ := c.plugin.Evaluator.PodEligibleToPreemptOthers(ctx, pod, nil)
	return eligible
}

// Budgets returns all disruption budgets of the cluster.
func (c *Chooser) Budgets() ([]*policyv1.PodDisruptionBudget, error) {
	return c.plugin.Evaluator.PdbLister.List(labels.Everything())
}

// Candidate is a node that takes a preemptor once its victims are gone, the most important victim first.
type Candidate struct {
	Node    string
	Victims []*corev1.Pod
}

// Candidates returns the candidates among nodes, all of which are tried. The state is that of a cycle in which
// PreFilter has run for the pod.
func (c *Chooser) Candidates(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
	budgets []*policyv1.PodDisruptionBudget,
) (out []Candidate, err error) {
	found, _, err := c.plugin.Evaluator.DryRunPreemption(ctx, state, pod, nodes, budgets, 0, int32(len(nodes)))
	for _, f := range found {
		out = append(out, Candidate{f.Name(), f.Victims().Pods})
	}
	return out, err
}

// Best returns the candidate that preemption prefers among nodes, all of which are tried; no victims if there is none.
func (c *Chooser) Best(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
	budgets []*policyv1.PodDisruptionBudget,
) (node string, victims []*corev1.Pod, err error) {
	found, _, err := c.plugin.Evaluator.DryRunPreemption(ctx, state, pod, nodes, budgets, 0, int32(len(nodes)))
	if err != nil || len(found) == 0 {
		return "", nil, err
	}
	best := c.plugin.Evaluator.SelectCandidate(ctx, found)
	return best.Name(), best.Victims().Pods, nil
}

// PreEnqueue holds a pod back while its victims are evicted.
func (c *Chooser) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	return c.plugin.PreEnqueue(ctx, pod)
}

// PostFilter preempts for a pod that fits on no node.
func (c *Chooser) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	return c.plugin.PostFilter(ctx, state, pod, nodes)
}
