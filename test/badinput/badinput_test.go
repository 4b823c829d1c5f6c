package badinput

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// bad is one case. try hands the input in, fails the test when anything changed, and returns what the user sees.
type bad struct {
	name string
	try  func(t *testing.T) string
	// says are the parts of the text that the user needs: the field, the rule, the allowed values.
	says []string
}

func TestMain(m *testing.M) {
	// The scheduler's command sets logging up once per process; here it runs many times.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	os.Exit(m.Run())
}

func TestBadInputGetsAClearTextAndChangesNothing(t *testing.T) {
	cases := slices.Concat(webhookCases(), schedulerCases(), deviceCases(), quotaCases(), gangCases(),
		alignmentCases(), agentCases(), simulateCases(), replayCases(), shadowCases(), commandCases(),
		movingCases(), diagnosticsCases())
	const promised = 490
	if len(cases) < promised {
		t.Errorf("%d cases, at least %d are promised", len(cases), promised)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			answer := c.try(t)
			for _, want := range c.says {
				if !strings.Contains(answer, want) {
					t.Errorf("got %q, want it to say %q", answer, want)
				}
			}
			if len(c.says) == 0 || strings.Contains(answer, "panic") || strings.Contains(answer, "goroutine ") {
				t.Errorf("no clear text: %q", answer)
			}
		})
	}
}

// digest identifies the state of a folder: names, modes and contents.
func digest(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, path, info.Mode(), info.Size())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(text)
		}
		return nil
	})
	testkit.Check(t, err)
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// unchanged fails the test if do changes the folder.
func unchanged(t *testing.T, dir string, do func()) {
	t.Helper()
	before := digest(t, dir)
	do()
	if digest(t, dir) != before {
		t.Errorf("%s is not as it was", dir)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	testkit.Check(t, os.WriteFile(path, []byte(text), 0o600))
}
