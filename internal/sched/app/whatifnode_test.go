package app

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAnAddedNodeHasNoFaultOfTheOther: its cordon, and the taint of its silent kubelet, are not copied. A taint that
// people set is.
func TestAnAddedNodeHasNoFaultOfTheOther(t *testing.T) {
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	dedicated := corev1.Taint{Key: "team", Value: "x", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		taints []corev1.Taint
		want   string
	}{
		"a silent kubelet":        {[]corev1.Taint{unreachable}, "a-whatif-1"},
		"a taint that people set": {[]corev1.Taint{unreachable, dedicated}, ""},
	} {
		a := newAsked(t)
		node := object.Node("a", nil, "cpu", "32", "memory", "64Gi", "pods", "110")
		node.Spec.Unschedulable, node.Spec.Taints = true, c.taints
		a.core.Nodes.AddNode(klog.Background(), node)
		a.store.PutNode(node)
		a.store.PutTopology(object.Topology("a", grid.Worked().Build(t), nil))
		a.add(exclusive("large", "24"))
		got, err := a.answer(`{"changes":[{"addNode":{"like":"a"}}],"ask":{"pods":["default/large"]}}`)
		if err != nil {
			t.Fatal(err)
		}
		on := ""
		for _, p := range got.Placements {
			on = p.Node
		}
		if on != c.want {
			t.Errorf("%s: the pod would be on node %q, want %q", name, on, c.want)
		}
	}
}
