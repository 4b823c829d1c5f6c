package why

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTextsAndCodesMatch: each code has its texts and each text its code, in the order of the codes, none twice.
func TestTextsAndCodesMatch(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, e := range facts {
		want = append(want, e.Name)
	}
	for _, m := range regexp.MustCompile(`(?m)^  "(\w+)": \{$`).FindAllSubmatch(textsJSON, -1) {
		got = append(got, string(m[1]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names of facts (-) and of texts.json (+):\n%s", diff)
	}
	if keys := slices.Sorted(maps.Keys(decodeTexts())); len(keys) != len(got) {
		t.Errorf("texts.json has %d keys on lines of their own and %d in all: %v", len(got), len(keys), keys)
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
	for _, e := range facts[1:] {
		want = append(want, e.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names of facts (-) and constants (+):\n%s", diff)
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

func BenchmarkDecodeTexts(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decodeTexts()
	}
}
