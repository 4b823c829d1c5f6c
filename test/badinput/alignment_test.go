package badinput

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	numaLabel      = "node.koordinator.sh/numa-topology-policy"
	numaAliasLabel = "node.koordinator.sh/numa-topology-alignment-policy"
)

// cpusOn describes a machine with n CPUs on each of the NUMA nodes, without siblings.
func cpusOn(n int, numa ...int) string {
	var cpus []string
	for i, node := range numa {
		for range n {
			id := len(cpus)
			cpus = append(cpus, fmt.Sprintf(`{"id":%d,"core":%d,"socket":%d,"node":%d}`, id, id, i, node))
		}
	}
	return `{"detail":[` + strings.Join(cpus, ",") + `]}`
}

// twoNodes has the CPUs 0-3 on NUMA node 0 and 4-7 on 1.
func twoNodes() string { return cpusOn(4, 0, 1) }

// exported is a node whose NodeResourceTopology says what is given; parts may be "".
type exported struct {
	labels string // of the Node, in YAML
	// annotations of the topology: key and value in turn.
	annotations []string
	cpus        string // twoNodes unless given
	silent      bool   // no annotation lists the CPUs
	policies    string // topologyPolicies
	attributes  string
	zones       string
}

func (e exported) node() string {
	return "{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {" + e.labels +
		"}}, status: {nodeInfo: {kubeletVersion: v1.36.3}, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}}"
}

func (e exported) topology() string {
	annotations := e.annotations
	if !e.silent {
		annotations = append([]string{"node.koordinator.sh/cpu-topology", cmp.Or(e.cpus, twoNodes())}, annotations...)
	}
	text := "{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: n0, " +
		"annotations: {"
	for i := 0; i < len(annotations); i += 2 {
		text += annotations[i] + ": '" + annotations[i+1] + "', "
	}
	zones := e.zones
	if zones == "" {
		zones = "{name: node-0, type: Node}, {name: node-1, type: Node}"
	}
	text += "}}, zones: [" + zones + "]"
	if e.policies != "" {
		text += ", topologyPolicies: [" + e.policies + "]"
	}
	if e.attributes != "" {
		text += ", attributes: [" + e.attributes + "]"
	}
	return text + "}"
}

// still wants pods that bind CPUs, and others, to be placed as if the annotations were absent: what is bad counts as
// absent.
func (e exported) still(t *testing.T) string {
	t.Helper()
	r, answer := simulated(t, e.node()+"\n---\n"+e.topology()+"\n---\n"+pod(lsr(""), "2")+"\n---\n"+
		strings.Replace(pod("", "1"), "name: p", "name: plain", 1))
	cpus := cpuset.Set{}
	for _, p := range r.Pods {
		if p.State != sim.Scheduled || p.Node != "n0" {
			t.Fatalf("pod %s: %+v, want it on n0; reported %s", p.Name, p, answer)
		}
		if p.Name == "p" {
			cpus = cpuset.MustParse(p.CPUSet)
		}
	}
	if rest := cpus.Minus(cpuset.MustParse("0-7")); cpus.Len() != 2 || !rest.IsEmpty() {
		t.Errorf("the pod has CPUs %s, want two of 0-7", cpus)
	}
	return answer
}

// keepsOff wants the pod that the kubelet would align to be rejected, and others to be placed.
func (e exported) keepsOff(t *testing.T) string {
	t.Helper()
	r, answer := simulated(t, e.node()+"\n---\n"+e.topology()+"\n---\n"+
		podOf(lsr(""), "{cpu: 2, memory: 1Gi}", "{cpu: 2, memory: 1Gi}", "")+"\n---\n"+
		strings.Replace(podOf("", "{cpu: 1}", "{}", ""), "name: p", "name: plain", 1))
	for _, p := range r.Pods {
		want := sim.Scheduled
		if p.Name == "p" {
			want = sim.Unschedulable
		}
		if p.State != want {
			t.Errorf("pod %s: %+v, want %s", p.Name, p, want)
		}
		for _, reason := range p.Reasons {
			answer += reason.Code.String() + ": " + reason.Message + "\n"
		}
	}
	return answer
}

// read puts the objects into the account of a node and returns what is reported of them; policy is what counts then.
func (e exported) read(policy hint.Policy) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		store := kube.NewStore()
		store.PutNode(object[corev1.Node](t, e.node()))
		store.PutTopology(object[v1alpha2.NodeResourceTopology](t, e.topology()))
		known, _ := store.Node("n0")
		if f := known.View.Facts(); f.Machine == nil || f.Topology != policy {
			t.Errorf("policy %v, machine %v; want %v and a machine", f.Topology, f.Machine, policy)
		}
		return problems(known.Problems)
	}
}

