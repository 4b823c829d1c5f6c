package sim

import (
	"fmt"
	"strings"
	"testing"
)

// exported is a node of two NUMA nodes that only another exporter describes: of 8 ports on each, free are available.
func exported(available ...int) string {
	const details = `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":1,"node":1}]}`
	text := "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus:\n  nodeInfo: {kubeletVersion: v1.36.3}\n" +
		"  allocatable: {cpu: 2, memory: 8Gi, pods: 110, vendor/port: 16}\n---\n" +
		"apiVersion: topology.node.k8s.io/v1alpha2\nkind: NodeResourceTopology\n" +
		"metadata: {name: m, annotations: {node.koordinator.sh/cpu-topology: '" + details + "'}}\n" +
		"attributes: [{name: topologyManagerPolicy, value: single-numa-node}, " +
		"{name: topologyManagerScope, value: pod}]\n" +
		"zones:\n"
	for i, n := range available {
		text += fmt.Sprintf("- {name: node-%d, type: Node, resources: [{name: vendor/port, capacity: 8, "+
			"allocatable: 8, available: %d}]}\n", i, n)
	}
	return text
}

func ports(name string, n int, spec string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  %s\n  containers: [{name: c, "+
		"image: i, resources: {limits: {vendor/port: %d}}}]\n", name, spec, n)
}

// TestAvailableDevicesOfAnotherExporter: pods of the input have 3 ports on one NUMA node and 2 on the other, and carry
// no placement.
func TestAvailableDevicesOfAnotherExporter(t *testing.T) {
	running := exported(5, 6) + ports("a", 3, "nodeName: m") + ports("b", 2, "nodeName: m")
	for name, c := range map[string]struct {
		pods string
		want string // states of p-0, p-1…
	}{
		"more than is available on one NUMA node": {ports("p-0", 7, ""), "Unschedulable"},
		"as many": {ports("p-0", 6, ""), "Scheduled"},
		"one after the other": {
			ports("p-0", 6, "") + ports("p-1", 5, "") + ports("p-2", 1, ""), "Scheduled Scheduled Unschedulable",
		},
		"many that are smaller": {
			ports("p-0", 2, "") + ports("p-1", 2, "") + ports("p-2", 6, "") + ports("p-3", 1, "") + ports("p-4", 1, ""),
			"Scheduled Scheduled Scheduled Scheduled Unschedulable",
		},
		"a pod that preempts": {ports("p-0", 8, "priority: 9"), "Scheduled"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, running+c.pods, "-")
			var got []string
			for i := range strings.Fields(c.want) {
				got = append(got, stateOf(r, fmt.Sprint("p-", i)).State)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q: %+v", got, c.want, r.Pods)
			}
		})
	}
}

// TestAvailableCPUsAndMemoryOfAnotherExporter: a pod of the input has 6 of 8 CPUs and 6 of 8 GiB of a NUMA node, and
// carries no placement.
func TestAvailableCPUsAndMemoryOfAnotherExporter(t *testing.T) {
	node := func(cpus, memory [2]string) string {
		var details []string
		for i := range 16 {
			details = append(details, fmt.Sprintf(`{"id":%d,"core":%d,"socket":0,"node":%d}`, i, i, i/8))
		}
		text := "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus:\n  nodeInfo: {kubeletVersion: v1.36.3}\n" +
			"  allocatable: {cpu: 16, memory: 16Gi, pods: 110}\n---\n" +
			"apiVersion: topology.node.k8s.io/v1alpha2\nkind: NodeResourceTopology\nmetadata: {name: m, annotations: " +
			"{node.koordinator.sh/cpu-topology: '{\"detail\":[" + strings.Join(details, ",") + "]}'}}\n" +
			"attributes: [{name: topologyManagerPolicy, value: single-numa-node}]\nzones:\n"
		for i := range 2 {
			text += fmt.Sprintf("- {name: node-%d, type: Node, resources: [{name: cpu, capacity: 8, allocatable: 8, "+
				"available: %s}, {name: memory, capacity: 8Gi, allocatable: 8Gi, available: %s}]}\n", i, cpus[i],
				memory[i])
		}
		return text
	}
	pod := func(name, cpu, memory, spec string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  %s\n  containers: [{name: "+
			"c, image: i, resources: {limits: {cpu: %s, memory: %s}, requests: {cpu: %[3]s, memory: %[4]s}}}]\n", name,
			spec, cpu, memory)
	}
	running := pod("a", "6", "6Gi", "nodeName: m")
	full, free := [2]string{"8", "2"}, [2]string{"8Gi", "2Gi"}
	for name, c := range map[string]struct {
		cpus, memory [2]string
		pods         string
		want         string // states of p-0, p-1…
	}{
		"on one NUMA node each": {
			full, free, pod("p-0", "8", "8Gi", "") + pod("p-1", "2", "2Gi", ""), "Scheduled Scheduled",
		},
		"CPUs of no NUMA node": {
			full, free, pod("p-0", "7", "1Gi", "") + pod("p-1", "3", "1Gi", ""), "Scheduled Unschedulable",
		},
		"memory of no NUMA node": {
			full, free, pod("p-0", "1", "7Gi", "") + pod("p-1", "1", "3Gi", ""), "Scheduled Unschedulable",
		},
		"nothing is reported as used": {
			[2]string{"8", "8"},
			[2]string{"8Gi", "8Gi"},
			pod("p-0", "7", "1Gi", "") + pod("p-1", "3", "1Gi", ""),
			"Scheduled Scheduled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, node(c.cpus, c.memory)+running+c.pods, "-")
			var got []string
			for i := range strings.Fields(c.want) {
				got = append(got, stateOf(r, fmt.Sprint("p-", i)).State)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q: %+v", got, c.want, r.Pods)
			}
		})
	}
}
