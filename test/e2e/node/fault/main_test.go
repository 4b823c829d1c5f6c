//go:build e2e_node

package fault

import (
	"os"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestMain(m *testing.M) {
	os.Exit(stage.Main(withFigures{m}, stage.Needs{Level: 3, Unit: "faults", Binaries: []string{"tenon-agent"}}))
}

// withFigures prints the table behind the tests.
type withFigures struct{ m *testing.M }

// Run implements stage.Tests.
func (w withFigures) Run() int {
	code := w.m.Run()
	printFigures(os.Stdout)
	return code
}