func problems(list []convert.Problem) string {
	var lines []string
	for _, p := range list {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

func object[T any](t *testing.T, manifest string) *T {
	t.Helper()
	o := new(T)
	testkit.Check(t, yaml.UnmarshalStrict([]byte(manifest), o))
	return o
}

// nodes are zones node-0 to node-<n-1>.
func nodes(n int) string {
	var zones []string
	for i := range n {
		zones = append(zones, fmt.Sprintf("{name: node-%d, type: Node}", i))
	}
	return strings.Join(zones, ", ")
}

func alignmentCases() []bad {
	const (
		kubelet, state = "node.tenon.sh/kubelet", "node.tenon.sh/numa-state"
		static         = `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"restricted"}}`
	)
	annotated := func(annotations ...string) exported { return exported{annotations: annotations} }
	volcano := func(policy, more string) string {
		return pod("annotations: {volcano.sh/numa-topology-policy: "+policy+more+"}", "2")
	}
	kubeletWords := func(words string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := captured(t)
			return agentFails(t, dir, "probe", "--root", dir, "--kubelet", words)
		}
	}
	machine := func(spec string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return commandFails(t, t.TempDir(), 2, "up", "--data", t.TempDir()+"/data", "--machine", spec)
		}
	}
	return []bad{
		// Unknown policies, wherever one is written.
		{
			"alignment: a topology policy label that does not exist",
			exported{labels: numaLabel + ": Strict"}.read(hint.None),
			[]string{
				"Node/n0", numaLabel, `Unsupported value "Strict"`,
				"None, BestEffort, Restricted, SingleNUMANode",
			},
		},
		{
			"alignment: a topology policy label that does not exist is warned of",
			warned("/validate-node", exported{labels: numaLabel + ": Strict"}.node()),
			[]string{
				"metadata.labels[" + numaLabel + "]", `Unsupported value "Strict"`,
				"None, BestEffort, Restricted, SingleNUMANode", "the label is ignored",
			},
		},
		{
			"alignment: a label and its alias that differ",
			exported{labels: numaLabel + ": Restricted, " + numaAliasLabel + ": BestEffort"}.read(hint.Restricted),
			[]string{numaAliasLabel, "conflicting values", numaLabel},
		},
		{
			"alignment: a label that means nothing beside an alias that does",
			exported{labels: numaLabel + ": Strict, " + numaAliasLabel + ": BestEffort"}.read(hint.None),
			[]string{`Unsupported value "Strict"`, "conflicting values"},
		},
		{
			"alignment: a word of topologyPolicies that does not exist", exported{policies: "SingleNumaNode"}.still,
			[]string{
				"topologyPolicies", `Unsupported value "SingleNumaNode"`, "BestEffortContainerLevel",
				"SingleNUMANodePodLevel",
			},
		},
		{
			"alignment: an attribute with a policy that does not exist",
			exported{attributes: "{name: topologyManagerPolicy, value: SingleNUMANode}"}.still,
			[]string{
				"attributes[topologyManagerPolicy]", `Unsupported value "SingleNUMANode"`,
				"none, best-effort, restricted, single-numa-node",
			},
		},
		{
			"alignment: an attribute with a scope that does not exist",
			exported{attributes: "{name: topologyManagerPolicy, value: none}, {name: topologyManagerScope, value: " +
				"node}"}.still,
			[]string{"attributes[topologyManagerScope]", `Unsupported value "node"`, "container, pod"},
		},
		{
			"alignment: an attribute with too few NUMA nodes",
			exported{attributes: "{name: topologyManagerMaxNUMANodes, value: '4'}"}.still,
			[]string{"attributes[topologyManagerMaxNUMANodes]", "want a number of at least 8"},
		},
		{
			"alignment: topologyPolicies and an attribute that differ",
			exported{policies: "BestEffort", attributes: "{name: topologyManagerPolicy, value: restricted}"}.read(
				hint.Restricted),
			[]string{
				"topologyPolicies", "says best-effort and the attribute topologyManagerPolicy says restricted",
				"the attribute counts",
			},
		},
		{
			"alignment: a numa-topology-spec with a policy that no webhook saw", func(t *testing.T) string {
				t.Helper()
				bad := strings.Replace(
					pod(
						"annotations: {scheduling.koordinator.sh/numa-topology-spec: "+
							"'{\"numaTopologyPolicy\":\"Strict\"}'}", "2"), "namespace: default",
					"namespace: "+bypassed, 1)
				return unschedulable(t, node("", fourCPUs, "")+bad, true)
			},
			[]string{
				"BadAnnotation", "scheduling.koordinator.sh/numa-topology-spec", `Unsupported value "Strict"`,
				"BestEffort, Restricted, SingleNUMANode",
			},
		},
		{
			"alignment: a policy of Volcano that does not exist",
			refused("/validate-pod", volcano("strict", ""), ""),
			[]string{
				"metadata.annotations[volcano.sh/numa-topology-policy]", `Unsupported value "strict"`,
				"none, best-effort, restricted, single-numa-node",
			},
		},
		{
			"alignment: a policy of Volcano that no webhook saw", func(t *testing.T) string {
				t.Helper()
				return unschedulable(t, node("", fourCPUs, "")+strings.Replace(volcano("strict", ""),
					"namespace: default", "namespace: "+bypassed, 1), true)
			},
			[]string{
				"BadAnnotation", "volcano.sh/numa-topology-policy", `Unsupported value "strict"`,
				"single-numa-node",
			},
		},
		{
			"alignment: policies of Volcano and Koordinator that differ",
			refused("/validate-pod", volcano("restricted",
				`, scheduling.koordinator.sh/numa-topology-spec: '{"numaTopologyPolicy":"BestEffort"}'`), ""),
			[]string{
				"conflicting values", "volcano.sh/numa-topology-policy",
				"scheduling.koordinator.sh/numa-topology-spec",
			},
		},
		{
			"alignment: a kubelet word that does not exist", kubeletWords("static,single-numa"),
			[]string{`"single-numa"`, "single-numa-node"},
		},
		{
			"alignment: a kubelet scope without a policy's word", kubeletWords("static,node-scope"),
			[]string{`"node-scope"`, "pod-scope"},
		},
		{
			"alignment: a machine with a policy that does not exist", machine("epyc-2s@static,strict"),
			[]string{`"strict"`, "restricted"},
		},
		{
			"alignment: a machine with kubelet= and a policy that does not exist",
			machine("epyc-2s,kubelet=static+strict"),
			[]string{`"strict"`, "restricted"},
		},
		{
			"alignment: a machine with two policies", machine("epyc-2s,kubelet=restricted+best-effort"),
			[]string{"restricted", "best-effort"},
		},
		{
			"alignment: a machine that is followed and pins nothing", machine("epyc-2s@none,follow"),
			[]string{"follow needs the CPU policy static"},
		},
		{
			"alignment: a scoring strategy that does not exist", func(t *testing.T) string {
				t.Helper()
				return schedulerFails(t,
					"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- "+
						"schedulerName: tenon-scheduler\n"+
						"  plugins: {multiPoint: {enabled: [{name: NodeNUMAResource}]}}\n  pluginConfig: [{name: "+
						"NodeNUMAResource, args: {numaScoringStrategy: {type: Spread}}}]\n")
			},
			[]string{"NodeNUMAResource", "numaScoringStrategy", "Spread", "MostAllocated"},
		},

		// Malformed annotations of a NodeResourceTopology.
		{"alignment: kubelet settings that are not JSON", annotated(kubelet, "{").still, []string{kubelet, "byte"}},
		{
			"alignment: kubelet settings with an unknown policy",
			annotated(kubelet, `{"topology":{"policy":"strict"}}`).still,
			[]string{kubelet, "topology.policy", `Unsupported value "strict"`, "single-numa-node"},
		},
		{
			"alignment: kubelet settings of the wrong type", annotated(kubelet, `{"cpu":{"policy":7}}`).still,
			[]string{kubelet, "cpu.policy", "want"},
		},
		{
			"alignment: a negative reservation of memory",
			annotated(kubelet, `{"memory":{"policy":"Static","reserved":{"0":{"memory":"-1Gi"}}}}`).still,
			[]string{kubelet, "memory.reserved: must not be negative"},
		},
		{
			"alignment: reserved CPUs that the machine does not have",
			annotated(kubelet, `{"cpu":{"policy":"static","reserved":"0,99"}}`).still,
			[]string{kubelet, "CPUs 99 are not on the node"},
		},
		{
			"alignment: a mode that does not exist", annotated("node.tenon.sh/topology-mode", "Lead").still,
			[]string{"node.tenon.sh/topology-mode", `Unsupported value "Lead"`, "Own, Follow, Blind"},
		},
		{
			"alignment: a report that is not JSON", annotated(kubelet, static, "node.tenon.sh/report", "[").still,
			[]string{"node.tenon.sh/report", "byte"},
		},
		{
			"alignment: a state that is not JSON", annotated(kubelet, static, state, `{"memory":`).still,
			[]string{state, "byte"},
		},
		{
			"alignment: a state of the wrong type",
			annotated(kubelet, static, state, `{"pods":{"u":{"c":{"cpus":5}}}}`).still,
			[]string{state, "cpus", "want"},
		},
		{
			"alignment: negative memory in a state",
			annotated(kubelet, static, state, `{"memory":{"0":{"free":{"memory":"-4Ki"}}}}`).still,
			[]string{state, "memory.free: must not be negative"},
		},
		{
			"alignment: a negative count of devices",
			annotated(kubelet, static, state, `{"devices":{"x/gpu":[{"numa":[0],"total":-1}]}}`).still,
			[]string{state, "devices.total: must not be negative"},
		},
		{
			"alignment: devices on a NUMA node that is not there",
			annotated(kubelet, static, state, `{"devices":{"x/gpu":[{"numa":[70],"total":1}]}}`).still,
			[]string{state, "NUMA nodes [70] are not on the node"},
		},
		{
			"alignment: CPUs of a pod in a state that are no list",
			annotated(kubelet, static, state, `{"pods":{"u":{"c":{"cpus":"3-1"}}}}`).still,
			[]string{state, "pods[u]", "the end is below the start"},
		},
		{
			"alignment: a pod's memory on no NUMA node",
			annotated(kubelet, static, state, `{"pods":{"u":{"c":{"memory":{"":"1Gi"}}}}}`).still,
			[]string{state, "pods[u]", "NUMA nodes"},
		},
		{
			"alignment: unknown pods in a malformed list",
			annotated("node.koordinator.sh/pod-cpu-allocs",
				`[{"uid":"u","cpuset":"0-","managedByKubelet":true}]`).still,
			[]string{"node.koordinator.sh/pod-cpu-allocs", "0-"},
		},

		// Zones, by whomever.
		{
			"alignment: a zone that is there twice",
			exported{zones: "{name: node-0, type: Node}, {name: node-1, type: Node}, {name: node-0, type: Node}"}.still,
			[]string{"zones[node-0]", "is there twice", "the first counts"},
		},
		{
			"alignment: a zone that names no NUMA node", exported{zones: "{name: numa0, type: Node}"}.still,
			[]string{"zones[numa0]", "want the name node-<id of the NUMA node>"},
		},
		{
			"alignment: costs of too few zones",
			exported{zones: "{name: node-0, type: Node, costs: [{name: node-0, value: 10}]}, {name: node-1, type: " +
				"Node}"}.still,
			[]string{
				"zones[node-0].costs", "1 of 2 zones are named, node-1 is not",
				"10 to itself and 20 to others are assumed",
			},
		},
		{
			"alignment: costs of a zone that is not there",
			exported{zones: "{name: node-0, type: Node, costs: [{name: node-0, value: 10}, {name: node-7, value: " +
				"20}]}, {name: node-1, type: Node}"}.still,
			[]string{"zones[node-0].costs", `"node-7" is not a zone of type Node`},
		},
		{
			"alignment: a cost that is not a distance",
			exported{zones: "{name: node-0, type: Node, costs: [{name: node-0, value: 10}, {name: node-1, value: " +
				"-3}]}, {name: node-1, type: Node}"}.still,
			[]string{"zones[node-0].costs", "node-1 is at distance -3, want 1 to 255"},
		},
		{
			"alignment: a zone with negative memory",
			exported{zones: "{name: node-0, type: Node, resources: [{name: memory, capacity: 1Gi, allocatable: -1Gi, " +
				"available: 0}]}, {name: node-1, type: Node}"}.still,
			[]string{"zones[node-0].resources[memory]", "want 0 or more"},
		},
		{
			"alignment: more zones than any machine has", exported{zones: nodes(300)}.still,
			[]string{"zones", "300 zones of type Node", "at most 256", "none is used"},
		},

		{
			"alignment: an exporter without CPUs",
			exported{silent: true, policies: "SingleNUMANodePodLevel"}.keepsOff,
			[]string{"TopologyMissing"},
		},

		// Machines at and beyond the limits.
		{
			"alignment: a NUMA node of id 70 under a kubelet that makes masks",
			exported{
				cpus: cpusOn(4, 0, 70), annotations: []string{kubelet, static},
				zones: "{name: node-0, type: Node}, {name: node-70, type: Node}",
			}.keepsOff,
			[]string{"KubeletPanics", "zones", "NUMA node id 70", "ids up to 63"},
		},
		{
			"alignment: nine NUMA nodes under a topology policy",
			exported{annotations: []string{kubelet, static}, zones: nodes(9)}.keepsOff,
			[]string{"TooManyNUMANodes", "zones", "9 NUMA nodes", "at most 8", "max-allowable-numa-nodes"},
		},
		{
			"alignment: 65 NUMA nodes with CPUs", exported{cpus: cpusOn(1, sequence(65)...), zones: nodes(65)}.keepsOff,
			[]string{"InvalidTopology", "machine has 65 NUMA nodes with CPUs, at most 64 are supported"},
		},
		{
			"alignment: a CPU id that is there twice",
			exported{cpus: strings.Replace(twoNodes(), `"id":5`, `"id":4`, 1)}.keepsOff,
			[]string{"InvalidTopology", "node.koordinator.sh/cpu-topology", "CPU id 4 is there twice"},
		},

		{"alignment: a machine that shrinks under its pods", shrinks, []string{"held", "CPUs 4-5"}},
		{
			"alignment: a NUMA node without CPUs is none for CPUs",
			exported{zones: "{name: node-0, type: Node}, {name: node-1, type: Node}, {name: node-2, type: Node, " +
				"resources: [{name: memory, capacity: -5, allocatable: -5, available: 0}]}"}.still,
			[]string{"zones[node-2].resources[memory]"},
		},

		// What the scheduler alone writes: predictions.
		{
			"alignment: a prediction that a user writes",
			refused("/validate-pod", pod(`annotations: {tenon.sh/predicted-placement: '{"model":"1.36"}'}`,
				"2"), pod("", "2")),
			[]string{"metadata.annotations[tenon.sh/predicted-placement]", "is set by the scheduler"},
		},
		{
			"alignment: a prediction that is not JSON and that no webhook saw", predicted("{"),
			[]string{"Pod/default/p", "tenon.sh/predicted-placement", "byte"},
		},
		{
			"alignment: a prediction of CPUs that are no list", predicted(`{"containers":{"c":{"cpus":"9-1"}}}`),
			[]string{"tenon.sh/predicted-placement", "container c", "the end is below the start"},
		},
		{
			"alignment: a prediction of devices below zero",
			predicted(`{"containers":{"c":{"devices":{"x/gpu":{"mask":[0],"count":-1}}}}}`),
			[]string{"tenon.sh/predicted-placement", "containers.devices.count: must not be negative"},
		},

		// Numatopology, as Volcano's exporter writes it.
		{
			"alignment: a Numatopology with a CPU that is not a number", numatopology("cpuDetail: {one: {}}"),
			[]string{"Numatopology/n0", "spec.cpuDetail", `"one": want the number of a CPU`},
		},
		{
			"alignment: a Numatopology without CPUs", numatopology("cpuDetail: {}"),
			[]string{"Numatopology/n0", "spec.cpuDetail", "no CPU can be parsed"},
		},
		{
			"alignment: a Numatopology with a negative core", numatopology("cpuDetail: {'0': {core: -1}}"),
			[]string{"spec.cpuDetail", "0.core", "-1"},
		},
		{
			"alignment: a Numatopology with free CPUs that are no list",
			numatopology("cpuDetail: {'0': {}, '1': {core: 1}}, numares: {cpu: {allocatable: 1-0, capacity: 2}}"),
			[]string{"spec.numares[cpu].allocatable", "the end is below the start"},
		},
		{
			"alignment: a Numatopology with policies that do not exist",
			numatopology(
				"cpuDetail: {'0': {}, '1': {core: 1}}, policies: {CPUManagerPolicy: Static, TopologyManagerPolicy: " +
					"strict}"),
			[]string{
				"spec.policies[CPUManagerPolicy]", `Unsupported value "Static"`, "none, static",
				"spec.policies[TopologyManagerPolicy]", `Unsupported value "strict"`, "single-numa-node",
			},
		},
		{
			"alignment: a Numatopology with a reservation that is not an amount",
			numatopology(
				"cpuDetail: {'0': {}, '1': {core: 1}}, policies: {CPUManagerPolicy: static}, resReserved: {cpu: some}"),
			[]string{"spec.resReserved[cpu]", "want an amount of CPU"},
		},
		{
			"alignment: a Numatopology with CPUs of no pod",
			numatopology(
				"cpuDetail: {'0': {}, '1': {core: 1}}, policies: {CPUManagerPolicy: static}, resReserved: {cpu: " +
					"'1'}, podAllocations: [{containerAllocations: [{name: c, allocations: {cpu: '1'}}]}]"),
			[]string{"spec.podAllocations[0]", "want the uid of a pod"},
		},
	}
}

