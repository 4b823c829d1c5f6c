package annotation_test

import (
	"testing"

	. "github.com/tenon-project/tenon/api/annotation"
)

func TestAllocationsOfThirdPartiesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1k"}}]}`: "",
		`{}`: "",
		`{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"-1"}}]}`: "byte 15: allocations: " +
			"resources[kubernetes.io/batch-cpu] must not be negative, is -1",
		`{"allocations":[{"resources":{"kubernetes.io/batch-cpu":"NaN"}}]}`: "any",
		`{"allocations":"all"}`: "any",
		`[]`:                    "any",
	} {
		got := ""
		if _, _, err := ParseThirdPartyAllocations(text); err != nil {
			got = err.Error()
		}
		if got != want && (want != "any" || got == "") {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func FuzzThirdPartyAllocations(f *testing.F) {
	roundTrip(f, ParseThirdPartyAllocations, `{"allocations":[{"name":"hadoop-yarn","priority":"koord-batch",`+
		`"resources":{"kubernetes.io/batch-cpu":"10k","kubernetes.io/batch-memory":"10Gi"}}]}`)
}
