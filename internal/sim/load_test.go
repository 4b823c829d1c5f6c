package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
)

// usedNode is a node with a NodeMetric.
func usedNode(name, cpu, updated string) string {
	return fmt.Sprintf(`
{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: {cpu: 10, memory: 100Gi, pods: 110}}}
---`, name) + usedReport(name, cpu, updated)
}

func usedReport(node, cpu, updated string) string {
	return fmt.Sprintf(`
{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeMetric, metadata: {name: %s}, status: {updateTime: %s,
  nodeMetric: {nodeUsage: {resources: {cpu: %s, memory: 10Gi}}}}}
---`, node, updated, cpu)
}

const oneCPU = "\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, " +
	"resources: {requests: {cpu: 1, memory: 1Gi}}}]}}\n---"

func TestPodsAvoidNodesThatUseMuch(t *testing.T) {
	t.Parallel()
	const now, old = `"2026-01-01T00:10:00Z"`, `"2026-01-01T00:07:00Z"`
	for name, c := range map[string]struct {
		input, node string
		codes       string
	}{
		"the node that uses less": {
			usedNode("n0", "5", now) + usedNode("n1", "2", now) + oneCPU, "n1", "",
		},
		"a node above its threshold with the pod": {usedNode("n0", "5700m", now) + oneCPU, "", "UsageThreshold"},
		"a node at its threshold with the pod":    {usedNode("n0", "5690m", now) + oneCPU, "n0", ""},
		"a large pod goes to an idle node": {
			usedNode("n0", "100m", now) + usedNode("n1", "6", now) +
				strings.Replace(oneCPU, "cpu: 1", "cpu: 7", 1), "n0", "",
		},
		"a node whose NodeMetric is old": {usedNode("n0", "1", now) + usedNode("n1", "0", old) + oneCPU, "n0", ""},
		"all that is left has an old NodeMetric": {
			usedNode("n0", "9", now) + usedNode("n1", "0", old) + oneCPU, "", "MetricExpired UsageThreshold",
		},
	} {
		r, _ := simulate(t, c.input, "-")
		if got := r.Pods[0].Node; got != c.node {
			t.Errorf("%s: on %q, want %q: %+v", name, got, c.node, r.Pods[0].Reasons)
		}
		codes := map[string]bool{}
		for _, one := range r.Pods[0].Reasons {
			codes[one.Code.String()] = true
		}
		for _, want := range strings.Fields(c.codes) {
			if !codes[want] {
				t.Errorf("%s: reasons %v, want %s", name, codes, want)
			}
		}
	}
}

// TestEachPodCountsOnceBesideOtherFeatures: nodes of 10 CPUs, of which 6.5 may be used. A pod of 1 CPU is expected to
// use 0.85.
func TestEachPodCountsOnceBesideOtherFeatures(t *testing.T) {
	t.Parallel()
	const now = `"2026-01-01T00:10:00Z"`
	member := func(name string, cpus int) string {
		return cpuPod(name, cpus, fmt.Sprintf(`, annotations: {%s: g, %s: '3'}`, annotation.GangName,
			annotation.GangMinAvailable), "")
	}
	inZone := func(name string, cpus int) string {
		return cpuPod(name, cpus, fmt.Sprintf(`, annotations: {%s: g, %s: '3', %s: '{"numaTopologyPolicy":`+
			`"SingleNUMANode"}'}`, annotation.GangName, annotation.GangMinAvailable,
			annotation.NUMATopologySpecKey), "")
	}
	const low, high = ", priority: -1", ", priority: 1000"
	for name, c := range map[string]struct {
		input string
		want  map[string]string // node of each pod; "" for one that waits
	}{
		"a Reservation uses nothing, and its owner counts once": {
			usedNode("n0", "2", now) + reservationFor("r", "web", "a: b", "cpu: 4", "") +
				using("owner", "web", "", "cpu: 4", "") + cpuPod("first", 1, "", "") + cpuPod("second", 1, "", ""),
			map[string]string{"owner": "n0", "first": "n0", "second": ""}, // 2 + 3.4 + 0.85
		},
		"a pod beside an unused Reservation": {
			usedNode("n0", "2", now) + reservationFor("r", "web", "a: b", "cpu: 6", "") + cpuPod("first", 1, "", ""),
			map[string]string{"first": "n0"},
		},
		"members of a gang count for each other": {
			usedNode("n0", "4800m", now) + usedNode("n1", "5", now) + member("a", 1) + member("b", 1) + member("c", 1),
			map[string]string{"a": "n0", "b": "n1", "c": "n0"},
		},
		"members of a gang that keep to a NUMA node each count for each other": {
			machine("n0") + usedReport("n0", "15300m", now) + inZone("a", 2) + inZone("b", 2) + inZone("c", 2) +
				cpuPod("first", 1, "", low),
			map[string]string{"a": "n0", "b": "n0", "c": "n0", "first": ""},
		},
		"a gang that keeps to NUMA nodes starts whole or not at all where its use is too much": {
			machine("n0") + usedReport("n0", "18900m", now) + inZone("a", 2) + inZone("b", 2) + inZone("c", 2) +
				cpuPod("first", 1, "", low),
			map[string]string{"a": "", "b": "", "c": "", "first": "n0"},
		},
		"a pod whose NUMA nodes are full on the node that uses less": {
			machine("n0") + usedReport("n0", "1", now) + machine("n1") + usedReport("n1", "5", now) +
				inZone("a", 9) + inZone("b", 9) + inZone("c", 9),
			map[string]string{"a": "n0", "b": "n1", "c": "n0"},
		},
		"a gang that does not start leaves nothing behind": {
			usedNode("n0", "5", now) + usedNode("n1", "5", now) + member("a", 1) + member("b", 1) + member("c", 1) +
				cpuPod("first", 1, "", low) + cpuPod("second", 1, "", low) + cpuPod("third", 1, "", low),
			map[string]string{"a": "", "b": "", "c": "", "first": "n0", "second": "n1", "third": ""},
		},
		"no pod is preempted for a node that uses too much": {
			usedNode("n0", "9", now) + cpuPod("victim", 9, "", low+", nodeName: n0") + cpuPod("first", 9, "", high),
			map[string]string{"victim": "n0", "first": ""},
		},
		"a pod of another scheduler counts by its estimate": {
			usedNode("n0", "5", now) + cpuPod("foreign", 1, "", ", nodeName: n0, schedulerName: other") +
				cpuPod("first", 1, "", ""),
			map[string]string{"foreign": "n0", "first": ""},
		},
	} {
		r, _ := simulate(t, c.input, "-")
		for pod, node := range c.want {
			if got := stateOf(r, pod); got.Node != node {
				t.Errorf("%s: %s is on %q, want %q: %+v", name, pod, got.Node, node, got.Reasons)
			}
		}
	}
}

func TestAPodThatIsRefusedForUseTakesNothingOfItsQuota(t *testing.T) {
	t.Parallel()
	const inQuota = ", labels: {quota.scheduling.koordinator.sh/name: q}"
	r, _ := simulate(t, usedNode("n0", "9", `"2026-01-01T00:10:00Z"`)+elastic(koordinator, "q", "",
		"{cpu: 4}", "{cpu: 4}")+cpuPod("a", 4, inQuota, ""), "-")
	if got := stateOf(r, "a"); got.Node != "" || r.Quotas[0].Used["cpu"] != "0" {
		t.Errorf("the pod is on %q, its quota has %v in use", got.Node, r.Quotas[0].Used)
	}
}
