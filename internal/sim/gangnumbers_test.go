package sim

import (
	"fmt"
	"strings"
	"testing"
)

// TestARefusalNamesTheMembersThatTakeTheRoom: the largest member of a gang that does not fit is refused on the node
// that would take it for its siblings there, and on the smaller node for the CPUs that this one has.
func TestARefusalNamesTheMembersThatTakeTheRoom(t *testing.T) {
	t.Parallel()
	r, _ := simulate(t, cpuNode("n0", 4)+cpuNode("n1", 3)+cpuPod("a0", 2, says("g", 3), "")+
		cpuPod("a1", 2, says("g", 3), "")+cpuPod("b0", 4, says("g", 3), ""), "-")
	text := fmt.Sprintf("%+v", r.Pods[2].Reasons)
	const members = "the gang's other members take it: default/a0"
	if !strings.Contains(text, members) || strings.Contains(text, "3.999") {
		t.Errorf("b0 is refused with %s, want %q", text, members)
	}
}
