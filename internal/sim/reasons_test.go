package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheRootCauseStandsFirst: a pod that selects a cordoned node is told so before the selector, which more nodes do
// not match.
func TestTheRootCauseStandsFirst(t *testing.T) {
	t.Parallel()
	cordoned := strings.Replace(cpuNode("n2", 4), "status:", "spec: {unschedulable: true}, status:", 1)
	pod := cpuPod("p", 1, "", ", nodeSelector: {kubernetes.io/hostname: n2}")
	r, _ := simulate(t, cpuNode("n0", 4)+cpuNode("n1", 4)+cordoned+pod, "-")
	checkReasons(t, r, "p", "NodeUnschedulable 1", "NodeAffinity 2")
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
