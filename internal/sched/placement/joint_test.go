package placement_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestPodsHaveGPUsTogetherOnlyWhereSoManyAreFree: node n has two GPUs, node bare has none.
func TestPodsHaveGPUsTogetherOnlyWhereSoManyAreFree(t *testing.T) {
	t.Parallel()
	b := &bench{store: kube.NewStore(), metrics: metrics.NewKubeRegistry()}
	for _, name := range []string{"n", "bare"} {
		b.store.PutNode(object.Node(name, nil, "cpu", "16"))
	}
	b.addGPUs("n", 2)
	m := placement.NewMetrics(b.metrics.MustRegister)
	d := placement.NewDecisions(b.store, m, follow.NewTracker(b.store, follow.NewMetrics(b.metrics.MustRegister), nil))
	p := d.Join(struct{ fwk.Handle }{}, placement.DeviceShare)
	one, two := gpuPod("a", "", "LS", 1, 100), gpuPod("b", "", "LS", 1, 200)
	for name, c := range map[string]struct {
		node string
		pods []*corev1.Pod
		want bool
	}{
		"enough are free":         {"n", []*corev1.Pod{one, one.DeepCopy()}, true},
		"too few are free":        {"n", []*corev1.Pod{one, two}, false},
		"the node has no GPU":     {"bare", []*corev1.Pod{one}, false},
		"no object names a node":  {"unknown", []*corev1.Pod{one}, false},
		"no pod asks for devices": {"n", []*corev1.Pod{pod("c", "", 1)}, false},
	} {
		if link, mark := p.Joint(c.node, c.pods); link > 0 != c.want || (mark != nil) != c.want {
			t.Errorf("%s: linked with %d, and chosen: %t, want %t", name, link, mark != nil, c.want)
		}
	}
}
