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

// knownFailures is how many failures of other quota systems the reference lists, as Q1 to Q27.
const knownFailures = 27

// A test that guards against one of them says so in its comment: "Q12: " and the symptom.
func TestEveryKnownFailureOfQuotasHasATest(t *testing.T) {
	mark, found := regexp.MustCompile(`Q(\d+): \S`), map[int]bool{}
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
					n, _ := strconv.Atoi(m[1])
					found[n] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= knownFailures; n++ {
		if !found[n] {
			t.Errorf("no test names Q%d", n)
		}
	}
}
