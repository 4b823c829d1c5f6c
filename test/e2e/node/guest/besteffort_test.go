//go:build e2e_guest

package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// batchValues runs a pod with batch resources, which the kubelet knows nothing of, under a Node that has some.
func batchValues(t *testing.T, n *node) {
	t.Helper()
	_, err := n.plane.client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"status":{
		"capacity":{"kubernetes.io/batch-cpu":"4k","kubernetes.io/batch-memory":"1Gi"},
		"allocatable":{"kubernetes.io/batch-cpu":"4k","kubernetes.io/batch-memory":"1Gi"}}}`),
		metav1.PatchOptions{}, "status")
	testkit.Check(t, err)
	var p *corev1.Pod
	for try := 0; p == nil; try++ {
		if try == 5 {
			t.Fatal("the kubelet has rejected the batch pod 5 times")
		}
		n.create(t, n.pod("batch", "BE", "", "",
			object.Requests("kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "64Mi"),
			object.Limits("kubernetes.io/batch-cpu", "1500", "kubernetes.io/batch-memory", "100000000")))
		if p = n.accepted(t, "batch"); p == nil {
			n.remove(t, "batch")
		}
	}
	await(t, "the values of the batch pod", func() error {
		own, _ := Containers(n.look(t), p.UID)
		if len(own) != 1 {
			return fmt.Errorf("%d containers run, want 1", len(own))
		}
		for name, want := range map[string]string{
			"cpu.weight": "20", "cpu.max": "150000 100000", "../cpu.max": "150000 100000", "memory.max": "99999744",
		} {
			if got := own[0].Files[name]; got != want {
				return fmt.Errorf("%s of %s is %q, want %q", name, own[0].Path, got, want)
			}
		}
		return nil
	})
	n.remove(t, "batch")
}

// accepted waits until a pod runs. It returns nil if the kubelet rejects the pod because it has not seen the amounts of
// its Node yet: the scheduler may see them first, and the controller of a pod creates it again.
func (n *node) accepted(t *testing.T, name string) (p *corev1.Pod) {
	t.Helper()
	rejected := false
	await(t, "pod "+name+" to be accepted", func() (err error) {
		p, err = n.plane.client.CoreV1().Pods(n.Name).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		rejected = strings.HasPrefix(p.Status.Reason, "OutOfkubernetes.io/batch-")
		if !rejected && len(p.Status.ContainerStatuses) == 0 {
			return errors.New(state(p))
		}
		return nil
	})
	if rejected {
		return nil
	}
	return n.running(t, name)[0]
}

// bestEffortGivesWay lets a pod use three CPUs. Best-effort pods may use what that leaves of 65 % of 16 CPUs, without
// what the system uses, and 4 CPUs in any case.
func bestEffortGivesWay(t *testing.T, n *node, r *residents) {
	t.Helper()
	const most = 16*65/100 - 3
	slos := n.plane.dynamic.Resource(slo.NodeSLOs())
	end := func() {
		testkit.Check(t, slos.Delete(context.Background(), n.Name, metav1.DeleteOptions{}))
	}
	suppress := func(policy slo.CPUSuppressPolicy) {
		o := object.NodeSLO(n.Name, policy, 65)
		testkit.Check(t, unstructured.SetNestedField(o.Object, int64(25), "spec", "resourceUsedThresholdWithBE",
			"cpuSuppressMinPercent"))
		_, err := slos.Create(t.Context(), o, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	suppress(slo.CPUSetPolicy)
	n.create(t, n.pod("load", "LS", "3", "64Mi", func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"burn"} }))
	n.running(t, "load")
	lse := allocated(t, r.lse)
	await(t, "best-effort pods to give way", func() error {
		own, _ := Containers(n.look(t), r.be.UID)
		files := own[0].Files
		cpus := parse(t, files["cpuset.cpus.effective"])
		if cpus.Len() > most || files["cpuset.cpus"] != files["cpuset.cpus.effective"] {
			return fmt.Errorf("they have %v, effective %v, want %d CPUs at most", files["cpuset.cpus"], cpus, most)
		}
		if cpus.Len() < 4 || cpus.Overlaps(&lse) {
			t.Errorf("they have %v: want 4 CPUs at least, and none of %v", cpus, lse)
		}
		for i := range n.Shape.Nodes() {
			if part := cpuset.Span(n.Shape.NodeCPUs(i)); !cpus.Overlaps(&part) {
				t.Errorf("they have %v, nothing of NUMA node %d", cpus, i)
			}
		}
		for cpu := 0; cpu < n.Shape.CPUs(); cpu += n.Shape.Threads {
			if cpus.Has(cpu) != cpus.Has(cpu+1) {
				t.Errorf("they have %v, a part of the core of CPU %d", cpus, cpu)
			}
		}
		return Confined([]wire.Group{own[0]}, r.be, cpus)
	})
	end()
	n.holds(t, r.sets(t, n))
	suppress(slo.CPUCfsQuotaPolicy)
	quota := func(want func(string) bool) {
		await(t, "the quota of best-effort pods", func() error {
			text := strings.TrimSpace(script(t, n.Guest, "cat /sys/fs/cgroup/"+n.Root()+"/besteffort/cpu.max"))
			if !want(text) {
				return fmt.Errorf("cpu.max is %q", text)
			}
			return nil
		})
	}
	quota(func(text string) bool {
		var micros int
		_, err := fmt.Sscan(text, &micros)
		return err == nil && micros >= 400_000 && micros <= most*100_000
	})
	end()
	quota(func(text string) bool { return text == "max 100000" })
	n.remove(t, "load")
}
