package apply

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// Back-off of a file that could not be set.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// fault is a file that could not be set.
type fault struct {
	text     string
	attempts int
	next     time.Time
}

// isBackingOff reports whether the file failed a moment ago and is not to be tried yet.
func (e *Engine) isBackingOff(f file) bool {
	x := e.faults[f]
	return x != nil && e.o.Clock.Now().Before(x.next)
}

// failed notes an error at a file and reports it once per text.
func (e *Engine) failed(f file, r Record, err error) {
	x := e.faults[f]
	if x == nil {
		x = &fault{}
		e.faults[f] = x
	}
	wait := lastRetry
	if x.attempts < 9 {
		wait = min(firstRetry<<x.attempts, lastRetry)
	}
	x.attempts++
	x.next = e.o.Clock.Now().Add(wait)
	if x.text == err.Error() {
		return
	}
	x.text = err.Error()
	r.Kind, r.Group, r.File, r.Err = EnforcementFailed, f.group, f.name, err
	e.record(r)
}

// nextRetry returns how long until a failed file is to be tried again; false when there is none.
func (e *Engine) nextRetry() (time.Duration, bool) {
	var first time.Time
	for _, x := range e.faults {
		if first.IsZero() || x.next.Before(first) {
			first = x.next
		}
	}
	if first.IsZero() {
		return 0, false
	}
	return max(0, first.Sub(e.o.Clock.Now())), true
}

// isGone reports whether a group vanished: its file is not there, or was removed while it was open.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
