package snapshot

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestACopyHasTheNodesOfItsLastUpdate(t *testing.T) {
	t.Parallel()
	metrics.Register() // the cache cannot do without
	c := cache.New(t.Context(), nil, false, false)
	s := NewCopy(c)
	nodes := func() int {
		all, err := s.List()
		testkit.Check(t, err)
		return len(all)
	}
	c.AddNode(klog.Background(), object.Node("n", nil, "cpu", "1"))
	if nodes() != 0 {
		t.Error("it has a node before its first update")
	}
	testkit.Check(t, s.Update(klog.Background()))
	here, other := object.Pod("here", object.On("n"), object.UID("1")), object.Pod("other", object.UID("2"))
	testkit.Check(t, c.AddPod(klog.Background(), here))
	if n, err := s.Get("n"); err != nil || nodes() != 1 || len(n.GetPods()) != 0 {
		t.Errorf("it has %d nodes, want one without pods: %v", nodes(), err)
	}
	for pod, want := range map[*corev1.Pod]bool{here: true, other: false} {
		if got := s.IsPlaced(pod); got != want {
			t.Errorf("pod %s is placed: %t", pod.Name, got)
		}
	}
	testkit.Check(t, s.Update(klog.Background()))
	if n, err := s.Get("n"); err != nil || len(n.GetPods()) != 1 {
		t.Errorf("it lacks the pod of the last update: %v", err)
	}
}
