package convert

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
)

// NodeHealth returns the health of a node as its object has it, without its agent.
func NodeHealth(n *corev1.Node) health.Health { return health.Of(HealthFacts(n, nil), time.Time{}) }

// HealthFacts returns what a Node and its NodeMetric, nil for none, say of the node's health.
func HealthFacts(n *corev1.Node, m *slo.NodeMetric) *health.Facts {
	f := &health.Facts{Cordoned: n.Spec.Unschedulable}
	for _, c := range n.Status.Conditions {
		f.Conditions = append(f.Conditions, health.Condition{
			Type: string(c.Type), Status: string(c.Status), Message: c.Message, Since: c.LastTransitionTime.Time,
		})
	}
	for _, t := range n.Spec.Taints {
		f.Taints = append(f.Taints, health.NodeTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if m != nil && m.Status.UpdateTime != nil {
		f.Reported, f.Period = m.Status.UpdateTime.Time, ReportInterval(m)
	}
	return f
}

// NodeLike returns a new node like another one, under a name of its own. What is about the state of the other node
// stays with it: its cordon, the taints that go away by themselves, and conditions that say that something is wrong.
func NodeLike(like *corev1.Node, name string) *corev1.Node {
	n := like.DeepCopy()
	n.Name, n.UID = name, types.UID(name)
	// A pod may select a node by its host name, which two nodes never share.
	if n.Labels[corev1.LabelHostname] != "" {
		n.Labels[corev1.LabelHostname] = name
	}
	n.Spec.Unschedulable = false
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return health.IsTemporary(t.Key) })
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		alone := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}}}
		return NodeHealth(alone).Closed != ""
	})
	return n
}
