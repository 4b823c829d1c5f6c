package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gpuNode is a node with GPUs ID-0, ID-1, … that Tenon gives out.
func gpuNode(name string, cpus, gpus int) string {
	var list []string
	for i := range gpus {
		list = append(list, fmt.Sprintf("{type: gpu, id: %s-%d, minor: %[2]d, health: true, resources: "+
			"{koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 80Gi}}", name, i))
	}
	d := strings.Replace(deviceOf(name, strings.Join(list, ", ")), "labels:",
		"annotations: {node.tenon.sh/device-mode: Own}, labels:", 1)
	return cpuNode(name, cpus) + "\n" + d + "\n---"
}

// gpuPod asks for CPUs and for percent of GPUs; more is of its spec.
func gpuPod(name string, cpus, percent int, more string) string {
	asked := fmt.Sprintf("{cpu: %d, koordinator.sh/gpu: %d}", cpus, percent)
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i, "+
		"resources: {requests: %s, limits: %[2]s}}]%s}}\n---", name, asked, more)
}

// at is where a pod is, and on which GPUs.
func at(p Pod) string {
	var ids []string
	for _, d := range p.Devices["gpu"] {
		ids = append(ids, d.ID)
	}
	return p.Node + " " + strings.Join(ids, ",")
}

// TestPodsWithoutDevicesKeepOffNodesWithGPUs has a node with 8 GPUs and 112 CPUs beside two of 96 CPUs.
func TestPodsWithoutDevicesKeepOffNodesWithGPUs(t *testing.T) {
	t.Parallel()
	pods := func(n, cpus int) string {
		var in strings.Builder
		for i := range n {
			in.WriteString(cpuPod(fmt.Sprintf("p%02d", i), cpus, "", ""))
		}
		return in.String()
	}
	for name, c := range map[string]struct {
		pods        string
		least, most int // pods of p on the node with GPUs
	}{
		"4 of 2 CPUs":                               {pods(4, 2), 0, 0},
		"16 of 6 CPUs":                              {pods(16, 6), 0, 0},
		"16 of 6 CPUs after a pod with a GPU":       {gpuPod("g", 4, 100, ", priority: 9") + pods(16, 6), 0, 0},
		"as many as the nodes without GPUs have":    {pods(2*16, 6), 0, 0},
		"more than the nodes without GPUs have":     {pods(2*16+3, 6), 3, 3},
		"all GPUs are allocated: no worse than any": {gpuPod("g", 4, 800, ", priority: 9") + pods(12, 6), 3, 6},
	} {
		in := gpuNode("hgx", 112, 8) + cpuNode("xeon-0", 96) + cpuNode("xeon-1", 96)
		r, _ := simulate(t, in+c.pods, "-")
		on := 0
		for _, p := range r.Pods {
			if p.State != Scheduled {
				t.Errorf("%s: %s is %s", name, p.Name, p.State)
			}
			if p.Node == "hgx" && p.Name != "g" {
				on++
			}
		}
		if on < c.least || on > c.most {
			t.Errorf("%s: %d pods without devices on the node with GPUs, want %d to %d", name, on, c.least, c.most)
		}
	}
}

// Pods of one class go by a ranking of the nodes, which keeps scores, and those of different classes by a comparison of
// all nodes. What has been learnt since changes both alike.
func TestPodsWithDevicesGoToTheSameNodesWithAndWithoutARanking(t *testing.T) {
	var nodes strings.Builder
	for i := range 12 {
		nodes.WriteString(gpuNode(fmt.Sprintf("n%02d", i), 24+8*(i%3), 4))
	}
	places := func(priority func(i int) int) (list []string) {
		var in strings.Builder
		in.WriteString(nodes.String())
		for i := range 110 {
			percent, cpus := []int{30, 70, 100, 50, 200}[i%5], []int{2, 4, 8, 6, 16}[i%5]
			in.WriteString(gpuPod(fmt.Sprintf("p%03d", i), cpus, percent, fmt.Sprintf(", priority: %d", priority(i))))
		}
		r, _ := simulate(t, in.String(), "-")
		for _, p := range r.Pods {
			list = append(list, p.Name+" "+at(p))
		}
		return list
	}
	ranked := places(func(int) int { return 0 })
	if diff := cmp.Diff(places(func(i int) int { return 1000 - i }), ranked); diff != "" {
		t.Errorf("with rankings (-without +with):\n%s", diff)
	}
	if diff := cmp.Diff(ranked, places(func(int) int { return 0 })); diff != "" {
		t.Errorf("a second time (-first +second):\n%s", diff)
	}
	if n := strings.Count(strings.Join(ranked, "\n"), "-"); n < 55 {
		t.Errorf("%d GPUs given to pods, want most", n)
	}
}

// running are pods with GPUs of a node that says nothing of devices.
func running(percent int) string {
	in := cpuNode("m", 400)
	for i := range 60 {
		in += gpuPod(fmt.Sprintf("running-%d", i), 2, percent, ", nodeName: m")
	}
	return in
}

