package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// schedule binds a pod where the scheduler's own cycle puts it, and returns the node; "" for none.
func (a *asked) schedule(pod *corev1.Pod) (node string) {
	a.t.Helper()
	info, err := framework.NewPodInfo(pod.DeepCopy())
	if err != nil {
		a.t.Fatal(err)
	}
	queued := &framework.QueuedPodInfo{PodInfo: info}
	core := *a.core.Scheduler
	core.NextEntity = func(klog.Logger) (framework.QueuedEntityInfo, error) { return queued, nil }
	core.FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status,
		*fwk.NominatingInfo, time.Time,
	) {
	}
	bound := pod.DeepCopy()
	core.SchedulePod = func(ctx context.Context, f framework.Framework, cs fwk.CycleState,
		queued *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		result, err := a.core.SchedulePod(ctx, f, cs, queued)
		if err != nil {
			return result, err
		}
		if status := f.RunReservePluginsReserve(ctx, cs, queued.Pod, result.SuggestedHost); !status.IsSuccess() {
			a.t.Errorf("pod %s: node %s passes the filters and refuses to reserve: %v", pod.Name, result.SuggestedHost,
				status.AsError())
			return result, errors.New("nothing is reserved")
		}
		node = result.SuggestedHost
		if bound.Annotations == nil {
			bound.Annotations = map[string]string{}
		}
		maps.Copy(bound.Annotations, placement.Read(cs).Record())
		f.RunReservePluginsUnreserve(ctx, cs, queued.Pod, node)
		return result, errors.New("the decision is known")
	}
	core.ScheduleOne(a.t.Context())
	if node != "" {
		bound.Spec.NodeName = node
		a.add(bound)
		a.quotas.PutPod(bound)
	}
	return node
}

// equip adds a node with GPUs.
func (a *asked) equip(name string, m grid.Machine, labels map[string]string, gpus, pods int) {
	a.t.Helper()
	labels[corev1.LabelHostname] = name
	cpus := m.Sockets * m.Nodes * m.Cores * m.Threads
	amounts := []string{"cpu", fmt.Sprint(cpus), "memory", fmt.Sprintf("%dGi", 2*cpus), "pods", fmt.Sprint(pods)}
	if gpus > 0 {
		percent := fmt.Sprint(100 * gpus)
		amounts = append(amounts, "koordinator.sh/gpu-core", percent, "koordinator.sh/gpu-memory-ratio", percent,
			"koordinator.sh/gpu-memory", fmt.Sprintf("%dGi", 8*gpus), "koordinator.sh/gpu", fmt.Sprint(100*gpus))
	}
	node := object.Node(name, labels, amounts...)
	a.core.Nodes.AddNode(klog.Background(), node)
	a.store.PutNode(node)
	a.store.PutTopology(object.Topology(name, m.Build(a.t), nil))
	if gpus > 0 {
		a.putGPUs(name, gpus, m.Sockets*m.Nodes, 0, "", "")
	}
}

// putGPUs reports the GPUs of a node, spread over its NUMA nodes. The first of them are unhealthy.
// The policy of partitions is the label's, and the table the annotation's.
func (a *asked) putGPUs(name string, gpus, numaNodes, unhealthy int, policy, table string) {
	a.t.Helper()
	var devices []string
	for i := range gpus {
		devices = append(devices, fmt.Sprintf(`{"type":"gpu","id":"GPU-%s-%d","minor":%d,"health":%t,"resources":`+
			`{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100",`+
			`"koordinator.sh/gpu-memory":"8Gi"},`+
			`"topology":{"socketID":0,"nodeID":%d}}`, name, i, i, i >= unhealthy, i%numaNodes))
	}
	meta := map[string]any{"name": name, "annotations": map[string]string{annotation.DeviceModeKey: "Own"}}
	if policy != "" {
		meta["labels"] = map[string]string{annotation.GPUPartitionPolicyLabel: policy}
		meta["annotations"].(map[string]string)[annotation.GPUPartitionsKey] = table
	}
	metadata, err := json.Marshal(meta)
	testkit.Check(a.t, err)
	d, err := kube.ReadDevice(fmt.Appendf(nil, `{"metadata":%s,"spec":{"devices":[%s]}}`, metadata,
		strings.Join(devices, ",")))
	if err != nil {
		a.t.Fatal(err)
	}
	a.store.PutDevice(d)
}

