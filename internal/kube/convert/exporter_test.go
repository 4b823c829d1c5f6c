package convert_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// cpusOfTwoNodes is what koordlet, or our agent in the annotations of an object that another program owns, adds to
// zones.
const cpusOfTwoNodes = `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":0,"node":0},` +
	`{"id":2,"core":2,"socket":1,"node":1},{"id":3,"core":3,"socket":1,"node":1}]}`

// Objects as node-feature-discovery, resource-topology-exporter, the scheduler-plugins' examples, koordlet and
// nri-plugins publish them.
const (
	// nfdObject has attributes and words; its owner is a Namespace. Zones carry costs and the devices of plugins.
	nfdObject = `
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: n
  ownerReferences: [{apiVersion: v1, kind: Namespace, name: node-feature-discovery, uid: u}]
topologyPolicies: [SingleNUMANodePodLevel]
attributes:
- {name: topologyManagerPolicy, value: single-numa-node}
- {name: topologyManagerScope, value: pod}
- {name: nodeTopologyPodsFingerprint, value: pfp0v001a1b2c3}
zones:
- name: node-0
  type: Node
  costs: [{name: node-0, value: 10}, {name: node-1, value: 21}]
  resources:
  - {name: cpu, capacity: "2", allocatable: "1", available: "1"}
  - {name: memory, capacity: 8Gi, allocatable: 7Gi, available: 1Gi}
  - {name: hugepages-2Mi, capacity: 1Gi, allocatable: 1Gi, available: "0"}
  - {name: vendor/nic1, capacity: "4", allocatable: "3", available: "2"}
- name: node-1
  type: Node
  costs: [{name: node-0, value: 31}, {name: node-1, value: 10}]
  resources:
  - {name: cpu, capacity: "2", allocatable: "2", available: "2"}
  - {name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}
`
	// rteObject has attributes alone, with the limit of NUMA nodes, and a note of its own.
	rteObject = `
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: n
  annotations: {k8stopoawareschedwg/rte-update: periodic, topology.node.k8s.io/fingerprint: pfp0v0019d1f2}
attributes:
- {name: topologyManagerScope, value: container}
- {name: topologyManagerPolicy, value: restricted}
- {name: topologyManagerMaxNUMANodes, value: "8"}
- {name: nodeTopologyPodsFingerprintMethod, value: with-exclusive-resources}
zones:
- {name: node-1, type: Node,
  costs: [{name: node-1, value: 10}, {name: node-0, value: 20}],
  resources: [{name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}]}
- {name: node-0, type: Node,
  costs: [{name: node-0, value: 10}, {name: node-1, value: 20}],
  resources: [{name: memory, capacity: 8Gi, allocatable: 6Gi, available: 8Gi}]}
`
	// exampleObject is of the older version and has words alone.
	exampleObject = `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: n}
topologyPolicies: [SingleNUMANodeContainerLevel]
zones:
- {name: node-0, type: Node,
  resources: [{name: cpu, capacity: 2, allocatable: 2, available: 1},
    {name: vendor/nic1, capacity: 2, allocatable: 2, available: 2}]}
- {name: node-1, type: Node, resources: [{name: cpu, capacity: 2, allocatable: 2, available: 2}]}
`
	// koordletObject has the annotations of Koordinator, null for no pods, and the kubelet's CPU manager.
	koordletObject = `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata:
  name: n
  labels: {app.kubernetes.io/managed-by: Koordinator}
  annotations:
    kubelet.koordinator.sh/cpu-manager-policy: '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0"}'
    node.koordinator.sh/pod-cpu-allocs: 'null'
    node.koordinator.sh/cpu-shared-pools: '[{"socket":0,"node":0,"cpuset":"1"},{"socket":1,"node":1,"cpuset":"2-3"}]'
topologyPolicies: [BestEffort]
zones:
- {name: node-0, type: Node,
  resources: [{name: cpu, capacity: 2, allocatable: 2, available: 2},
    {name: koordinator.sh/gpu-core, capacity: 100, allocatable: 100, available: 100},
    {name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}]}
- {name: node-1, type: Node,
  resources: [{name: cpu, capacity: 2, allocatable: 2, available: 2},
    {name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}]}
`
	// balloonObject has zones of other types only.
	balloonObject = `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: n}
topologyPolicies: [None]
zones:
- {name: reserved, type: balloon, attributes: [{name: cpuset, value: "0"}],
  resources: [{name: cpu, capacity: 1, allocatable: 1, available: 1}]}
- {name: node-0, type: cache,
  costs: [{name: reserved, value: 7}],
  resources: [{name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}]}
`
)

func exporterObject(t *testing.T, text string) *v1alpha2.NodeResourceTopology {
	t.Helper()
	nrt := &v1alpha2.NodeResourceTopology{}
	testkit.Check(t, yaml.UnmarshalStrict([]byte(text), nrt))
	return nrt
}

