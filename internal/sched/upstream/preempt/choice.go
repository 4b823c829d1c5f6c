package preempt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	upstream "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Choice chooses victims and nodes.
type Choice interface {
	// Sample returns the index of the first of so many nodes that is tried, and how many candidates are enough.
	Sample(nodes int32) (first, enough int32)
	// Victims returns the victims of a dry run, the most important first, and how many of them a disruption budget
	// does not allow. The dry run is the callee's: it may remove pods.
	Victims(ctx context.Context, run *DryRun) (victims []*corev1.Pod, violating int, status *fwk.Status)
	// Ranks returns what decides between nodes with victims: the highest value of the first function wins, and the next
	// functions decide between equals. nil leaves it to kube-scheduler.
	Ranks(ctx context.Context, victims map[string]*extenderv1.Victims) []func(node string) int64
}

// Choose adds a layer around the choice so far.
func (c *Chooser) Choose(layer func(inner Choice) Choice) {
	e := c.plugin.Evaluator
	if outer, layered := e.Interface.(adapted); layered {
		outer.choice = layer(outer.choice)
		e.Interface = outer
		return
	}
	e.Interface = adapted{e.Interface, layer(stock{e.Interface}), e.Handler}
}

// adapted is a Choice as kube-scheduler calls it.
type adapted struct {
	upstream.Interface // what no Choice decides
	choice             Choice
	handle             fwk.Handle
}

func (a adapted) GetOffsetAndNumCandidates(nodes int32) (first, enough int32) {
	return a.choice.Sample(nodes)
}

func (a adapted) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	possible []*upstream.DomainVictim, budgets []*policyv1.PodDisruptionBudget,
) ([]*corev1.Pod, int, *fwk.Status) {
	return a.choice.Victims(ctx, &DryRun{
		Preemptor: pod, Node: node, Budgets: budgets, state: state, handle: a.handle, possible: possible,
	})
}

func (a adapted) OrderedScoreFuncs(ctx context.Context, victims map[string]*extenderv1.Victims,
) []func(node string) int64 {
	return a.choice.Ranks(ctx, victims)
}

// stock is kube-scheduler's choice as a Choice.
type stock struct{ upstream.Interface }

func (s stock) Sample(nodes int32) (first, enough int32) { return s.GetOffsetAndNumCandidates(nodes) }

func (s stock) Victims(ctx context.Context, run *DryRun) ([]*corev1.Pod, int, *fwk.Status) {
	return s.SelectVictimsOnNode(ctx, run.state, run.Preemptor, run.Node, run.possible, run.Budgets)
}

func (s stock) Ranks(ctx context.Context, victims map[string]*extenderv1.Victims) []func(node string) int64 {
	return s.OrderedScoreFuncs(ctx, victims)
}

// DryRun tries a preemptor on copies of a node and of the state of its cycle.
type DryRun struct {
	Preemptor *corev1.Pod
	// Node is the copy, without the pods that Remove was called with.
	Node fwk.NodeInfo
	// Budgets are all disruption budgets of the cluster; nil if no victims are chosen.
	Budgets []*policyv1.PodDisruptionBudget

	state  fwk.CycleState
	handle fwk.Handle // of the preemptor's profile
	// possible are kube-scheduler's possible victims, without those that have a removed pod.
	possible []*upstream.DomainVictim
}

// NewDryRun begins a dry run of a pod on a node. The state is that of a cycle in which PreFilter has run for the pod.
func NewDryRun(h fwk.Handle, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *DryRun {
	return &DryRun{Preemptor: pod, Node: node.Snapshot(), state: state.Clone(), handle: h}
}

// Remove removes a pod from the node. Victims does not choose it any more.
func (d *DryRun) Remove(ctx context.Context, victim fwk.PodInfo) *fwk.Status {
	if err := d.Node.RemovePod(klog.FromContext(ctx), victim.GetPod()); err != nil {
		return fwk.AsStatus(err)
	}
	d.possible = slices.DeleteFunc(slices.Clone(d.possible), func(v *upstream.DomainVictim) bool {
		return slices.ContainsFunc(v.Pods(), func(p fwk.PodInfo) bool { return p.GetPod().UID == victim.GetPod().UID })
	})
	return d.handle.RunPreFilterExtensionRemovePod(ctx, d.state, d.Preemptor, victim, d.Node)
}

// Fits reports whether the node takes the preemptor without the pods that were removed.
func (d *DryRun) Fits(ctx context.Context) bool {
	return d.handle.RunFilterPluginsWithNominatedPods(ctx, d.state, d.Preemptor, d.Node).IsSuccess()
}
