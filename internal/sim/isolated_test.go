package sim

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

// TestIsolatedCPUsAreGivenToPodsThatAsk has a node of which CPUs 4-7 and their siblings are isolated.
func TestIsolatedCPUsAreGivenToPodsThatAsk(t *testing.T) {
	t.Parallel()
	wish := func(value string) string { return ", annotations: {tenon.sh/isolated-cpus: " + value + "}" }
	node := strings.Replace(machine("n0"), "annotations: {", `annotations: {node.tenon.sh/isolated-cpus: '{"isolated":`+
		`"4-7,20-23","noHzFull":"4-7,20-23"}', `, 1)
	r, warnings := simulate(t, node+
		exclusive("a-absent", 4, "LSE", "", "")+exclusive("b-prefer", 4, "LSR", wish("prefer"), "")+
		exclusive("c-require", 2, "LSE", wish("require"), "")+exclusive("d-require", 4, "LSE", wish("require"), "")+
		exclusive("e-prefer", 4, "LSE", wish("prefer"), "")+exclusive("f-wrong", 1, "LSE", wish("always"), ""), "-")
	for name, want := range map[string]struct {
		cpus, state string
		code        why.Code
	}{
		"a-absent": {"8-9,24-25", Scheduled, why.None}, "b-prefer": {"4-5,20-21", Scheduled, why.None},
		"c-require": {"6,22", Scheduled, why.None}, "d-require": {"", Unschedulable, why.InsufficientIsolatedCPU},
		"e-prefer": {"10-11,26-27", Scheduled, why.None}, "f-wrong": {"", Refused, why.BadAnnotation},
	} {
		got := stateOf(r, name)
		if got.CPUSet != want.cpus || got.State != want.state ||
			want.code != why.None && (len(got.Reasons) == 0 || got.Reasons[0].Code != want.code) {
			t.Errorf("%s: %s with CPUs %q, %+v; want %s with %q, %v", name, got.State, got.CPUSet, got.Reasons,
				want.state, want.cpus, want.code)
		}
	}
	if !strings.Contains(warnings, "the kernel moves no thread between isolated CPUs") {
		t.Errorf("the warnings are %q", warnings)
	}
	if pools := r.Nodes[0].BESharedPool; len(pools) != 2 || pools[0].CPUSet != "0-3,16-19" {
		t.Errorf("the BE pools are %+v", pools)
	}
}
