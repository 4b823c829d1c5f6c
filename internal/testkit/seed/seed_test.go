package seed_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const shown = "drawn: "

// TestDraw prints what it draws, for the test below.
func TestDraw(t *testing.T) {
	var drawn []string
	rapid.Check(t, func(t *rapid.T) {
		drawn = append(drawn, rapid.StringMatching(`[a-z]{8}`).Draw(t, "word"))
	})
	t.Log(shown + strings.Join(drawn, " "))
}

func TestPropertyTestsMeetTheSameCasesInEveryRun(t *testing.T) {
	t.Parallel()
	draw := func(seed string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0],
			append([]string{"-test.run=^TestDraw$", "-test.v"}, args...)...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RAPID_SEED=") })
		if seed != "" {
			cmd.Env = append(cmd.Env, "RAPID_SEED="+seed)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, drawn, found := strings.Cut(string(out), shown)
		if !found {
			t.Fatalf("the run shows no words:\n%s", out)
		}
		drawn, _, _ = strings.Cut(drawn, "\n")
		return drawn
	}
	first := draw("")
	if second := draw(""); second != first {
		t.Errorf("two runs draw\n%s\n%s", first, second)
	}
	if draw("", "-rapid.seed=2") == first {
		t.Error("-rapid.seed does not replace the seed")
	}
	if draw("2") != first {
		t.Error("RAPID_SEED=2 draws cases of its own, which Go's cache of test results does not know")
	}
	fresh := draw("", "-rapid.seed=0")
	if again := draw("", "-rapid.seed=0"); again == fresh {
		t.Error("-rapid.seed=0 draws the same cases twice")
	}
}
