package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/prometheus/procfs"
)

// Owner is the process that runs a cluster.
type Owner struct {
	PID   int
	Start uint64 // clock ticks since boot, from /proc: distinguishes the process from a later one with the same id.
}

// InUse is the error of a data folder that another process runs a cluster on.
type InUse struct {
	Dir   string
	Owner Owner
}

func (e *InUse) Error() string {
	return fmt.Sprintf("a cluster already runs on %s: process %d", e.Dir, e.Owner.PID)
}

// Lock takes the folder for this process, until the file is closed or the process ends. The file stays: its presence
// marks a data folder. It returns *InUse when another process has the folder.
func (d Dir) Lock() (io.Closer, error) {
	f, err := os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = record(f)
	}
	if err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &InUse{Dir: d.root, Owner: readOwner(f)}
		}
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return held{f}, nil
}

// held is a lock that this process has. Each child process shares its open file between fork and exec.
type held struct{ *os.File }

// Close releases the lock at once, also where a child process still shares the file.
func (h held) Close() error {
	return errors.Join(syscall.Flock(int(h.Fd()), syscall.LOCK_UN), h.File.Close())
}

// Running returns the process that runs a cluster on the folder, if one does. It returns *NotPrivate as Make does: the
// lock of such a folder may name any process.
func (d Dir) Running() (Owner, bool, error) {
	if err := checkPrivate(d.root, os.Geteuid()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Owner{}, false, err
	}
	f, err := os.Open(d.path("lock"))
	if errors.Is(err, os.ErrNotExist) {
		return Owner{}, false, nil
	}
	if err == nil {
		defer func() { _ = f.Close() }()
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return readOwner(f), true, nil
	}
	if err != nil {
		err = fmt.Errorf("read lock of data folder: %w", err)
	}
	return Owner{}, false, err
}

// Alive reports whether the very process that o names still exists.
func (o Owner) Alive() bool {
	start, err := startTime(o.PID)
	return err == nil && start == o.Start
}

// Signal sends s to the process, unless its id has passed to another one.
func (o Owner) Signal(s syscall.Signal) error {
	if o.PID <= 1 || !o.Alive() {
		return fmt.Errorf("process %d has ended", o.PID)
	}
	return syscall.Kill(o.PID, s)
}

func record(f *os.File) error {
	start, err := startTime(os.Getpid())
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(fmt.Sprintf("%d %d\n", os.Getpid(), start)), 0)
	return err
}

func readOwner(f *os.File) Owner {
	var o Owner
	if _, err := fmt.Fscanf(io.NewSectionReader(f, 0, 64), "%d %d", &o.PID, &o.Start); err != nil {
		return Owner{}
	}
	return o
}

// startTime returns when a process started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return s.Starttime, err
}
