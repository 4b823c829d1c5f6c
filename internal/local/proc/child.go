package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
	// calm is how long a child must have run to be started again after the shortest pause.
	calm = 5 * time.Second
	// stopLimit bounds the time between SIGTERM and SIGKILL.
	stopLimit = 8 * time.Second
	// startAttempts is how often a child may end before it was ever ready.
	startAttempts = 3
	pollInterval  = 100 * time.Millisecond
	// readyShare bounds the part of the time that is spent in Ready: the pause between two calls is at least so many
	// times the length of a call.
	readyShare = 5
)

// Spec describes a process that Start keeps running.
type Spec struct {
	Name    string
	Path    string // of the binary
	Args    []string
	LogFile string // gets standard output and standard error; appended to

	// Ready returns nil when the process serves. It is called again until it does.
	Ready func(context.Context) error
	// Ended is called each time the process ends without Stop: how it ended, and the pause before it is started again.
	Ended func(how error, pause time.Duration)
}

// Child is a supervised process.
type Child struct {
	spec Spec
	stop context.CancelFunc
	done chan struct{}
	dead chan error // receives how the process ended, until the process was ready for the first time

	pid atomic.Int64
}

// Start starts the process and returns when it is ready. It gives up when the process ends three times before that; the
// error then holds the end of its log.
func Start(ctx context.Context, spec Spec) (*Child, error) {
	run, stop := context.WithCancel(context.Background())
	c := &Child{spec: spec, stop: stop, done: make(chan struct{}), dead: make(chan error, startAttempts)}
	go c.supervise(run)
	if err := c.awaitReady(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// PID returns the id of the running process, 0 between two of them.
func (c *Child) PID() int { return int(c.pid.Load()) }

// Stop sends SIGTERM to the process, and SIGKILL after stopLimit, and waits for its end.
func (c *Child) Stop() {
	c.stop()
	<-c.done
}

func (c *Child) awaitReady(ctx context.Context) error {
	deaths, pause := 0, pollInterval
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", c.spec.Name, ctx.Err())
		case how := <-c.dead:
			if deaths++; deaths == startAttempts {
				return fmt.Errorf("%s does not start: %w%s", c.spec.Name, how, lastLines(c.spec.LogFile))
			}
		case <-time.After(pause):
			begun := time.Now()
			if c.PID() != 0 && c.spec.Ready(ctx) == nil {
				return nil
			}
			// Ready may take CPU time that the child needs.
			pause = max(pollInterval, readyShare*time.Since(begun))
		}
	}
}

// supervise starts the process again each time it ends, until ctx ends. It is locked to one thread: the kernel kills
// the child when the thread that started it ends.
func (c *Child) supervise(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	pause := firstPause
	for {
		begun := time.Now()
		how := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > calm {
			pause = firstPause
		}
		select {
		case c.dead <- how:
		default: // the process was ready before: no reader counts its ends
		}
		c.spec.Ended(how, pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

func (c *Child) run(ctx context.Context) error {
	log, err := os.OpenFile(c.spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, c.spec.Path, c.spec.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	if err := cmd.Start(); err != nil {
		return err
	}
	c.pid.Store(int64(cmd.Process.Pid))
	defer c.pid.Store(0)
	if err := cmd.Wait(); err != nil {
		return err
	}
	return errors.New("ended by itself")
}

// lastLines returns the end of a log for an error text, on lines of their own.
func lastLines(file string) string {
	const window, lines = 4 << 10, 5
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	end, _ := f.Seek(0, io.SeekEnd)
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, end-window), window))
	if err != nil || len(text) == 0 {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\nend of " + file + ":\n" + strings.Join(all[max(0, len(all)-lines):], "\n")
}
