package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTheFleetAtATime: what begins at the time counts, what ends then does not.
func TestTheFleetAtATime(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	p := Past{
		Nodes: []PastNode{
			{Node: "b", MilliCPU: 8000, From: at(0)}, {Node: "a", MilliCPU: 1500, From: at(2), To: at(5)},
		},
		Pods: []PastPod{
			{Pod: "d/x", Node: "b", MilliCPU: 2000, From: at(1), To: at(3)},
			{Pod: "d/y", Node: "b", MilliCPU: 500, From: at(3)},
			{Pod: "d/z", Node: "a", MilliCPU: 100, From: at(2)},
		},
	}
	a := NodeThen{Node: "a", Pods: 1, Requested: "100m", Allocatable: "1500m"}
	b := func(pods int, requested string) NodeThen {
		return NodeThen{Node: "b", Pods: pods, Requested: requested, Allocatable: "8"}
	}
	for second, want := range map[int][]NodeThen{
		-1: {}, 0: {b(0, "0")}, 2: {a, b(1, "2")}, 3: {a, b(1, "500m")}, 5: {b(1, "500m")},
	} {
		if diff := cmp.Diff(want, p.FleetAt(at(second))); diff != "" {
			t.Errorf("at %d: %s", second, diff)
		}
	}
}