// TestObjectsOfOtherExporters: with an additional list of CPUs, the kubelet that they describe is predicted and marked
// as assumed; without it, the policy is known and pods that bind CPUs are rejected.
func TestObjectsOfOtherExporters(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	behaviour, _ := kubelet.ModelOf("v1.36.3")
	tests := map[string]struct {
		text      string
		policy    hint.Policy
		config    kubelet.Config
		memory    []align.Amount
		devices   []string
		distances [4]int
		idle      bool // nothing to predict
	}{
		"node-feature-discovery": {
			text: nfdObject, policy: hint.SingleNUMANode,
			config: kubelet.Config{Topology: kubelet.Topology{Policy: hint.SingleNUMANode, PodScope: true}},
			memory: []align.Amount{
				{NUMAID: 0, Resource: "memory", N: 7 * gi},
				{NUMAID: 0, Resource: "hugepages-2Mi", N: gi},
				{NUMAID: 1, Resource: "memory", N: 8 * gi},
			},
			devices: []string{"vendor/nic1"}, distances: [4]int{10, 21, 31, 10},
		},
		"resource-topology-exporter": {
			text: rteObject, policy: hint.Restricted,
			config: kubelet.Config{Topology: kubelet.Topology{Policy: hint.Restricted, MaxNodes: 8}},
			memory: []align.Amount{
				{NUMAID: 1, Resource: "memory", N: 8 * gi},
				{NUMAID: 0, Resource: "memory", N: 6 * gi},
			}, distances: [4]int{10, 20, 20, 10},
		},
		"the example of scheduler-plugins": {
			text: exampleObject, policy: hint.SingleNUMANode,
			config:  kubelet.Config{Topology: kubelet.Topology{Policy: hint.SingleNUMANode}},
			devices: []string{"vendor/nic1"}, distances: [4]int{10, 20, 20, 10},
		},
		"koordlet": {
			text: koordletObject, policy: hint.BestEffort,
			config: kubelet.Config{
				CPU:      kubelet.CPU{Static: true, FullPCPUsOnly: true},
				Topology: kubelet.Topology{Policy: hint.BestEffort},
			},
			memory: []align.Amount{
				{NUMAID: 0, Resource: "memory", N: 8 * gi},
				{NUMAID: 1, Resource: "memory", N: 8 * gi},
			}, distances: [4]int{10, 20, 20, 10},
		},
		"nri-plugins": {text: balloonObject, policy: hint.None, distances: [4]int{10, 20, 20, 10}, idle: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{}
			node.Name, node.Status.NodeInfo.KubeletVersion = "n", "v1.36.3"

			bare, problems := convert.Facts(node, exporterObject(t, tt.text), convert.DefaultArgs())
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			if bare.Machine != nil || bare.Fault.Code != why.TopologyMissing || bare.Topology != tt.policy ||
				bare.Model.Node != nil || len(bare.Amounts) > 0 {
				t.Errorf("without CPUs: %+v, want policy %v and TopologyMissing", bare, tt.policy)
			}

			nrt := exporterObject(t, tt.text)
			if nrt.Annotations == nil {
				nrt.Annotations = map[string]string{}
			}
			nrt.Annotations["node.koordinator.sh/cpu-topology"] = cpusOfTwoNodes
			facts, problems := convert.Facts(node, nrt, convert.DefaultArgs())
			if len(problems) > 0 || facts.Machine == nil {
				t.Fatalf("problems %v, machine %v", problems, facts.Machine)
			}
			if facts.Topology != tt.policy {
				t.Errorf("policy %v, want %v", facts.Topology, tt.policy)
			}
			if diff := cmp.Diff(tt.memory, facts.Amounts); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
			var distances [4]int
			for i := range distances {
				distances[i] = facts.Machine.Distance(topo.NUMA(i/2), topo.NUMA(i%2))
			}
			if distances != tt.distances {
				t.Errorf("distances %v, want %v", distances, tt.distances)
			}
			if (facts.Model.Node == nil) != tt.idle || len(facts.Model.Assumed) == 0 != tt.idle {
				t.Fatalf("model %+v, want one that is assumed", facts.Model)
			}
			if tt.idle {
				return
			}
			tt.config.Model = behaviour
			if diff := cmp.Diff(tt.config, facts.Model.Node.Config(),
				cmpopts.IgnoreFields(kubelet.CPU{}, "Reserved")); diff != "" {
				t.Errorf("kubelet (-want +got):\n%s", diff)
			}
			reserved := facts.Model.Node.Config().CPU.Reserved
			if want := map[bool]string{true: "0"}[tt.config.CPU.Static]; reserved.String() != want {
				t.Errorf("reserved CPUs %q, want %q", reserved, want)
			}
			if diff := cmp.Diff(tt.devices, facts.Model.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeWithoutZonesKnowsNoMemoryOfNUMANodes: zones are the only source, and they are optional.
func TestNodeWithoutZonesKnowsNoMemoryOfNUMANodes(t *testing.T) {
	t.Parallel()
	nrt := exporterObject(t, "{metadata: {name: n, annotations: {node.koordinator.sh/cpu-topology: '"+cpusOfTwoNodes+
		"'}}, zones: []}")
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	if facts.Machine == nil || len(facts.Amounts) > 0 || len(problems) > 0 || facts.Machine.MemoryBytes(0) != 0 {
		t.Errorf("memory %v, problems %v; want none", facts.Amounts, problems)
	}
}

// TestManyZonesAreRefusedBeforeTheyAreCompared: costs of n zones are n² numbers, and an object holds tens of thousands.
func TestManyZonesAreRefusedBeforeTheyAreCompared(t *testing.T) {
	t.Parallel()
	nrt := exporterObject(t, "{metadata: {name: n, annotations: {node.koordinator.sh/cpu-topology: '"+cpusOfTwoNodes+
		"'}}, zones: []}")
	for i := range 40_000 {
		name := convert.ZoneName(i)
		nrt.Zones = append(nrt.Zones, v1alpha2.Zone{
			Name: name, Type: "Node",
			Costs: v1alpha2.CostList{{Name: name, Value: 10}},
		})
	}
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	if facts.Machine == nil || facts.Machine.NumNUMA() != 2 || len(problems) != 1 ||
		!strings.Contains(problems[0].Text, "at most 256") {
		t.Errorf("machine %v, problems %v; want that of the CPUs, and one problem", facts.Machine, problems)
	}
}
