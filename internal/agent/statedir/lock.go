package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockFile is held by the agent that works on the machine. The kernel lets go of it when the process
// ends, however it ends. Its text is the process, or stopped after an end that was asked for, and how often an agent
// ended otherwise; its time of modification is when the agent was last known to work.
const lockFile = "lock"

// refusedFile grows by a byte with each agent that was refused because another one holds the lock.
const refusedFile = "refused"

// wasStopped stands in the lock file where a process would.
const wasStopped = "stopped"

// ErrSecondAgent is returned by Lock where another agent works on the same machine: two would undo each other's writes.
var ErrSecondAgent = errors.New("another agent works on this machine")

// Lock is the lock of a machine.
type Lock struct {
	dir Dir
	f   *os.File
	// Unclean: the agent before this one was not stopped; it was last known to work at Alive. Ends counts all of those.
	Unclean bool
	Alive   time.Time
	Ends    int
	counted int64 // refusals in refusedFile that Refused has returned
}

// Lock makes sure that one agent works on a machine, from now on.
func (d Dir) Lock(now time.Time) (*Lock, error) {
	path := d.Path(lockFile)
	if err := os.MkdirAll(string(d), 0o755); err != nil {
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
			d.countRefused()
			return nil, fmt.Errorf("%w: process %s holds %s", ErrSecondAgent, holder, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{dir: d, f: f}
	l.takeOver(now)
	return l, nil
}

// takeOver learns how the agent before this one ended, and makes the file this one's. What cannot be read or written is
// no reason not to work: the disk may be full.
func (l *Lock) takeOver(now time.Time) {
	owner, ends := readLock(l.f)
	l.Ends = ends
	if s, err := l.f.Stat(); err == nil && owner != "" && owner != wasStopped {
		l.Unclean, l.Alive = true, s.ModTime()
		l.Ends++
	}
	l.write(fmt.Sprint(os.Getpid()))
	l.Beat(now)
	_ = os.Remove(l.dir.Path(refusedFile)) // the previous agent counted it, or it is missing
}

// write puts an owner into the file. All texts have one length, so that a full disk has room for the next one.
func (l *Lock) write(owner string) {
	_, _ = l.f.WriteAt(fmt.Appendf(nil, "%-10s %10d\n", owner, l.Ends), 0)
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
func (d Dir) countRefused() {
	f, err := os.OpenFile(d.Path(refusedFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return // the refused agent reports it, too
	}
	_, _ = f.WriteString("+")
	f.Close()
}

// Beat notes that the agent works.
func (l *Lock) Beat(now time.Time) { _ = os.Chtimes(l.dir.Path(lockFile), now, now) }

// Refused returns how many agents were refused since it was last asked.
func (l *Lock) Refused() int64 {
	s, err := os.Stat(l.dir.Path(refusedFile))
	if errors.Is(err, fs.ErrNotExist) {
		l.counted = 0
	}
	if err != nil {
		return 0
	}
	more := max(s.Size()-l.counted, 0)
	l.counted = s.Size()
	return more
}

// Stop notes that the agent ends because it was asked to.
func (l *Lock) Stop() { l.write(wasStopped) }

// Release lets another agent work on the machine.
func (l *Lock) Release() { l.f.Close() }
