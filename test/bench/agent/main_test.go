//go:build e2e_node

package agent

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestMain(m *testing.M) {
	if os.Getenv(loadVariable) != "" {
		work()
		return
	}
	os.Exit(stage.Main(withTable{m}, stage.Needs{
		Title: "bench-agent", Unit: "measurements", Plane: true,
		Binaries: []string{"tenon-agent", "tenon-runtime-proxy"},
	}))
}

// withTable prints the table behind the measurements.
type withTable struct{ m *testing.M }

// Run implements stage.Tests.
func (w withTable) Run() int {
	nrilog.Set(silent{})
	code := w.m.Run()
	table.print(os.Stdout)
	return code
}

// rows is a table in Markdown.
type rows struct {
	sync.Mutex
	all [][4]string
}

var table rows

// add adds a row: what was measured, without us, with us, and what was promised.
func (r *rows) add(what, without, with, promised string) {
	r.Lock()
	defer r.Unlock()
	r.all = append(r.all, [4]string{what, without, with, promised})
}

func (r *rows) print(w io.Writer) {
	r.Lock()
	defer r.Unlock()
	fmt.Fprintln(w, "\n| | without | with the agent | promised |\n|---|---|---|---|")
	for _, row := range r.all {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", row[0], row[1], row[2], row[3])
	}
	fmt.Fprintln(w)
}

// times are durations of one kind of call.
type times []time.Duration

// at returns a quantile, in percent.
func (t times) at(percent int) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Clone(t)
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)*percent/100]
}

// rounds is how often a measurement is repeated. The quietest round counts: other work on the machine only ever adds.
const rounds = 5

// quietest returns the index of the round with the lowest 99th percentile.
func quietest(all []times) int {
	best := 0
	for i := range all {
		if all[i].at(99) < all[best].at(99) {
			best = i
		}
	}
	return best
}

// String returns the median and the 99th percentile.
func (t times) String() string { return fmt.Sprintf("%v / %v", short(t.at(50)), short(t.at(99))) }

// over is what t takes more than base, at the median and at the 99th percentile.
func (t times) over(base times) string {
	return fmt.Sprintf("+%v / +%v", short(t.at(50)-base.at(50)), short(t.at(99)-base.at(99)))
}

func short(d time.Duration) time.Duration {
	if d > 10*time.Millisecond || d < -10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
