package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
)

// detach starts the cluster in a process of a session of its own, passes on what it reports, and returns when it is
// ready.
func detach(ctx context.Context, dir datadir.Dir, out io.Writer) error {
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

	// What the user said, for the process that will do it: of a flag that is repeated the last one counts.
	own := []string{"--data", dir.Root(), "--detach=false", "--demo=false", "--report-fd", "3"}
	args := slices.Concat(os.Args[1:], own)
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
		_, _ = fmt.Fprintln(out, l.Text) // nowhere else to tell
	}
}

func codeOf(err error) int {
	if own, ok := errors.AsType[*cluster.ExitError](err); ok {
		return own.Code
	}
	return 1
}
