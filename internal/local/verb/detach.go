package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

// detach starts the cluster in a process of a session of its own, with simulated operators or not, passes on what it
// reports, and returns when it is ready.
func detach(ctx context.Context, dir datadir.Dir, operators bool, out io.Writer) error {
	if err := dir.Make(); err != nil {
		return cluster.Explain(err, dir)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the binary to start the cluster with: %w", err)
	}
	log, err := os.OpenFile(dir.Log("up"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return cluster.Explain(err, dir)
	}
	defer func() { _ = log.Close() }()
	reports, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = reports.Close() }()

	args := attached(os.Args[1:], "--data", dir.Root(), "--report-fd", "3",
		"--operators="+strconv.FormatBool(operators))
	// The cluster outlives this command: ctx ends only its start, below.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	cmd.Args[0] = name()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs} // becomes descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return fmt.Errorf("start the cluster's process: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	err = follow(reports, out)
	if err == nil {
		return nil // the process lives on; it is init's child when this one ends
	}
	if waitErr := cmd.Wait(); ctx.Err() != nil {
		return ctx.Err()
	} else if errors.Is(err, io.EOF) {
		return fmt.Errorf("the cluster's process ended while it started (%w), its log is %s", waitErr, dir.Log("up"))
	}
	return err
}

// attached returns the arguments of the process that does what the user's arguments say, and stays in the foreground.
// Of a flag that is repeated the last one counts; behind "--" there are no flags.
func attached(user []string, more ...string) []string {
	if end := slices.Index(user, "--"); end >= 0 {
		user = user[:end]
	}
	return slices.Concat(user, []string{"--detach=false", "--demo=false"}, more)
}

// follow prints reports until the start is over. It returns io.EOF when they end before that.
func follow(reports io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(reports)
	for {
		var l line
		if err := decoder.Decode(&l); err != nil {
			return io.EOF
		}
		switch {
		case l.Ready:
			return nil
		case l.Error != "":
			return &cluster.ExitError{Err: errors.New(l.Error), Code: l.Code}
		}
		_, _ = fmt.Fprintln(out, view.WrapLines(l.Text, progress.Width(out))) // nowhere else to tell
	}
}

func codeOf(err error) int {
	if own, ok := errors.AsType[*cluster.ExitError](err); ok {
		return own.Code
	}
	return 1
}

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
			_, _ = fmt.Fprintln(c.out, view.WrapLines(l.Text, progress.Width(c.out))) // nowhere else to tell
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
	fmt.Fprintf(&b, "Ready in %.1f s: %s (%s)\n", took.Seconds(), view.Count(len(names), "node"),
		cluster.Few(names))
	fmt.Fprintf(&b, "  export %sKUBECONFIG=%s\n", pathOf(name()), dir.Kubeconfig())
	fmt.Fprintf(&b, "  look   %[1]s topology · %[1]s top · %[1]s explain · %[1]s kubectl get pods\n", name())
	if pages != "" {
		fmt.Fprintf(&b, "  open   %s (the console, in a browser on this machine)\n", pages)
	}
	fmt.Fprintf(&b, "  stop   %[1]s down%[2]s, %[1]s down%[2]s --purge (removes the data)", name(), dir.Flag())
	return b.String()
}

// pathOf is what makes tenon a command that the pages can name, where it was started by its path.
func pathOf(program string) string {
	folder, err := filepath.Abs(filepath.Dir(program))
	if filepath.Base(program) == program || err != nil {
		return ""
	}
	return "PATH=" + folder + ":$PATH "
}

func name() string { return os.Args[0] }
