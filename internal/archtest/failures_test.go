package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// listed is how much the references list, by the letter of its names: failures of other systems, Q1 to Q27 with quotas
// and F1 to F24 with gangs, and what always holds of gangs, G1 to G14.
func listed() map[string]int { return map[string]int{"Q": 27, "F": 24, "G": 14} }

// A test that guards against a failure says so in its comment: "Q12: " and the symptom. One of what always holds says
// "TestX is G12".
func TestAllThatTheReferencesListHasATest(t *testing.T) {
	mark, found := regexp.MustCompile(`\b([QF]\d+): \S|\b(G\d+)\b`), map[string]bool{}
	for _, folder := range []string{"internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "failures_test.go" &&
				strings.Contains(path, "archtest") {
				return err
			}
			text, err := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				_, line, _ = strings.Cut(line, "// ")
				for _, m := range mark.FindAllStringSubmatch(line, -1) {
					found[m[1]+m[2]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for letter, last := range listed() {
		for n := 1; n <= last; n++ {
			if name := letter + strconv.Itoa(n); !found[name] {
				t.Errorf("no test names %s", name)
			}
		}
	}
}
