package sim

import (
	"fmt"
	"strings"
	"testing"
)

// TestNothingIsPlacedBesideAPodThatWasResizedBeyondItsNUMANode: the pods that are there were given 100 MiB of the 128
// on the two NUMA nodes of the machine, and one was resized without a webhook. What it has now counts, or what it
// still has.
func TestNothingIsPlacedBesideAPodThatWasResizedBeyondItsNUMANode(t *testing.T) {
	t.Parallel()
	pod := func(name, memory, status, annotations, spec string) string {
		return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {koordinator.sh/qosClass: LS}, "+
			"annotations: {scheduling.koordinator.sh/numa-topology-spec: "+
			`'{"numaTopologyPolicy":"SingleNUMANode"}'%s}}, `+
			"spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: %s}}}]%s}%s}\n---",
			name, annotations, memory, spec, status)
	}
	there := func(name string, numa int, memory, status string) string {
		return pod(name, memory, status, fmt.Sprintf(", scheduling.koordinator.sh/resource-status: "+
			`'{"cpuSharedPools":[{"socket":0,"node":%[1]d}],"numaNodeResources":[{"node":%[1]d,"resources":{"cpu":"1",`+
			`"memory":"100Mi"}}]}'`, numa), ", nodeName: n0")
	}
	still := ", status: {containerStatuses: [{name: c, image: i, imageID: i, ready: true, restartCount: 0, " +
		"allocatedResources: {memory: 120Mi}, resources: {requests: {cpu: 1, memory: 120Mi}}}]}"
	node := machine("n0")
	for zone := range 2 {
		was := fmt.Sprintf("{name: node-%d, type: Node}", zone)
		node = strings.Replace(node, was, strings.TrimSuffix(was, "}")+", resources: [{name: memory, capacity: 128Mi, "+
			"allocatable: 128Mi, available: 128Mi}]}", 1)
	}
	for name, c := range map[string]struct{ a, state string }{
		"not resized":                    {there("a", 0, "100Mi", ""), Scheduled},
		"resized up":                     {there("a", 0, "120Mi", ""), Unschedulable},
		"resized beyond the NUMA node":   {there("a", 0, "140Mi", ""), Unschedulable},
		"a resize down that is not done": {there("a", 0, "80Mi", still), Unschedulable},
		"resized down":                   {there("a", 0, "80Mi", ""), Scheduled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := node + c.a + there("b", 1, "120Mi", "") + pod("new", "20Mi", "", "", "")
			r, _ := simulate(t, in, "-")
			if got := stateOf(r, "new"); got.State != c.state {
				t.Errorf("new is %s, want %s: %+v", got.State, c.state, got.Reasons)
			}
		})
	}
}
