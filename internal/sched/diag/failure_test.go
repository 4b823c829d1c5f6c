package diag

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/why"
)

func TestFailureLines(t *testing.T) {
	t.Parallel()
	findings := []why.Finding{{Reason: why.Reason{Code: why.TopologyMissing}, Plugin: "NodeNUMAResource", Object: "z"}}
	for i := range 5 {
		findings = append(findings, why.Finding{
			Reason: why.Reason{Code: why.InsufficientCPU, Asked: 2, Free: int64(i % 2)}, Plugin: "NodeResourcesFit",
			Object: fmt.Sprintf("n%d", 4-i),
		})
	}
	want := "d/a NodeResourcesFit: Insufficient cpu: 5 nodes, e.g. n0, n1, n2\nd/a NodeNUMAResource: node(s) invalid " +
		"CPU Topology: 1 node, e.g. z\n"
	if diff := cmp.Diff(want, FailureLines("d/a", findings)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	once := []why.Finding{{Reason: why.Reason{Code: why.BadAnnotation}, Plugin: "NodeNUMAResource", Detail: "offset 3"}}
	if got, want := FailureLines("d/a", once), "d/a NodeNUMAResource: invalid annotation: offset 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
