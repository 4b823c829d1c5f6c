package app

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// gpuLoads returns the rows of `tenon top gpu`, by node.
func (a *asked) gpuLoads(nodes int) map[string]view.GPULoad {
	a.t.Helper()
	used := map[string]occupancy.Room{}
	for _, o := range a.config.InformerFactory.Core().V1().Pods().Informer().GetStore().List() {
		pod, _ := o.(*corev1.Pod)
		room, asks := used[pod.Spec.NodeName], describe.Requests(pod)
		room.MilliCPU += asks.MilliCPU
		room.MemoryBytes += asks.MemoryBytes
		room.Pods += asks.Pods
		used[pod.Spec.NodeName] = room
	}
	loads := map[string]view.GPULoad{}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		known, _ := a.store.Node(name)
		loads[name], _ = describe.GPULoad(known, used[name], convert.NodeHealth(known.Object))
	}
	return loads
}

// drawPartitions returns a policy for the partitions of a node and a table of them, which may overlap and need not have
// every size. "" is a node without.
func drawPartitions(r *rapid.T, gpus int) (policy, table string) {
	policies := []string{"", annotation.PartitionHonor, annotation.PartitionPrefer}
	policy = rapid.SampledFrom(policies).Draw(r, "partitions")
	minors := make([]int, gpus)
	for i := range minors {
		minors[i] = i
	}
	all := map[string][]map[string]any{}
	for size := 1; size <= gpus; size *= 2 {
		for range rapid.IntRange(0, 4).Draw(r, "rows") {
			all[fmt.Sprint(size)] = append(all[fmt.Sprint(size)], map[string]any{
				"minors":          rapid.Permutation(minors).Draw(r, "minors")[:size],
				"allocationScore": fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "score")),
			})
		}
	}
	text, _ := json.Marshal(all)
	return policy, string(text)
}

// TestWhatTopSaysOfGPUsIsWhatCapacityCounts compares FIT1 to FIT8 of `tenon top gpu` with a count of such pods, on
// nodes with topology policies, overlapping partitions, few pods left, GPUs that are shared or unhealthy, and cordons.
func TestWhatTopSaysOfGPUsIsWhatCapacityCounts(t *testing.T) {
	t.Parallel()
	policies := []string{"", "", "BestEffort", "Restricted", "SingleNUMANode"}
	outcomes := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		a := newAsked(t)
		nodes := rapid.IntRange(1, 4).Draw(r, "nodes")
		for i := range nodes {
			name, labels := fmt.Sprintf("n%d", i), map[string]string{}
			if policy := rapid.SampledFrom(policies).Draw(r, "policy"); policy != "" {
				labels[annotation.NodeNUMATopologyPolicy] = policy
			}
			m := grid.Machine{
				Sockets: rapid.IntRange(1, 2).Draw(r, "sockets"), Nodes: 1,
				Cores: rapid.IntRange(2, 8).Draw(r, "cores"), Threads: 2,
			}
			gpus := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(r, "gpus")
			a.equip(name, m, labels, gpus, rapid.IntRange(1, 12).Draw(r, "pods"))
			unhealthy := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(r, "unhealthy")
			policy, table := drawPartitions(r, gpus)
			a.putGPUs(name, gpus, m.Sockets, unhealthy, policy, table)
		}
		for i := range rapid.IntRange(0, 8).Draw(r, "bound") {
			a.schedule(drawPod(r, fmt.Sprintf("bound-%d", i)))
		}
		for i := range nodes {
			if rapid.IntRange(0, 5).Draw(r, "cordon") > 0 {
				continue
			}
			known, _ := a.store.Node(fmt.Sprintf("n%d", i))
			cordoned := known.Object.DeepCopy()
			cordoned.Spec.Unschedulable = true
			a.core.Nodes.UpdateNode(klog.Background(), known.Object, cordoned)
			a.store.PutNode(cordoned)
		}
		loads := a.gpuLoads(nodes)
		for _, load := range loads {
			for _, s := range load.Stranded {
				outcomes[s.Cause]++
			}
		}
		for _, size := range []string{"1", "2", "4", "8"} {
			pod := exclusive("next-"+size, size, object.Class("LS"),
				object.Both("cpu", size, "memory", size+"Gi", "koordinator.sh/gpu", size+"00"))
			a.add(pod)
			answer, err := a.answer(fmt.Sprintf(`{"ask":{"mode":"count","pods":["default/%s"]}}`, pod.Name))
			if err != nil {
				r.Fatal(err)
			}
			text, _ := json.Marshal(answer.Capacity)
			for _, g := range answer.Capacity.Groups {
				for _, node := range g.Nodes {
					if got := loads[node].Fit[size]; got != g.Fit {
						r.Errorf("FIT%s of %s is %d, capacity counts %d: %+v\n%s", size, node, got, g.Fit,
							loads[node], text)
					}
					if g.Fit > 0 {
						outcomes["fit "+size]++
					}
				}
			}
		}
	})
	t.Log(outcomes)
	for _, want := range []string{
		"fit 1", "fit 2", "fit 4", "fit 8", "unhealthy", "cordon", "cpu", "numa", "pods", "partition",
	} {
		if outcomes[want] == 0 && !testing.Short() {
			t.Errorf("no case of %q: the test proves little", want)
		}
	}
}
