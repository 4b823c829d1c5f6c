package apply

import (
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/internal/agent/desired"
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

// Kind is the kind of a Record.
type Kind uint8

// Kinds.
const (
	// Drifted: another program changed a value that the Engine had set. A repair follows.
	Drifted Kind = iota
	// DriftRepaired: the value is set again.
	DriftRepaired
	// EffectiveWiderThanDesired: the kernel gives a group more CPUs than were written to it.
	EffectiveWiderThanDesired
	// EnforcementFailed: a value could not be set; it will be tried again.
	EnforcementFailed
	// OrphanHeld: a group of a pod that the API does not know has CPUs that no other group uses; they are held for it.
	OrphanHeld
	// CheckpointLost: the checkpoint cannot be read; which orphans had exclusive CPUs is guessed from the tree.
	CheckpointLost
	// AllocationRefused: the allocation of a running pod changed; the pod keeps the CPUs that it was granted.
	AllocationRefused
)

// String returns the kind as Events and metrics spell it.
func (k Kind) String() string {
	return [...]string{
		"Drifted", "DriftRepaired", "EffectiveWiderThanDesired", "EnforcementFailed", "OrphanHeld", "CheckpointLost",
		"AllocationRefused",
	}[k]
}

// Record is one thing that happened to a file of the tree.
type Record struct {
	Kind Kind
	// UID, Namespace, Name and Container say whose group it is.
	UID, Namespace, Name, Container string
	Group, File                     string
	// Want is the value of the table, Got what the kernel has.
	Want, Got string
	// Err is the kernel's refusal, for EnforcementFailed.
	Err error
}

// record is one about the cpuset of a leaf.
func (l *leaf) record(kind Kind, want, got string) Record {
	return Record{
		Kind: kind, UID: l.uid, Container: l.container, Group: l.path, File: desired.CPUs, Want: want, Got: got,
	}
}

// record keeps r until the turn ends.
func (e *Engine) record(r Record) {
	e.mu.Lock()
	if p := e.pods[r.UID]; p != nil {
		r.Namespace, r.Name = p.Entry.Namespace, p.Entry.Name
	}
	e.mu.Unlock()
	e.outbox = append(e.outbox, r)
}
