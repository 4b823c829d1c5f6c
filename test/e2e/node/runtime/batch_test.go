//go:build e2e_node

package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// batch is a BE pod whose only container requests batch resources instead of CPU and memory.
func batch(name string, options ...podOption) *corev1.Pod {
	p := pod(name, withClass("BE"))
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	for _, o := range options {
		o(p)
	}
	return p
}

// Container runtimes and kubelets know nothing of batch resources: the agent alone gives them to the kernel. Where no
// runtime names containers to it, it knows the pod's group only.
func TestABatchPodHasTheWeightAndTheLimitsOfItsBatchResources(t *testing.T) {
	for _, route := range append(paths, byReconcile) {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			b, c := w.run(batch("limited",
				object.Requests("kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "64Mi"),
				object.Limits("kubernetes.io/batch-cpu", "1500", "kubernetes.io/batch-memory", "100000000")))
			groups := []string{c.Group, w.s.PodGroup(b.Pod)}
			if route == byReconcile {
				groups = groups[1:]
			}
			for _, group := range groups {
				w.file(group, "cpu.shares", "512", "cpu.weight", "20")
				w.file(group, "cpu.cfs_quota_us", "150000", "cpu.max", "150000 100000")
				w.file(group, "memory.limit_in_bytes", "99999744", "memory.max", "99999744")
			}
			if route == byReconcile {
				return
			}
			_, free := w.run(batch("free", object.Requests("kubernetes.io/batch-cpu", "2k")))
			w.file(free.Group, "cpu.shares", "2048", "cpu.weight", "79")
			w.file(free.Group, "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")

			// What the kubelet knows of the container is the least weight.
			testkit.Check(t, c.Update(t.Context(), &runtimeapi.LinuxContainerResources{CpuShares: 2}))
			w.file(c.Group, "cpu.shares", "512", "cpu.weight", "20")
			w.file(c.Group, "cpu.cfs_quota_us", "150000", "cpu.max", "150000 100000")
		})
	}
}

// Where another webhook or a copy of a pod has lost the resources, the annotation still says them.
func TestTheAnnotationSaysTheBatchResourcesOfAContainerWithoutThem(t *testing.T) {
	for _, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			const amounts = `{"kubernetes.io/batch-cpu":"1k"}`
			_, c := w.run(batch("copied", object.Annotation(annotation.ExtendedResourceSpecKey,
				`{"containers":{"main":{"requests":`+amounts+`,"limits":`+amounts+`}}}`)))
			w.file(c.Group, "cpu.shares", "1024", "cpu.weight", "39")
			w.file(c.Group, "cpu.cfs_quota_us", "100000", "cpu.max", "100000 100000")
		})
	}
}
