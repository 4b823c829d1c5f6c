//go:build e2e_node

package fault

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// figure is what a fault came to.
type figure struct {
	fault string
	times int
	// exposed is the longest time for which a container ran outside its set, allowed what it may come to; healed the
	// longest from the end of the fault until all was in order.
	exposed, allowed, healed time.Duration
	// told are the metric and the Event that showed it.
	metric, event string
}

var figures struct {
	sync.Mutex
	all []figure
}

func (f figure) keep() {
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
	fmt.Fprintln(w, "fault\ttimes\toutside its set\tallowed\thealed after\tmetric\tEvent")
	for _, f := range figures.all {
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%s\t%s\n", f.fault, f.times, short(f.exposed), short(f.allowed), short(f.healed), f.metric, f.event)
	}
	_ = w.Flush()
}

func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
