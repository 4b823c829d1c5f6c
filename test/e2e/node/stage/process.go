//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Command is a program to run.
type Command struct {
	// Name is that of its log.
	Name string
	Path string
	Args []string
	// Env is set beside the environment of the tests.
	Env []string
}

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	command Command
	log     string
	cmd     *exec.Cmd
	done    chan struct{}

	mu  sync.Mutex // guards err
	err error
}

// Run starts a program. Its output is appended to log/NAME.log.
func (s *Stage) Run(c Command) *Process {
	s.t.Helper()
	p, err := s.run(c)
	must(s.t, err)
	return p
}

func (s *Stage) run(c Command) (*Process, error) {
	p := &Process{command: c, log: s.Path("log", c.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(context.Background(), c.Path, c.Args...)
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A group of its own: an interrupt of the tests is theirs to handle.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() {
		err := p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(p.done)
	}()
	s.processes = append(s.processes, p)
	return p, nil
}

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err returns how the process ended: nil for success, and while it runs.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Log returns what the process wrote, with earlier ones of the same name.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(no log of %s: %v)", filepath.Base(p.log), err)
	}
	return string(text)
}

// Kill ends the process at once and returns when it is gone.
func (p *Process) Kill() { p.signal(syscall.SIGKILL) }

// stopLimit bounds the wait for a process that was asked to end.
const stopLimit = 20 * time.Second

// Stop asks the process to end and returns when it has; one that does not is killed, and the test fails.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop %s: %v", p.command.Name, err)
	}
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		p.Kill()
		t.Errorf("%s did not end within %v of SIGTERM", p.command.Name, stopLimit)
	}
}

// Freeze stops the process from running, without ending it, until Thaw.
func (p *Process) Freeze() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended
	<-p.done
}