// countedReserves are cycles that count the pods that questions reserve.
type countedReserves struct {
	whatif.Cycles
	n atomic.Int64
}

func (c *countedReserves) Reserve(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node string,
) (func() map[string]string, string, *fwk.Status) {
	c.n.Add(1)
	return c.Cycles.Reserve(ctx, f, cs, pod, node)
}

// reserves counts the pods that questions reserve from now on.
func (a *asked) reserves() *atomic.Int64 {
	c := &countedReserves{Cycles: a.whatIf.Cycles}
	a.whatIf.Cycles = c
	return &c.n
}

// drawCluster makes a cluster of a few nodes with pods that the scheduler placed.
func drawCluster(t *testing.T, r *rapid.T) *asked {
	a := newAsked(t)
	policies := []string{"", "BestEffort", "Restricted", "SingleNUMANode"}
	nodes := 0
	for range rapid.IntRange(1, 3).Draw(r, "kinds of nodes") {
		policy := rapid.SampledFrom(policies).Draw(r, "policy")
		m := grid.Machine{
			Sockets: rapid.IntRange(1, 2).Draw(r, "sockets"), Nodes: rapid.IntRange(1, 2).Draw(r, "numa"),
			Cores: rapid.IntRange(2, 4).Draw(r, "cores"), Threads: 2,
		}
		gpus := rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(r, "gpus")
		pods := rapid.IntRange(4, 20).Draw(r, "pods")
		for range rapid.IntRange(1, 3).Draw(r, "equal nodes") {
			labels := map[string]string{corev1.LabelTopologyZone: rapid.SampledFrom([]string{"x", "y"}).Draw(r, "zone")}
			if policy != "" {
				labels[annotation.NodeNUMATopologyPolicy] = policy
			}
			a.equip(fmt.Sprintf("n%d", nodes), m, labels, gpus, pods)
			nodes++
		}
	}
	for i := range rapid.IntRange(0, 5).Draw(r, "bound") {
		a.schedule(drawPod(r, fmt.Sprintf("bound-%d", i)))
	}
	return a
}

