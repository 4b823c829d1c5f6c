package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// lockFile is held, below the Root, by the agent that works on the machine. The kernel lets go of it when the process
// ends, however it ends.
const lockFile = "var/lib/tenon-agent/lock"

// ErrSecondAgent is returned by Run where another agent works on the same machine: two would undo each other's writes.
var ErrSecondAgent = errors.New("another agent works on this machine")

// lock makes sure that one agent works on a machine.
func lock(root host.Root) (unlock func(), err error) {
	path := root.Path(lockFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32)) // the text is a courtesy
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: process %s holds %s", ErrSecondAgent, strings.TrimSpace(string(holder)), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	_ = errors.Join(f.Truncate(0), writePID(f)) // whose it is helps to find it: a full disk is no reason not to work
	return func() { f.Close() }, nil
}

func writePID(f *os.File) error {
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}
