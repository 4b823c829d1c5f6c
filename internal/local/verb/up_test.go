package verb

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestTheListOfMachinesFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 80, 200} {
		var out strings.Builder
		testkit.Check(t, listMachines(&out, width))
		text := out.String()
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if width != 80 && len(lines) != 1+len(machine.Presets()) {
			t.Errorf("width %d: %d lines for %d machines:\n%s", width, len(lines), len(machine.Presets()), text)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); width > 0 && n > width {
				t.Errorf("width %d: a line of %d columns: %s", width, n, line)
			}
		}
		said := strings.Join(strings.Fields(text), " ")
		for _, d := range machine.Presets() {
			if want := d.Name + " " + d.Summary; !strings.Contains(said, want) {
				t.Errorf("width %d: lacks %q:\n%s", width, want, text)
			}
		}
	}
}
