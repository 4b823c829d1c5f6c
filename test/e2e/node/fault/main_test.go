//go:build e2e_node

package fault

import (
	"flag"
	"io"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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
		logs := flag.NewFlagSet("logs", flag.PanicOnError)
		klog.InitFlags(logs)
		_ = logs.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
		klog.SetOutput(io.Discard)
	}
	// client-go's second handler waits since the last error of the process, on whose clock that ever was: the clocks
	// here are many.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	code := w.m.Run()
	printFigures(os.Stdout)
	return code
}
