package sim

import (
	"fmt"
	"strings"
	"testing"
)

// usedNode is a node with a NodeMetric.
func usedNode(name, cpu, updated string) string {
	return fmt.Sprintf(`
{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: {cpu: 10, memory: 100Gi, pods: 110}}}
---
{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeMetric, metadata: {name: %[1]s}, status: {updateTime: %[3]s,
  nodeMetric: {nodeUsage: {resources: {cpu: %[2]s, memory: 10Gi}}}}}
---`, name, cpu, updated)
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
