package tune

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/isolate"
)

// Setting is one file that is to have another value than the original one.
type Setting struct {
	File string
	// want returns the value for an original one: that itself where nothing is to change.
	want func(original string) (string, error)
	// Wish is what pods ask for: when it changes, a file that another program owned is looked at anew.
	Wish string
	// IsLate reports that a write shows in the file some time later only: it is not read back, and not repeated.
	IsLate bool
}

// NewSetting returns the Setting of a file. want returns the value for an original one: that itself where nothing is to
// change.
func NewSetting(file, wish string, want func(original string) (string, error)) Setting {
	return Setting{File: file, Wish: wish, IsLate: file == Bans, want: want}
}

// Kind is the kind of a Finding.
type Kind string

// Kinds.
const (
	// Fixed: the kernel lets no program change the file, as that of an interrupt that its driver manages.
	Fixed Kind = "Fixed"
	// Foreign: another program has set the file.
	Foreign Kind = "Foreign"
	// Failed: the file could not be read, recorded or written, and is tried again.
	Failed Kind = "Failed"
)

// Finding is a file that does not have the value that pods ask for, or its original value.
type Finding struct {
	Kind Kind
	File string
	// Text says why, for people.
	Text string
}

// Back-off of a file that could not be set.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// maxReturns is how often in a row a file may have its original value again before that is another program's will. A
// driver that sets an interrupt up anew does it once.
const maxReturns = 3

// note is what is known of a file that is not set.
type note struct {
	Finding
	wish     string    // of the Setting
	identity string    // of a file that is Fixed
	attempts int       // writes that have failed
	next     time.Time // when the file is tried again
}

// Engine sets files as Settings say and restores them. Its methods must not be called at the same time.
type Engine struct {
	files Files
	dir   statedir.Dir
	boot  string
	clock clock.PassiveClock

	records map[string]record // as in the agent's folder; nil before they were read
	notes   map[string]*note  // files that could not be set
	returns map[string]int    // how often in a row a file has got its original value back
	lost    error             // why the records could not be read
}

// New returns an Engine that has read nothing yet. boot is the kernel's boot id.
func New(files Files, dir statedir.Dir, boot string, c clock.PassiveClock) *Engine {
	return &Engine{
		files: files, dir: dir, boot: boot, clock: c, notes: map[string]*note{}, returns: map[string]int{},
	}
}

// IsIdle reports whether the Engine has nothing to restore. It reads the records if that was not done yet.
func (e *Engine) IsIdle() bool {
	e.load()
	return len(e.records) == 0 && e.lost == nil
}

func (e *Engine) load() {
	if e.records == nil {
		e.records, e.lost = loadRecords(e.dir, e.boot)
	}
}

// change is a value to be written.
type change struct {
	Setting
	from, to string
}

// Reconcile makes files equal to what the settings say, in their order, and gives those that have no Setting any more
// their original values. It returns what is not as it should be.
func (e *Engine) Reconcile(settings []Setting) []Finding {
	e.load()
	var out []Finding
	if e.lost != nil {
		out = append(out, Finding{Failed, recordsFile, "original values are lost: " + e.lost.Error()})
	}
	saved := maps.Clone(e.records)
	var changes []change
	for _, s := range e.complete(settings) {
		if c, differs := e.compare(s); differs {
			changes = append(changes, c)
		}
	}
	if err := e.save(saved); err != nil {
		e.records = saved
		return append(out, Finding{Failed, recordsFile, "nothing is set: " + err.Error()})
	}
	saved = maps.Clone(e.records)
	for _, c := range changes {
		e.write(c)
	}
	if err := e.save(saved); err != nil {
		e.records = saved // which the next comparison corrects
	}
	for _, file := range slices.Sorted(maps.Keys(e.notes)) {
		out = append(out, e.notes[file].Finding)
	}
	return out
}

// complete appends a Setting for each record without one, and forgets what was noted of other files.
func (e *Engine) complete(settings []Setting) []Setting {
	known := map[string]bool{}
	for _, s := range settings {
		known[s.File] = true
	}
	all := slices.Clone(settings)
	for _, file := range slices.Sorted(maps.Keys(e.records)) {
		if !known[file] {
			known[file] = true
			all = append(all, Setting{
				File: file, want: func(original string) (string, error) { return original, nil }, IsLate: file == Bans,
			})
		}
	}
	maps.DeleteFunc(e.notes, func(file string, _ *note) bool { return !known[file] })
	maps.DeleteFunc(e.returns, func(file string, _ int) bool { return !known[file] })
	return all
}

