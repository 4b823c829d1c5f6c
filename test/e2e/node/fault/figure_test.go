//go:build e2e_node

package fault

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// figure is what a fault came to.
type figure struct {
	fault string
	times int
	// lost is the longest time for which a bound container ran on other CPUs than its own, crowded that for which
	// another one ran on the CPUs of a bound one; each with what it may come to.
	lost, mayLose, crowded, mayCrowd time.Duration
	// healed is the longest time from the end of the fault until all was in order.
	healed time.Duration
	// shown are the metric and the Event that showed it.
	metric, event string
}

var figures struct {
	sync.Mutex
	all []figure
}

// check judges what a watch has seen and keeps the figure.
func (f figure) check(t testing.TB, e *exposures) {
	t.Helper()
	if f.metric == "" || f.event == "" {
		t.Errorf("%s: shown by the metric %q and the Event %q, want both", f.fault, f.metric, f.event)
	}
	lost, crowded, began := e.result()
	f.lost, f.crowded = lost.longest, crowded.longest
	if f.lost > f.mayLose {
		t.Errorf("%s: a bound container was outside its set for %v, allowed are %v: %s", f.fault, f.lost, f.mayLose,
			lost.worst)
	}
	if f.crowded > f.mayCrowd {
		t.Errorf("%s: a container was on the CPUs of a bound one for %v, allowed are %v: %s", f.fault, f.crowded,
			f.mayCrowd, crowded.worst)
	}
	for _, text := range began {
		t.Errorf("%s: a bound container began unenforced: %s", f.fault, text)
	}
	figures.Lock()
	defer figures.Unlock()
	figures.all = append(figures.all, f)
}

// printFigures writes the table of all faults.
func printFigures(to io.Writer) {
	figures.Lock()
	defer figures.Unlock()
	if len(figures.all) == 0 {
		return
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w,
		"fault\ttimes\tbound outside its set (allowed)\tothers on its CPUs (allowed)\thealed after\tmetric\tEvent")
	for _, f := range figures.all {
		fmt.Fprintf(w, "%s\t%d\t%v (%v)\t%v (%v)\t%v\t%s\t%s\n", f.fault, f.times,
			short(f.lost), short(f.mayLose), short(f.crowded), short(f.mayCrowd), short(f.healed), f.metric, f.event)
	}
	_ = w.Flush()
}

func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
