package ranking

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// Memory is how many bytes the rankings of a profile may take by default.
const Memory = 64 << 20

// Config is what a profile is used for. It does not change after the first pod.
type Config struct {
	// ByName chooses the first name among nodes with equal scores. Without it they are chosen round-robin.
	ByName bool
	// DryRun is set for a profile whose pods may not exist: nothing is learnt from them.
	DryRun bool
	// Memory is how many bytes the rankings and spreads may take; the least recently used ones go. Two always remain.
	Memory int
	// Bindings counts those of the profile; nil counts none.
	Bindings *hooks.Bindings
	// Rejections has the nodes that pods of the profile are not to be tried on; nil has none.
	Rejections *Rejections
	// Rooms runs the filters inside of room that is kept for the pod; nil where none is.
	Rooms Rooms
	// Together is asked about pods that start together; nil where there are none.
	Together Together
	// Cycle sees what the profile does, where it is recorded or replayed; nil where it is not.
	Cycle Cycle
}

// Together knows the pods that start together.
type Together interface {
	// Planned returns the node that a pod is to have, "" for one that may have any.
	Planned(pod *corev1.Pod) (node string)
	// Within names the nodes among which the pod of the cycle is placed, "" for all.
	Within() string
	// Alone reports whether a pod starts without others: it may have victims of its own.
	Alone(pod *corev1.Pod) bool
	// IsMember reports whether a pod is of a gang, started or not.
	IsMember(pod *corev1.Pod) bool
	// PostFilter returns what preemption makes of a pod that does not fit and starts with others.
	PostFilter(pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status)
	// Hold returns the node that is held for a pod that starts alone and does not fit, after a PostFilter that has
	// found no victims; "" for none.
	Hold(ctx context.Context, pod *corev1.Pod, found *fwk.PostFilterResult) (node string)
	// Waits is called when a reserved pod waits for a permit.
	Waits(pod *corev1.Pod)
}

// Rooms knows the room on nodes that is kept for some pods.
type Rooms interface {
	// Filter runs the filters of f on a node as the pod finds it.
	Filter(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	) *fwk.Status
	// Concern reports whether the pod of the cycle may use some of it.
	Concern(state fwk.CycleState) bool
	// Explain completes what the filters of f by themselves find on a node. find returns what they find in that room.
	Explain(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
		findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding) []why.Finding
}

// Cycle sees what a profile does in the cycle of a pod.
type Cycle interface {
	// Seed returns the number of the cycle by which Lot chooses among nodes with equal scores.
	Seed() uint32
	// Begun is called where a node is looked for, Sampled where not all nodes were looked at, with those that were
	// scored.
	Begun()
	Sampled(nodes func() []string)
	// Unranked reports whether the pod of the cycle is evaluated on nodes anew.
	Unranked() bool
	// Reserved is called after a reservation, with its status, Unreserving before a reservation is taken back.
	Reserved(state fwk.CycleState, pod *corev1.Pod, status *fwk.Status)
	Unreserving(state fwk.CycleState, pod *corev1.Pod)
}