func sequence(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// shrinks takes a NUMA node from under a running pod: what is gone is left out and reported, and is offered to no pod.
func shrinks(t *testing.T) string {
	t.Helper()
	store := kube.NewStore()
	whole := exported{}
	store.PutNode(object[corev1.Node](t, whole.node()))
	store.PutTopology(object[v1alpha2.NodeResourceTopology](t, whole.topology()))
	store.PutPod(podFrom(t,
		podOf(
			"uid: held, labels: {koordinator.sh/qosClass: LSR}, annotations: "+
				"{scheduling.koordinator.sh/resource-status: '{\"cpuset\":\"3-5\"}'}", "{cpu: 3}", "{cpu: 3}",
			", nodeName: n0")))
	half := exported{cpus: cpusOn(4, 0), zones: nodes(1)}
	store.PutTopology(object[v1alpha2.NodeResourceTopology](t, half.topology()))
	view := store.View("n0")
	if got := view.LSR().String(); got != "3" {
		t.Errorf("exclusive CPUs are %s, want 3", got)
	}
	if got := view.SharedPool().String(); got != "0-2" {
		t.Errorf("the shared pool is %s, want 0-2", got)
	}
	var answer []string
	for _, p := range view.Problems() {
		answer = append(answer, fmt.Sprintf("%s: %s: CPUs %s", p.UID, p.Kind, p.CPUs))
	}
	store.PutTopology(object[v1alpha2.NodeResourceTopology](t, whole.topology()))
	if got := store.View("n0").LSR().String(); got != "3-5" {
		t.Errorf("after the machine is whole again exclusive CPUs are %s, want 3-5", got)
	}
	return strings.Join(answer, "\n")
}

// predicted puts a running pod with a prediction that cannot be read on a node that is followed: it counts as one
// without.
func predicted(text string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		e := exported{annotations: []string{
			"node.tenon.sh/kubelet", `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"restricted"}}`,
		}}
		store := kube.NewStore()
		store.PutNode(object[corev1.Node](t, e.node()))
		store.PutTopology(object[v1alpha2.NodeResourceTopology](t, e.topology()))
		manifest := func(annotations string) string {
			return podOf("uid: p"+annotations, "{cpu: 2, memory: 1Gi}", "{cpu: 2, memory: 1Gi}", ", nodeName: n0")
		}
		store.PutPod(podFrom(t, manifest("")))
		want := store.View("n0")
		bad := podFrom(t, manifest(", annotations: {tenon.sh/predicted-placement: '"+text+"'}"))
		store.PutPod(bad)
		if got := store.View("n0"); got.SharedPool() != want.SharedPool() || got.Allocatable() != want.Allocatable() {
			t.Errorf("the pool is %s, want %s as without a prediction", got.SharedPool(), want.SharedPool())
		}
		return problems(convert.ReadPod(bad).Problems)
	}
}

// numatopology reads the spec of a node that Volcano alone describes: nothing of it may hold CPUs back that it does not
// name, and none may be invented.
func numatopology(spec string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		store := kube.NewStore()
		store.PutNode(object[corev1.Node](t, exported{}.node()))
		store.PutNumatopology(object[nodeinfo.Numatopology](t,
			"{apiVersion: nodeinfo.volcano.sh/v1alpha1, kind: Numatopology, metadata: {name: n0}, spec: {"+spec+"}}"))
		known, _ := store.Node("n0")
		f := known.View.Facts()
		if f.Machine != nil && f.Machine.NumCPUs() != 2 || f.Machine == nil && f.Fault.OK() || len(f.Given) > 0 {
			t.Errorf("facts %+v", f)
		}
		return problems(known.Problems)
	}
}
