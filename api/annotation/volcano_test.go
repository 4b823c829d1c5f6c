package annotation_test

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
)

func TestVolcanoTopologyPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"none": annotation.TopologyNone, "best-effort": annotation.TopologyBestEffort,
		"restricted": annotation.TopologyRestricted, "single-numa-node": annotation.TopologySingleNUMANode,
	} {
		got, warnings, err := annotation.ParseVolcanoTopologyPolicy(text)
		if got != want || len(warnings) != 0 || err != nil {
			t.Errorf("%q is %q, %v, %v; want %q", text, got, warnings, err, want)
		}
	}
	got, warnings, err := annotation.ParseVolcanoTopologyPolicy("Restricted")
	if got != annotation.TopologyRestricted || len(warnings) != 1 || err != nil {
		t.Errorf("another case is %q, %v, %v; want Restricted and a warning", got, warnings, err)
	}
	for _, text := range []string{"", "SingleNUMANode", "strict", "restricted "} {
		_, _, err := annotation.ParseVolcanoTopologyPolicy(text)
		if err == nil || !strings.Contains(err.Error(), "supported none, best-effort, restricted, single-numa-node") {
			t.Errorf("%q: error = %v, want one that lists the policies", text, err)
		}
	}
}