// compare reads a file and returns what is to be written; false for nothing. The record of the file is then in the
// Engine, to be saved before the write.
func (e *Engine) compare(s Setting) (c change, differs bool) {
	now, err := e.files.Read(s.File)
	if isGone(err) {
		e.forget(s.File)
		return c, false
	}
	if err != nil {
		e.unreadable(s, err)
		return c, false
	}
	r, recorded := e.records[s.File]
	f := isolate.File{
		Now: canonical(s.File, now), Recorded: recorded && r.Identity == e.files.Identity(s.File),
		Original: canonical(s.File, r.Original), Before: canonical(s.File, r.Before),
		Asked: canonical(s.File, r.Asked), Written: canonical(s.File, r.Written),
		IsLate: s.IsLate, IsLeft: e.isLeft(s),
	}
	foreign := f.IsForeign()
	if f.Recorded = f.Recorded && !foreign; !f.Recorded {
		delete(e.records, s.File)
		r = record{Original: now}
		f.Original = f.Now
	}
	want, err := s.want(r.Original)
	if err != nil {
		e.failed(s, "has a value that cannot be used", err)
		return c, false
	}
	if f.Want = canonical(s.File, want); f.Want == f.Original {
		want = r.Original // to the letter
	}
	switch f.Next(foreign) {
	case isolate.Wait:
		return c, false
	case isolate.Keep:
		delete(e.notes, s.File)
		if f.Now == f.Original {
			delete(e.records, s.File)
		}
		return c, false
	case isolate.Yield:
		e.leave(s, "another program has set it to "+now)
		return c, false
	case isolate.Rewrite:
		if e.returns[s.File]++; e.returns[s.File] >= maxReturns {
			e.forget(s.File)
			e.leave(s, "another program sets it back to "+now)
			return c, false
		}
	case isolate.Write:
	}
	if n := e.notes[s.File]; n != nil && n.Kind == Failed && n.wish == s.Wish && e.clock.Now().Before(n.next) {
		return c, false
	}
	if !f.Recorded {
		r.Identity = e.files.Identity(s.File)
	}
	if !f.IsAsked() {
		delete(e.returns, s.File)
	}
	r.Before, r.Asked, r.Written = now, want, want
	e.records[s.File] = r
	return change{s, now, want}, true
}

// isLeft reports whether a file is another program's, or fixed, as far as is known.
func (e *Engine) isLeft(s Setting) bool {
	n := e.notes[s.File]
	return n != nil && (n.Kind == Foreign && n.wish == s.Wish ||
		n.Kind == Fixed && n.identity == e.files.Identity(s.File))
}

func (e *Engine) leave(s Setting, text string) {
	e.notes[s.File] = &note{Finding: Finding{Foreign, s.File, text}, wish: s.Wish}
}

// forget drops what is known of a file that is not the Engine's any more.
func (e *Engine) forget(file string) {
	delete(e.records, file)
	delete(e.returns, file)
	delete(e.notes, file)
}

// failed notes an error at a file.
func (e *Engine) failed(s Setting, what string, err error) {
	n := e.notes[s.File]
	if n == nil || n.Kind != Failed {
		n = &note{}
		e.notes[s.File] = n
	}
	n.Finding, n.wish = Finding{Failed, s.File, fmt.Sprintf("%s: %v", what, cause(err))}, s.Wish
	wait := lastRetry
	if n.attempts < 5 {
		wait = min(firstRetry<<n.attempts, lastRetry)
	}
	n.attempts++
	n.next = e.clock.Now().Add(wait)
}

// unreadable notes that a file cannot be read now. It is written as soon as it can be.
func (e *Engine) unreadable(s Setting, err error) {
	text := fmt.Sprintf("cannot be read: %v", cause(err))
	e.notes[s.File] = &note{Finding: Finding{Failed, s.File, text}, wish: s.Wish}
}

// cause returns the errno of an error without the path, which the Finding has.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// write makes one change, and settles the record of the file.
func (e *Engine) write(c change) {
	now, err := e.files.Read(c.File)
	if err == nil && !equal(c.File, now, c.from) {
		return // another program was faster: the next comparison sees what it did
	}
	if err == nil {
		err = e.files.Write(c.File, c.to)
	}
	if err == nil && !c.IsLate {
		now, err = e.files.Read(c.File)
	}
	r := e.records[c.File]
	switch {
	case isGone(err):
		e.forget(c.File)
		return
	case err != nil:
		e.refused(c, r, err)
		return
	}
	delete(e.notes, c.File)
	if c.IsLate {
		return // its record remains until the value shows
	}
	r.Written = now
	if e.records[c.File] = r; !equal(c.File, now, r.Original) {
		return
	}
	delete(e.records, c.File)
	if !equal(c.File, c.to, r.Original) {
		e.failed(c.Setting, fmt.Sprintf("cannot be set to %q", c.to), errUnchanged)
	}
}

// errUnchanged is a write that the kernel accepts and does not follow.
var errUnchanged = errors.New("the file keeps its value")

// refused notes why a change was not made. A file that still has its original value needs no record.
func (e *Engine) refused(c change, r record, err error) {
	if equal(c.File, c.from, r.Original) {
		delete(e.records, c.File)
		if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EPERM) {
			text := "the kernel does not let it change: " + cause(err).Error()
			e.notes[c.File] = &note{Finding: Finding{Fixed, c.File, text}, identity: r.Identity}
			return
		}
	}
	e.failed(c.Setting, fmt.Sprintf("cannot be set to %q", c.to), err)
}

// save saves the records if they differ from those that are saved.
func (e *Engine) save(saved map[string]record) error {
	if maps.Equal(saved, e.records) && e.lost == nil {
		return nil
	}
	err := saveRecords(e.dir, e.boot, e.records)
	if err == nil {
		e.lost = nil
	}
	return err
}
