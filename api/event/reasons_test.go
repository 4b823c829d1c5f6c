package event

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTextsAndReasonsMatch: each reason has its texts and each text its reason, in the order of the list, none twice.
func TestTextsAndReasonsMatch(t *testing.T) {
	t.Parallel()
	var want, got, constants []string
	for _, e := range facts[1:] {
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
	source, err := os.ReadFile("list.go")
	testkit.Check(t, err)
	block := regexp.MustCompile(`(?s)none Reason = iota\n(.*?)\n\n\tnumReasons\n`).FindSubmatch(source)
	if block == nil {
		t.Fatal("list.go has no block of constants from none to numReasons")
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)$`).FindAllSubmatch(block[1], -1) {
		constants = append(constants, string(m[1]))
	}
	if diff := cmp.Diff(want, constants); diff != "" {
		t.Errorf("names of facts (-) and constants (+):\n%s", diff)
	}
}