// drawPod draws a pod of a shared pool, one with CPUs of its own, or one with GPUs.
func drawPod(r *rapid.T, name string) *corev1.Pod {
	cpus := fmt.Sprint(rapid.IntRange(1, 4).Draw(r, "half of the CPUs"))
	exclusiveCPUs := fmt.Sprint(2 * rapid.IntRange(1, 3).Draw(r, "cores"))
	var options []object.PodOption
	switch rapid.SampledFrom([]string{"shared", "exclusive", "aligned", "gpu", "part"}).Draw(r, "kind") {
	case "shared":
		options = append(options, object.Class("LS"), object.Both("cpu", cpus, "memory", "1Gi"))
	case "exclusive":
		options = append(options, object.Both("cpu", exclusiveCPUs, "memory", "1Gi"))
	case "aligned":
		options = append(options, object.Both("cpu", exclusiveCPUs, "memory", "2Gi"),
			object.Annotation(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`))
	case "gpu":
		gpus := fmt.Sprint(100 * rapid.IntRange(1, 2).Draw(r, "GPUs"))
		options = append(options, object.Both("cpu", exclusiveCPUs, "memory", "1Gi", "koordinator.sh/gpu", gpus))
	default:
		options = append(options, object.Both("cpu", exclusiveCPUs, "memory", "1Gi", "koordinator.sh/gpu", "40"))
	}
	return exclusive(name, "2", options...)
}

// TestCapacityIsWhatRepeatedSchedulingPlaces counts pods, and lets the scheduler bind one after the other.
func TestCapacityIsWhatRepeatedSchedulingPlaces(t *testing.T) {
	outcomes := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		a := drawCluster(t, r)
		pod := drawPod(r, "next")
		rule := rapid.SampledFrom([]string{"", "", "port", "apart", "spread", "quota"}).Draw(r, "rule")
		switch rule {
		case "port":
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: "TCP"}}
		case "apart":
			pod.Labels["app"] = "next"
			key := rapid.SampledFrom([]string{corev1.LabelHostname, corev1.LabelTopologyZone}).Draw(r, "key")
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey:   key,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "next"}},
				}},
			}}
		case "spread":
			pod.Labels["app"] = "next"
			pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "next"}},
			}}
		case "quota":
			pod.Labels[annotation.QuotaName] = "team"
			a.quotas.PutNode(object.Node("n0", nil, "cpu", "96"))
			a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
				corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(rapid.IntRange(0, 20).Draw(r, "max")))}))
		}
		a.add(pod)
		a.quotas.PutPod(pod)
		members := rapid.IntRange(0, 3).Draw(r, "members")
		versions := a.versions()
		reserved := a.reserves()
		got, err := a.answer(fmt.Sprintf(`{"ask":{"mode":"count","pods":["default/next"],"members":%d}}`, members))
		if err != nil {
			r.Fatal(err)
		}
		if after := a.versions(); !maps.Equal(versions, after) {
			r.Fatalf("the question changed accounts from %v to %v", versions, after)
		}
		c := got.Capacity
		a.quotas.RemovePod(pod)
		want, each := 0, map[string]int{}
		for ; want < 300; want++ {
			next := pod.DeepCopy()
			next.Name = fmt.Sprintf("next-%d", want)
			next.UID = types.UID("u-" + next.Name)
			a.quotas.PutPod(next)
			node := a.schedule(next)
			if node == "" {
				a.quotas.RemovePod(next)
				break
			}
			each[node]++
		}
		text, _ := json.Marshal(c)
		if c.Pods != want || c.Bound != "" {
			r.Fatalf("%d pods fit by the count, the scheduler placed %d: %v\n%s", c.Pods, want, each, text)
		}
		if c.Gang != nil && c.Gang.Fit != want/members || (c.Gang == nil) != (members == 0) {
			r.Errorf("gangs of %d among %d pods: got %+v", members, want, c.Gang)
		}
		room := 0
		for _, g := range c.Groups {
			for _, node := range g.Nodes {
				if room += g.Fit; c.Quota == nil && (rule == "" || rule == "port") && g.Fit != each[node] {
					r.Errorf("node %s has room for %d by the count, the scheduler placed %d", node, g.Fit, each[node])
				}
			}
			if g.Lacks == nil {
				r.Errorf("nothing says why %v take no more than %d", g.Nodes, g.Fit)
			}
		}
		if room != c.Room || len(c.Limits) == 0 || (c.Room > c.Pods) != (c.Quota != nil) {
			r.Errorf("not consistent: %s", text)
		}
		if (len(got.Unschedulable) == 1) != (c.Room == 0) {
			r.Errorf("room for %d pods, and %d explanations", c.Room, len(got.Unschedulable))
		}
		outcomes[fmt.Sprintf("%s, fits %t", rule, want > 0)]++
		if int(reserved.Load()) < c.Room {
			outcomes["equal nodes"]++
		}
	})
	t.Log(outcomes)
	if outcomes["equal nodes"] == 0 {
		t.Error("no case in which nodes are counted for each other")
	}
	for _, rule := range []string{"", "port", "apart", "spread", "quota"} {
		if outcomes[rule+", fits true"] == 0 {
			t.Errorf("no case with rule %q in which a pod fits: the test proves little", rule)
		}
	}
}

// TestOneOfEqualNodesIsCounted: it is filled for all of them, and what each has of its own stays.
func TestOneOfEqualNodesIsCounted(t *testing.T) {
	t.Parallel()
	const nodes = 40
	machine := grid.Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 2}
	a := newAsked(t)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		a.equip(name, machine, map[string]string{"rack": name}, 8, 110)
		a.add(bound(fmt.Sprintf("p%d", i), name, list(0, 2)))
	}
	a.add(bound("more", "n7", list(2, 2)))
	a.add(exclusive("next", "4", object.Both("cpu", "4", "memory", "1Gi", "koordinator.sh/gpu", "100")))
	reserved := a.reserves()
	got, err := a.answer(`{"ask":{"mode":"count","pods":["default/next"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := got.Capacity
	if len(c.Groups) != 2 || len(c.Groups[0].Nodes) != nodes-1 || c.Groups[1].Nodes[0] != "n7" ||
		c.Groups[0].Fit <= c.Groups[1].Fit {
		t.Fatalf("got %+v", c.Groups)
	}
	if n, want := int(reserved.Load()), c.Groups[0].Fit+c.Groups[1].Fit; n < want || n > want+2 {
		t.Errorf("%d pods were reserved to count %d, want %d: one node of each kind", n, c.Room, want)
	}
	if lacks := c.Groups[0].Lacks; lacks == nil || !slices.Contains(c.Groups[0].Nodes, lacks.Example) {
		t.Errorf("the first group lacks %+v", lacks)
	}
}
