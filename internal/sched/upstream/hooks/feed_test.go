package hooks

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// innerCache fails the test when the store is behind.
type innerCache struct {
	schedulercache.Cache
	check func()
}

func (c *innerCache) AddPod(klog.Logger, *corev1.Pod) error           { c.check(); return nil }
func (c *innerCache) UpdatePod(_ klog.Logger, _, _ *corev1.Pod) error { c.check(); return nil }
func (c *innerCache) RemovePod(klog.Logger, *corev1.Pod) error        { c.check(); return nil }
func (c *innerCache) RemoveNode(klog.Logger, *corev1.Node) error      { c.check(); return nil }
func (c *innerCache) AddNode(klog.Logger, *corev1.Node) *framework.NodeInfo {
	c.check()
	return nil
}

func (c *innerCache) UpdateNode(klog.Logger, *corev1.Node, *corev1.Node) *framework.NodeInfo {
	c.check()
	return nil
}

func (c *innerCache) GetPod(*corev1.Pod) (*corev1.Pod, error) { return nil, errors.New("no such pod") }

func TestAccountsHearOfEveryEventBeforeTheSchedulersCache(t *testing.T) {
	store := kube.NewStore()
	inner := &innerCache{}
	c := (&Changes{}).Watch(inner, store)
	logger := klog.Background()
	pod := object.Pod("p", object.Class("LSR"), object.On("n"), object.CPUs("0-1"))
	other := pod.DeepCopy()
	other.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"2-3"}`
	node := object.Node("n", nil)
	labelled := object.Node("n", map[string]string{annotation.NodeNUMATopologyPolicy: "Restricted"})
	held := func(want string) func() {
		return func() {
			e, _ := store.View("n").Entry("p")
			if e.CPUList != want {
				t.Errorf("the account holds %q, want %q", e.CPUList, want)
			}
		}
	}
	inner.check = func() {
		if !slices.Contains(store.Nodes(), "n") {
			t.Error("the account does not know the node")
		}
	}
	c.AddNode(logger, node)
	inner.check = held("0-1")
	_ = c.AddPod(logger, pod)
	inner.check = held("2-3")
	_ = c.UpdatePod(logger, pod, other)
	inner.check = func() {
		if !store.AnyConstrained() {
			t.Error("the account does not know the label")
		}
	}
	c.UpdateNode(logger, node, labelled)
	inner.check = held("")
	_ = c.RemovePod(logger, other)
	inner.check = func() {
		if store.Known("n") != nil {
			t.Error("the account outlives its node")
		}
	}
	_ = c.RemoveNode(logger, node)
}
