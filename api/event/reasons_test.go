package event

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestReasonsMatchTheirConstants: reasons.json has an entry for each constant of list.go, in their order, none twice.
func TestReasonsMatchTheirConstants(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("list.go")
	testkit.Check(t, err)
	block := regexp.MustCompile(`(?s)none Reason = iota\n(.*?)\n\n\tnumReasons\n`).FindSubmatch(source)
	if block == nil {
		t.Fatal("list.go has no block of constants from none to numReasons")
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)$`).FindAllSubmatch(block[1], -1) {
		want = append(want, string(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?m)^  "(\w+)": \{$`).FindAllSubmatch(reasonsJSON, -1) {
		got = append(got, string(m[1]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("constants (-) and names of reasons.json (+):\n%s", diff)
	}
	var all map[string]json.RawMessage
	testkit.Check(t, json.Unmarshal(reasonsJSON, &all))
	if len(all) != len(got) || Reason(len(got)).String() != got[len(got)-1] {
		t.Errorf("reasons.json has %d names on lines of their own and %d in all; the last Reason is %s", len(got),
			len(all), Reason(len(got)))
	}
}
