package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// lockFile is held, below the Root, by the agent that works on the machine. The kernel lets go of it when the process
// ends, however it ends. Its text is the process, or stopped after an end that was asked for, and how often an agent
// ended otherwise; its time of modification is when the agent was last known to work.
const lockFile = "var/lib/tenon-agent/lock"

// refusedFile grows by a byte with each agent that was refused because another one holds the lock.
const refusedFile = "var/lib/tenon-agent/refused"

// wasStopped stands in the lock file where a process would.
const wasStopped = "stopped"

// ErrSecondAgent is returned by Run where another agent works on the same machine: two would undo each other's writes.
var ErrSecondAgent = errors.New("another agent works on this machine")

// held is the lock of a machine.
type held struct {
	root host.Root
	f    *os.File
	// unclean: the agent before this one was not stopped; it was last known to work at alive. ends counts all of those.
	unclean bool
	alive   time.Time
	ends    int
	counted int64 // refusals in refusedFile that refused has returned
}

// lock makes sure that one agent works on a machine, from now on.
func lock(root host.Root, now time.Time) (*held, error) {
	path := root.Path(lockFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := readLock(f) // the text is a courtesy
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			countRefused(root)
			return nil, fmt.Errorf("%w: process %s holds %s", ErrSecondAgent, holder, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	h := &held{root: root, f: f}
	h.takeOver(now)
	return h, nil
}

// takeOver learns how the agent before this one ended, and makes the file this one's. What cannot be read or written is
// no reason not to work: the disk may be full.
func (h *held) takeOver(now time.Time) {
	owner, ends := readLock(h.f)
	h.ends = ends
	if s, err := h.f.Stat(); err == nil && owner != "" && owner != wasStopped {
		h.unclean, h.alive = true, s.ModTime()
		h.ends++
	}
	h.write(fmt.Sprint(os.Getpid()))
	h.beat(now)
	_ = os.Remove(h.root.Path(refusedFile)) // the previous agent counted it, or it is missing
}

// write puts an owner into the file. All texts have one length, so that a full disk has room for the next one.
func (h *held) write(owner string) {
	_, _ = h.f.WriteAt(fmt.Appendf(nil, "%-10s %10d\n", owner, h.ends), 0)
}

// readLock returns the owner of a lock file and the number of ends; "" and 0 for what is missing.
func readLock(f *os.File) (owner string, ends int) {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 64))
	fields := strings.Fields(string(text))
	if len(fields) > 0 {
		owner = fields[0]
	}
	if len(fields) > 1 {
		_, _ = fmt.Sscan(fields[1], &ends)
	}
	return owner, max(ends, 0)
}

// countRefused records for the agent that holds the lock that another one was refused.
func countRefused(root host.Root) {
	f, err := os.OpenFile(root.Path(refusedFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return // the refused agent reports it, too
	}
	_, _ = f.WriteString("+")
	f.Close()
}

// beat notes that the agent works.
func (h *held) beat(now time.Time) { _ = os.Chtimes(h.root.Path(lockFile), now, now) }

// refused returns how many agents were refused since it was last asked.
func (h *held) refused() int64 {
	s, err := os.Stat(h.root.Path(refusedFile))
	if errors.Is(err, fs.ErrNotExist) {
		h.counted = 0
	}
	if err != nil {
		return 0
	}
	more := max(s.Size()-h.counted, 0)
	h.counted = s.Size()
	return more
}

// stopped notes that the agent ends because it was asked to.
func (h *held) stopped() { h.write(wasStopped) }

func (h *held) release() { h.f.Close() }