// What is left of a GPU depends on what pods ask for, those that run as well.
func TestAShareGoesToTheGPUThatLeavesTheMost(t *testing.T) {
	for name, tc := range map[string]struct {
		demand int
		want   string
	}{
		// 50 and 70 percent hold three of them, 20 and 100 two.
		"35 percent": {35, "x x-1"},
		"whole GPUs": {100, "x x-0"},
	} {
		in := gpuNode("x", 64, 2) + "\n" +
			holder("old", "x", `{"gpu":[{"minor":0,"id":"x-0","resources":{"koordinator.sh/gpu-core":"50",`+
				`"koordinator.sh/gpu-memory-ratio":"50"}}]}`) + "\n---"
		r, _ := simulate(t, in+running(tc.demand)+gpuPod("p", 2, 30, ""), "-")
		if got := at(stateOf(r, "p")); got != tc.want {
			t.Errorf("%s: the pod is on %q, want %q", name, got, tc.want)
		}
	}
}

// A pod that can use any GPU leaves those of the model that other pods are limited to, by whatever these select nodes.
func TestAPodLeavesTheModelThatOtherPodsAreLimitedTo(t *testing.T) {
	model := func(node, name string) string {
		labels := "labels: {nvidia.com/gpu.product: " + name + ", pool: of-" + name + ", "
		return strings.NewReplacer("labels: {kubernetes", labels+"kubernetes",
			"labels: {node.koordinator.sh/gpu-vendor", "labels: {node.koordinator.sh/gpu-model: "+name+
				", node.koordinator.sh/gpu-vendor").Replace(gpuNode(node, 64, 2))
	}
	affinity := func(terms string) string {
		return ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
			terms + "]}}}"
	}
	term := func(key, operator, values string) string {
		return "{matchExpressions: [{key: " + key + ", operator: " + operator + ", values: [" + values + "]}]}"
	}
	either := affinity(term("pool", "In", "of-H100") + ", " + term("pool", "In", "of-L4"))
	for name, tc := range map[string]struct{ limit, want string }{
		"no limit":                    {"", "a a-0"},
		"the product":                 {", nodeSelector: {nvidia.com/gpu.product: H100}", "b b-0"},
		"the product of the other":    {", nodeSelector: {nvidia.com/gpu.product: L4}", "a a-0"},
		"the pool of a namespace":     {", nodeSelector: {pool: of-H100}", "b b-0"},
		"an affinity":                 {affinity(term("nvidia.com/gpu.product", "In", "H100, H200")), "b b-0"},
		"an affinity without another": {affinity(term("pool", "NotIn", "of-L4")), "b b-0"},
		"one of two terms":            {either, "a a-0"},
		"a label of no node":          {", nodeSelector: {pool: of-H200}", "a a-0"},
	} {
		in := model("a", "H100") + model("b", "L4") + cpuNode("m", 400)
		for i := range 60 {
			in += gpuPod(fmt.Sprintf("running-%d", i), 2, 100, tc.limit+", nodeName: m")
		}
		r, _ := simulate(t, in+gpuPod("p", 2, 100, ""), "-")
		if got := at(stateOf(r, "p")); got != tc.want {
			t.Errorf("%s: the pod is on %q, want %q", name, got, tc.want)
		}
	}
}

// CPUs on a node with GPUs are kept for pods that use the GPUs, where the node has no more of them than they need.
func TestPodsWithoutDevicesLeaveGPUsTheirCPUs(t *testing.T) {
	busy := cpuPod("busy", 10, "", ", nodeName: c")
	for _, tc := range []struct{ node, want string }{
		{gpuNode("g", 16, 2), "c"},
		{cpuNode("g", 16), "g"}, // the emptier one
	} {
		r, _ := simulate(t, tc.node+cpuNode("c", 16)+busy+cpuPod("p", 4, "", ""), "-")
		if got := stateOf(r, "p"); got.Node != tc.want {
			t.Errorf("the pod is on node %q (%v), want %q", got.Node, got.Reasons, tc.want)
		}
	}
}

// Replicas that share GPUs go together, although stock prefers the emptier node and spreads replicas by default.
func TestReplicasThatShareAGPUGoTogether(t *testing.T) {
	const replicas = "\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r}, spec: {replicas: 2, selector: " +
		"{matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, " +
		"resources: {requests: {cpu: 1, koordinator.sh/gpu: 50}, limits: {koordinator.sh/gpu: 50}}}]}}}}\n---"
	r, _ := simulate(t, gpuNode("a", 64, 2)+gpuNode("b", 64, 2)+replicas+running(100), "-")
	first, second := at(stateOf(r, "r-0")), at(stateOf(r, "r-1"))
	if first != second || first != "a a-0" {
		t.Errorf("replicas are on %q and %q, want one GPU", first, second)
	}
}
