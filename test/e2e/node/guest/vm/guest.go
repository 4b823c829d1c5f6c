package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// scriptLimit bounds a script for which its caller's context sets no earlier end.
const scriptLimit = 10 * time.Minute

// Programs is where a guest finds its programs.
const Programs = "/opt/tenon"

// Host is the address under which a guest reaches the loopback of the host.
const Host = "10.0.2.2"

// Address is a guest's own.
const Address = "10.0.2.15"

// Guest is a running machine that takes scripts. Its methods are safe for concurrent use.
type Guest struct {
	machine *machine
	port    *port
	dir     string
}

// Start resumes the guest that Prepare saved in disk, or boots one where disk is "". programs are put below Programs:
// names there to files here. The guest ends with Stop, or with this process.
func (i Image) Start(ctx context.Context, s Shape, disk string, programs map[string]string) (_ *Guest, err error) {
	dir, err := os.MkdirTemp("", workPrefix())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	d := disks{
		overlay: filepath.Join(dir, "disk.qcow2"), backing: i.file("root.ext4"),
		programs: filepath.Join(dir, "programs"),
	}
	saved := snapshotName
	if disk == "" {
		saved = ""
		if err := i.overlay(ctx, d.overlay); err != nil {
			return nil, err
		}
	} else {
		out, err := exec.CommandContext(ctx, "cp", "--reflink=auto", disk, d.overlay).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("copy the prepared disk: %w: %s", err, out)
		}
	}
	if err := pack(ctx, d.programs, programs); err != nil {
		return nil, err
	}
	m, err := launch(dir, i, s, d, saved)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.kill())
		}
	}()
	g, err := greet(ctx, m)
	if err != nil {
		return nil, err
	}
	g.dir = dir
	if _, err := g.Run(ctx, "mkdir -p "+Programs+" && mount -t ext4 -o ro /dev/vdb "+Programs); err != nil {
		return nil, err
	}
	return g, nil
}

// greet connects to a machine, waits until it answers, and sets its clock.
func greet(ctx context.Context, m *machine) (*Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	conn, err := m.dial(ctx, "port")
	if err != nil {
		return nil, err
	}
	p := newPort(conn)
	// The machine may boot for a while, and what is written before a reader is there is kept.
	if _, err := p.ask(ctx, wire.Request{Clock: time.Now().UnixNano()}); err != nil {
		conn.Close()
		select {
		case <-m.ended:
			return nil, m.fault()
		case <-time.After(time.Second): // the line breaks before the process is gone
			return nil, fmt.Errorf("the guest does not answer: %w\n%s", err, tail(filepath.Join(m.dir, "console")))
		}
	}
	return &Guest{machine: m, port: p}, nil
}

// Run runs a script in the guest's shell and returns what it printed, to either output. A script that fails is an error
// that has the output in its text. What the script leaves in the background goes on.
func (g *Guest) Run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptLimit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	a, err := g.port.ask(ctx, wire.Request{Run: script, LimitMillis: max(1, time.Until(deadline).Milliseconds())})
	switch {
	case err != nil:
		select {
		case <-g.machine.ended:
			err = g.machine.fault()
		default:
		}
		return "", fmt.Errorf("script in the guest: %w", err)
	case a.Code != 0:
		return a.Out, &Failed{Code: a.Code, Out: a.Out, Reason: a.Error}
	}
	return a.Out, nil
}

// Failed is the error of a script that ended with another code than 0.
type Failed struct {
	Code        int
	Out, Reason string
}

func (f *Failed) Error() string {
	return strings.TrimSpace(fmt.Sprintf("script in the guest: exit code %d %s\n%s", f.Code, f.Reason, f.Out))
}

// Process is the process id of the emulator.
func (g *Guest) Process() int { return g.machine.command.Process.Pid }

// Console returns the last lines of the guest's console.
func (g *Guest) Console() string { return tail(filepath.Join(g.machine.dir, "console")) }

// Stop ends the guest and removes its files.
func (g *Guest) Stop() error {
	g.port.conn.Close()
	return errors.Join(g.machine.kill(), os.RemoveAll(g.dir))
}

// workPrefix begins the names of the folders of guests. It is short: socket paths are limited to 107 bytes.
func workPrefix() string { return fmt.Sprintf("tenon-e2e-guest-%d-", os.Getpid()) }

// Sweep removes what processes left that were killed: the folders of their guests, and disks that they were preparing.
func (i Image) Sweep() error {
	var errs []error
	for pattern, before := range map[string]string{
		filepath.Join(os.TempDir(), "tenon-e2e-guest-*-*"): "tenon-e2e-guest-",
		i.file(unfinished + "*-*"):                         unfinished,
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), before), "-")
			pid, err := strconv.Atoi(number)
			if err != nil || pid == os.Getpid() || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				continue
			}
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}
