package verb

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
)

// console reports the progress of a start until all is ready: in the foreground on standard output, in a detached
// process through a pipe to the process that the user started.
type console struct {
	mu     sync.Mutex // guards out and report
	out    io.Writer
	report *os.File // nil in the foreground and once the start is over
}

type line struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
	Ready bool   `json:"ready,omitempty"` // the last one of a good start
}

func (c *console) step(s cluster.Step) {
	if s.Took != 0 {
		s.Text = fmt.Sprintf("%6.1f s  %s", s.Took.Seconds(), s.Text)
	}
	c.say(s.Text)
}

func (c *console) say(text string) { c.send(line{Text: text}) }

// end passes the error of a detached start to the user's process; it returns err.
func (c *console) end(err error) error {
	if err != nil {
		c.send(line{Error: err.Error(), Code: codeOf(err)})
	}
	return err
}

func (c *console) send(l line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report == nil {
		if l.Text != "" {
			_, _ = fmt.Fprintln(c.out, l.Text) // nowhere else to tell
		}
		return
	}
	// The user's process may be gone; the cluster starts all the same.
	_ = json.NewEncoder(c.report).Encode(l)
	if l.Ready {
		_ = c.report.Close()
		c.report = nil
	}
}

// summary is what users read when all is ready; pages is the address of the console, if it is served.
func summary(dir datadir.Dir, c *cluster.Cluster, pages string, took time.Duration) string {
	var b strings.Builder
	names := make([]string, len(c.Nodes()))
	for i, n := range c.Nodes() {
		names[i] = n.Name
	}
	fmt.Fprintf(&b, "Ready in %.1f s: %d nodes (%s)\n", took.Seconds(), len(names), cluster.Few(names))
	fmt.Fprintf(&b, "  export KUBECONFIG=%s\n", dir.Kubeconfig())
	fmt.Fprintf(&b, "  look   %[1]s topology · %[1]s top · %[1]s explain · %[1]s kubectl get pods\n", name())
	if pages != "" {
		fmt.Fprintf(&b, "  open   %s (the console, in a browser on this machine)\n", pages)
	}
	fmt.Fprintf(&b, "  stop   %[1]s down%[2]s, %[1]s down%[2]s --purge (removes the data)", name(), dir.Flag())
	return b.String()
}

func name() string { return os.Args[0] }
