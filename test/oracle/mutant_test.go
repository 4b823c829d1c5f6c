package oracle

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

var (
	runMutants = flag.Bool("oracle.mutants", false,
		"put every seeded fault of the model to the oracle; needs a built -oracle.program")
	mutantStates = flag.String("oracle.mutant-states", "60000", "admissions within which a fault must be noticed")
)

func core(file string) string { return filepath.Join("..", "..", "internal", "core", file) }

// mutated is a file of internal/core with the fault.
func mutated(t *testing.T, m mutant) string {
	t.Helper()
	b, err := os.ReadFile(core(m.file))
	testkit.Check(t, err)
	if n := strings.Count(string(b), m.from); n != 1 || m.from == m.to {
		t.Fatalf("%s: %q occurs %d times, want once", m.file, m.from, n)
	}
	return strings.Replace(string(b), m.from, m.to, 1)
}

// TestMutantsAreFaultsOfTheModel: each changes one place of the code as it is now.
func TestMutantsAreFaultsOfTheModel(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		mutated(t, m)
	}
	if len(mutants) != 23 {
		t.Errorf("%d mutants, want 23", len(mutants))
	}
}

// TestMutantsAreKilled runs the oracle over each fault.
func TestMutantsAreKilled(t *testing.T) {
	if !*runMutants {
		t.Skip("NOT RUN: 23 faults of the model, each built and put to the oracle: half an hour (make oracle-mutants)")
	}
	for _, m := range mutants {
		dir := t.TempDir()
		source, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
		original, err := filepath.Abs(core(m.file))
		testkit.Check(t, err)
		b, err := json.Marshal(map[string]map[string]string{"Replace": {original: source}})
		testkit.Check(t, err)
		for file, text := range map[string]string{source: mutated(t, m), overlay: string(b)} {
			testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
		}
		args := []string{
			"test", "-overlay", overlay, "-tags", "nomsgpack oracle", "-count", "1", "-timeout", "1h", "-run",
			"TestAgreesWithTheKubelet", ".",
			"-oracle.seed", "1", "-oracle.states", *mutantStates, "-oracle.program",
			flag.Lookup("oracle.program").Value.String(),
		}
		out, err := exec.Command("go", args...).CombinedOutput()
		switch text := string(out); {
		case err == nil:
			t.Errorf("SURVIVED  %s: %s", m.file, m.to)
		case !strings.Contains(text, "oracle kubelet=") || strings.Contains(text, "undocumented=0 "):
			t.Errorf("NOT RUN  %s: %s\n%s", m.file, m.to, text)
		default:
			_, line, _ := strings.Cut(text, "oracle kubelet=")
			line, _, _ = strings.Cut(line, "\n")
			t.Logf("killed  %s: %s  (%s)", m.file, m.to, line)
		}
	}
}
