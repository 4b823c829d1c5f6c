package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/view"
)

// Plugin is part of a profile.
type Plugin interface {
	// Name is how a configuration names the plugin.
	Name() string
}

// DeschedulePlugin has a rule about single pods.
type DeschedulePlugin interface {
	Plugin
	// Deschedule proposes moves of pods of these nodes.
	Deschedule(ctx context.Context, nodes []*corev1.Node) *Status
}

// BalancePlugin has a rule about all nodes together.
type BalancePlugin interface {
	Plugin
	// Balance proposes moves of pods of these nodes.
	Balance(ctx context.Context, nodes []*corev1.Node) *Status
}

// Status is how a plugin's run ended. nil is a run without errors.
type Status struct {
	Err error
}

// Round is what a plugin can ask and do.
type Round interface {
	// Now is when the round began.
	Now() time.Time
	// Pods returns the pods of a node that have not been moved, in the order in which to move them: low priorities
	// first. The caller may change the slice, but not the pods.
	Pods(node string) []*corev1.Pod
	// Movable reports whether the evictors let the pod be moved.
	Movable(pod *corev1.Pod) bool
	// Fit returns one of the nodes that the scheduler would place the pod on; nil where there is none, or where the
	// scheduler did not answer.
	Fit(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) *corev1.Node
	// Move begins to move a pod, and reports whether the evictors accepted that.
	Move(ctx context.Context, pod *corev1.Pod, reason string) bool
	// Waiting returns the pods and gangs that the scheduler finds no node for, in the order in which they are served,
	// without those that a job makes room for.
	Waiting() []Waiting
	// RoomFor asks which movable pods to move so that those that wait fit, without some.
	RoomFor(ctx context.Context, w Waiting, without map[types.UID]bool, maxMoves int) (*view.RoomAnswer, error)
	// Fragments asks which of some movable pods to move so that less of what is free is unusable, by minFall percent
	// of a GPU or of a NUMA node's CPUs with each move.
	Fragments(ctx context.Context, movable func(*corev1.Pod) bool, maxMoves int, minFall int64,
	) (*view.RoomAnswer, error)
	// MoveAll begins all moves of such an answer, or none; it returns the pods that the evictors refuse.
	MoveAll(ctx context.Context, room *view.RoomAnswer, w Waiting, reason string) []types.UID
	// Load returns the use of a node, with estimates for pods that its last report lacks, and whether a move from or to
	// the node is under way. The use is without a report where there is none, or none is read.
	Load(node string) (use load.View, moving bool)
	// Detector is kept from round to round, one for each profile.
	Detector() *load.Detector
	// Interval is the time between two rounds.
	Interval() time.Duration
	// SetDeletionCost sets which pods of a ReplicaSet are deleted first, where no user has done so.
	SetDeletionCost(ctx context.Context, pod *corev1.Pod, cost int32) error
}

// Waiting is a pod, or all members of a gang, that the scheduler finds no node for.
type Waiting struct {
	Pods []*corev1.Pod // one, or those of the gang, by name
	Gang string        // namespace/name; "" for a pod
	// Since is when the scheduler found no node for the first time, for the gang's first member.
	Since time.Time
}

// All returns the constructors of plugins, by their names.
func All() map[string]func(args any, r Round) Plugin {
	return map[string]func(args any, r Round) Plugin{
		"RemovePodsViolatingNodeAffinity":         make1(newNodeAffinity),
		"RemovePodsViolatingNodeTaints":           make1(newNodeTaints),
		"RemovePodsViolatingInterPodAntiAffinity": make1(newAntiAffinity),
		"RemovePodsHavingTooManyRestarts":         make1(newRestarts),
		"RemoveFailedPods":                        make1(newFailedPods),
		"PodLifeTime":                             make1(newLifeTime),

		"RemovePodsViolatingTopologySpreadConstraint": make1(newTopologySpread),

		"RemoveDuplicates":    make1(newDuplicates),
		"LowNodeUtilization":  make1(newLowNodeUtilization),
		"HighNodeUtilization": make1(newHighNodeUtilization),
		"LowNodeLoad":         make1(newLowNodeLoad),
		"FragmentationAware":  make1(newFragmentationAware),
		"ScaleDownBinPack":    make1(newScaleDownBinPack),
		"CustomPriority":      make1(newCustomPriority),
		"MakeRoom":            make1(newMakeRoom),
		"Defragment":          make1(newDefragment),
	}
}

// make1 adapts a constructor to the arguments of its plugin.
func make1[A any](construct func(args *A, r Round) Plugin) func(any, Round) Plugin {
	return func(args any, r Round) Plugin { return construct(args.(*A), r) }
}

// Before is the order in which pods are moved: by class, then the youngest first.
func Before(a, b *corev1.Pod) int {
	return cmp.Or(byClass(a, b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// byClass orders pods: those that ask to be moved last come last, then low priorities come first, then what has the
// weakest promise of resources.
func byClass(a, b *corev1.Pod) int {
	prefers := func(p *corev1.Pod) int {
		_, set := p.Annotations[annotation.PreferNoEviction]
		return bit(set)
	}
	class := func(p *corev1.Pod) int {
		return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable}, p.Status.QOSClass)
	}
	// Guaranteed has no index, and comes last.
	last := func(i int) int { return bit(i < 0)*2 + max(i, 0) }
	return cmp.Or(cmp.Compare(prefers(a), prefers(b)), cmp.Compare(Priority(a), Priority(b)),
		cmp.Compare(last(class(a)), last(class(b))))
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
}

// podRule is a DeschedulePlugin that looks at each pod for itself.
type podRule struct {
	name  string
	round Round
	scope func(pod *corev1.Pod) bool
	// violation says why a pod of the scope should leave its node; "" if it should not.
	violation func(ctx context.Context, pod *corev1.Pod, node *corev1.Node, nodes []*corev1.Node) string
}

func (r podRule) Name() string { return r.name }

func (r podRule) Deschedule(ctx context.Context, nodes []*corev1.Node) *Status {
	for _, node := range nodes {
		for _, pod := range r.round.Pods(node.Name) {
			if !r.scope(pod) {
				continue
			}
			if reason := r.violation(ctx, pod, node, nodes); reason != "" {
				r.round.Move(ctx, pod, reason)
			}
		}
	}
	return nil
}

// among selects pods by namespace and labels.
func among(s descheduler.Scope) func(*corev1.Pod) bool {
	selected := selector(s.LabelSelector)
	return func(p *corev1.Pod) bool {
		return inNamespaces(s.Namespaces, p.Namespace) && selected.Matches(labels.Set(p.Labels))
	}
}

// selector makes one of a checked selector; nil selects all.
func selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	made, err := metav1.LabelSelectorAsSelector(s)
	if err != nil { // the API server, or the reader of the configuration, has refused it
		return labels.Nothing()
	}
	return made
}

func inNamespaces(n descheduler.Namespaces, name string) bool {
	return (len(n.Include) == 0 || slices.Contains(n.Include, name)) && !slices.Contains(n.Exclude, name)
}

// ownedBy reports whether a pod has an owner of one of these kinds.
func ownedBy(p *corev1.Pod, kinds []string) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return slices.Contains(kinds, o.Kind)
	})
}
