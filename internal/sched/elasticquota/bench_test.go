package elasticquota

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
)

// three are amounts of three dimensions, in thousandths of a CPU and in GiB.
func three(cpu, gibibytes int64) corev1.ResourceList {
	bytes := *resource.NewQuantity(gibibytes<<30, resource.BinarySI)
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(cpu, resource.DecimalSI),
		corev1.ResourceMemory: bytes, corev1.ResourceEphemeralStorage: bytes,
	}
}

// crowd fills a fixture with a tree of ten children a parent, of which each leaf is guaranteed 200m and may use most,
// on a node that has enough for all, and five pending pods of 100m for each of 1,000 leaves.
func crowd(b *testing.B, leaves int, most corev1.ResourceList, label bool) (f *fixture, pods []*corev1.Pod) {
	b.Helper()
	f = newFixture(b, "")
	node := f.nodes[0].DeepCopy()
	node.Name, node.Status.Allocatable = "large", three(1<<30, 1<<30)
	f.quotas.PutNode(node)
	name := func(level, i int) string { return fmt.Sprintf("q%d-%d", level, i) }
	for level, n, below := 0, leaves, int64(1); n > 0; level, n, below = level+1, n/10, below*10 {
		for i := range n {
			parent := ""
			if n > 10 {
				parent = name(level+1, i/10)
			}
			q := elastic(name(level, i), parent, "0", "0", level > 0)
			if q.Spec.Min, q.Spec.Max = three(200*below, below), three(1<<30, 1<<30); level == 0 {
				q.Spec.Max = most
			}
			f.quotas.PutQuota(q)
		}
	}
	for i := range 5000 {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "x", fmt.Sprint("p", i)
		pod.UID, pod.Labels = types.UID(pod.Name), map[string]string{}
		if label {
			pod.Labels[annotation.QuotaName] = name(0, i%leaves)
		}
		pod.Generation = 1
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: three(100, 1)}}}
		f.quotas.PutPod(pod)
		pods = append(pods, pod)
	}
	return f, pods
}

// BenchmarkPod is all that the plugin and its account do for a pod that fits: it comes, is admitted, reserved, seen as
// bound and as changed, and goes, among 5,000 that wait.
func BenchmarkPod(b *testing.B) {
	for _, c := range []struct {
		quotaName string
		leaves    int
	}{{"none", 0}, {"none", 1000}, {"leaf", 1000}} {
		b.Run(fmt.Sprintf("of=%s/leaves=%d", c.quotaName, c.leaves), func(b *testing.B) {
			f, pods := crowd(b, c.leaves, three(1<<30, 1<<30), c.quotaName == "leaf")
			bound, started := make([]*corev1.Pod, len(pods)), make([]*corev1.Pod, len(pods))
			for i, pod := range pods {
				bound[i] = pod.DeepCopy()
				bound[i].Spec.NodeName = "large"
				started[i] = bound[i].DeepCopy()
				started[i].Status.Phase = corev1.PodRunning
			}
			ctx := b.Context()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				i := i % len(pods)
				cs := framework.NewCycleState()
				if _, s := f.PreFilter(ctx, cs, pods[i], nil); !s.IsSkip() {
					b.Fatal(s)
				}
				if s := f.Reserve(ctx, cs, pods[i], "large"); !s.IsSuccess() {
					b.Fatal(s)
				}
				f.quotas.PutPod(bound[i])
				f.quotas.PutPod(started[i])
				f.quotas.RemovePod(started[i])
				f.quotas.PutPod(pods[i])
			}
		})
	}
}

// BenchmarkRefused is an attempt on a pod whose quota is full, up to the end of PostFilter, and a hint for it.
func BenchmarkRefused(b *testing.B) {
	f, pods := crowd(b, 1000, three(100, 1), true)
	for _, pod := range pods[:1000] {
		bound := pod.DeepCopy()
		bound.Spec.NodeName = "large"
		f.quotas.PutPod(bound)
	}
	pods, ctx := pods[1000:], b.Context()
	attempt := func(b *testing.B, pod *corev1.Pod) {
		b.Helper()
		cs := framework.NewCycleState()
		_, refused := f.PreFilter(ctx, cs, pod, nil)
		if _, s := f.PostFilter(ctx, cs, pod, nil); refused.IsSuccess() || s.IsSuccess() {
			b.Fatal(refused, s)
		}
	}
	b.Run("attempt", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			attempt(b, pods[i%len(pods)])
		}
	})
	b.Run("hint", func(b *testing.B) {
		for _, pod := range pods {
			attempt(b, pod)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if h, err := f.hint(klog.Background(), pods[i%len(pods)], pods[0], nil); err != nil || h != fwk.QueueSkip &&
				i%len(pods) > 0 {
				b.Fatal(h, err)
			}
		}
	})
}
