//go:build e2e_node

package fault

import (
	"flag"
	"io"
	"os"
	"testing"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestMain(m *testing.M) {
	os.Exit(stage.Main(withFigures{m}, stage.Needs{
		Title: "faults", Unit: "cases", Plane: true, Binaries: []string{"tenon-agent"},
	}))
}

// withFigures prints the table behind the tests.
type withFigures struct{ m *testing.M }

// Run implements stage.Tests.
func (w withFigures) Run() int {
	flag.Parse()
	if !testing.Verbose() { // agents in this process tell much of servers that are gone
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	code := w.m.Run()
	printFigures(os.Stdout)
	return code
}
