package why

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestEachCodeStandsOnce: codes.json has no entry beyond the codes, and none twice.
func TestEachCodeStandsOnce(t *testing.T) {
	t.Parallel()
	var all map[string]json.RawMessage
	testkit.Check(t, json.Unmarshal(codesJSON, &all))
	keys := regexp.MustCompile(`(?m)^  "(\w+)": \{$`).FindAll(codesJSON, -1)
	if len(all) != int(numCodes) || len(keys) != int(numCodes) {
		t.Errorf("codes.json has %d entries with %d names, want one for each of %d codes", len(keys), len(all),
			numCodes)
	}
}

func TestWhichClassesAreCheckedOncePerPod(t *testing.T) {
	t.Parallel()
	for c := range Class(len(classNames)) {
		want := slices.Contains([]string{"Request", "Attention", "Gate", "Quota", "Gang"}, c.String())
		if got := c.OncePerPod(); got != want {
			t.Errorf("%q is checked once per pod: %t, want %t", c, got, want)
		}
	}
}

// TestCodesAreNamedAsTheirConstants reads the constants of codes.go.
func TestCodesAreNamedAsTheirConstants(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("codes.go")
	testkit.Check(t, err)
	block := regexp.MustCompile(`(?s)None Code = iota\n(.*?)\n\tnumCodes\n`).FindSubmatch(source)
	if block == nil {
		t.Fatal("codes.go has no block of constants from None to numCodes")
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)$`).FindAllSubmatch(block[1], -1) {
		got = append(got, string(m[1]))
	}
	var want []string
	for _, e := range registry[1:] {
		want = append(want, e.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names of codes.json (-) and constants (+):\n%s", diff)
	}
}

// TestEachCauseHasItsVariant: a variant is found by its place in the list.
func TestEachCauseHasItsVariant(t *testing.T) {
	t.Parallel()
	for code, last := range map[Code]int64{
		KubeletTopologyAffinity:  int64(ManyNodes),
		KubeletAdmission:         int64(OtherAmountHeld),
		InsufficientExclusiveCPU: int64(RequiredSpreadByPCPUs),
	} {
		if got := int64(len(variants[code])); got != last {
			t.Errorf("%s has %d variants, want %d", code, got, last)
		}
	}
}

func TestNamesAndTextsCostNothing(t *testing.T) { // not parallel: AllocsPerRun counts those of all goroutines
	r := Reason{Code: KubeletTopologyAffinity, Extra: int64(NoRoom)}
	if got := testing.AllocsPerRun(100, func() { _, _, _ = r.Code.String(), r.Code.Class(), r.Text() }); got > 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

func BenchmarkDecodeCodes(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decodeCodes()
	}
}
