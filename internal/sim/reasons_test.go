package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheRootCauseStandsFirst: of a pod that selects a cordoned node the cordon comes before the selector, which more
// nodes do not match.
func TestTheRootCauseStandsFirst(t *testing.T) {
	t.Parallel()
	cordoned := strings.Replace(cpuNode("n2", 4), "status:", "spec: {unschedulable: true}, status:", 1)
	pod := cpuPod("p", 1, "", ", nodeSelector: {kubernetes.io/hostname: n2}")
	r, _ := simulate(t, cpuNode("n0", 4)+cpuNode("n1", 4)+cordoned+pod, "-")
	checkReasons(t, r, "p", "NodeUnschedulable 1", "NodeAffinity 2")
}

// TestCausesThatAnotherCauseHides: of nodes without a GPU, a pod that asks for GPUs learns that first, and also why its
// CPUs would be refused, wherever an equal pod was refused before.
func TestCausesThatAnotherCauseHides(t *testing.T) {
	t.Parallel()
	single := strings.Replace(machine("n0"), "labels: {",
		"labels: {node.koordinator.sh/numa-topology-policy: SingleNUMANode, ", 1)
	wholeCores := `, annotations: {scheduling.koordinator.sh/resource-spec: '{"requiredCPUBindPolicy":"FullPCPUs"}'}`
	with := func(pod, resource string) string {
		return strings.Replace(pod, "memory: 64Mi", "memory: 64Mi, "+resource, 1)
	}
	in := single +
		with(exclusive("odd", 5, "LSR", wholeCores, ""), "koordinator.sh/gpu: 100") +
		with(exclusive("odd2", 5, "LSR", wholeCores, ""), "koordinator.sh/gpu: 100") +
		with(exclusive("wide", 20, "LSR", "", ""), "nvidia.com/gpu: 2") +
		with(exclusive("other", 20, "LSR", "", ""), "example.com/card: 2")
	r, _ := simulate(t, in, "-")
	for _, odd := range []string{"odd", "odd2"} {
		checkReasons(t, r, odd, "DeviceMissing 1", "SMTAlignment 1")
	}
	checkReasons(t, r, "wide", "InsufficientExtended 1", "TopologyPolicy 1")
	checkReasons(t, r, "other", "InsufficientExtended 1", "TopologyPolicy 1")

	r, _ = simulate(t, in+machine("n1")+"\n"+deviceOf("n1", twoGPUs)+"\n---\n"+
		holder("a", "n1", `{"gpu":[`+half+`]}`), "-")
	checkReasons(t, r, "odd", "SMTAlignment 2", "DeviceMissing 1")
}

// TestMemoryBeyondCPUsIsNotWaitedFor: a pod that must have its memory on NUMA nodes with CPUs is refused by the policy
// of a node whose memory is on another NUMA node.
func TestMemoryBeyondCPUsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	zone := func(name string, gib int) string {
		return fmt.Sprintf("{name: %s, type: Node, resources: [{name: memory, capacity: %dGi, allocatable: %[2]dGi, "+
			"available: %[2]dGi}]}", name, gib)
	}
	far := strings.NewReplacer("topologyPolicies: [None]", "topologyPolicies: [SingleNUMANode]",
		"zones: [{name: node-0, type: Node}, {name: node-1, type: Node}]",
		"zones: ["+zone("node-0", 8)+", "+zone("node-1", 8)+", "+zone("node-2", 48)+"]").Replace(machine("n0"))
	r, _ := simulate(t, far+strings.Replace(exclusive("large", 4, "LSR", "", ""), "64Mi", "40Gi", 1), "-")
	checkReasons(t, r, "large", "TopologyPolicy 1", "NoVictims 1")
}

// checkReasons compares the codes of a pod's reasons, each with its number of nodes.
func checkReasons(t *testing.T, r Result, name string, want ...string) {
	t.Helper()
	var got []string
	for _, reason := range stateOf(r, name).Reasons {
		got = append(got, fmt.Sprint(reason.Code, " ", reason.Nodes))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons of %s (-want +got):\n%s", name, diff)
	}
}
