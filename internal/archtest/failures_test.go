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

// knownFailures is how many failures of other systems the reference lists, by the letter of their names: Q1 to Q27 of
// quotas, F1 to F24 of gangs.
func knownFailures() map[string]int { return map[string]int{"Q": 27, "F": 24} }

// A test that guards against one of them says so in its comment: "Q12: " and the symptom.
func TestEveryKnownFailureHasATest(t *testing.T) {
	mark, found := regexp.MustCompile(`\b([QF]\d+): \S`), map[string]bool{}
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
					found[m[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for letter, last := range knownFailures() {
		for n := 1; n <= last; n++ {
			if name := letter + strconv.Itoa(n); !found[name] {
				t.Errorf("no test names %s", name)
			}
		}
	}
}
