package rulebook

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/desired"
)

// Story is a sequence of calls with the answers that every kernel of the dialect gives.
type Story struct {
	// Name says in words what is shown.
	Name     string
	Dialects []desired.Dialect
	steps    []step
}

// verb is what a step does.
type verb uint8

const (
	write    verb = iota // text to file
	read                 // file, which says text
	line                 // file, which comes to have the line text
	mkdir                // at
	rmdir                // at
	spawn                // the task text in at
	fork                 // file is the parent, text the child
	kill                 // everything at and below
	move                 // the task text to at
	affinity             // of the task file is text
	allowed              // the task file may run on text
	tasks                // at has exactly the tasks text
	unplug               // CPU 1
	replug               // CPU 1
)

func (v verb) String() string {
	return [...]string{
		"write", "read", "line", "mkdir", "rmdir", "spawn", "fork", "kill", "move", "affinity", "allowed", "tasks",
		"unplug", "replug",
	}[v]
}

type step struct {
	do             verb
	at, file, text string
	want           error
}

// patience is how long a line may take to appear.
const patience = time.Minute

// Tell runs the story on a kernel whose folder is empty, and leaves it empty.
func (s Story) Tell(t *testing.T, k Kernel, d desired.Dialect) {
	t.Helper()
	r := &teller{t: t, k: k, pids: map[string]int{}}
	defer r.clear()
	beginning := []step{
		{do: mkdir, at: "p"},
		{do: write, at: "p", file: desired.CPUs, text: "0-1"},
		{do: write, at: "p", file: desired.Mems, text: "0"},
	}
	if d == desired.V2 {
		beginning = append(beginning, step{do: write, at: "p", file: subtreeControl, text: "+cpuset +cpu +memory"})
	}
	beginning = append(beginning, step{do: mkdir, at: "p/c"})
	for _, x := range slices.Concat(beginning, s.steps) {
		if err := r.step(x); errors.Is(err, ErrHandsOff) {
			t.Skipf("NOT RUN: %s: %v", s.Name, err)
		} else if !errors.Is(err, x.want) {
			t.Errorf("%v %s %s %q: %v, want %v", x.do, x.at, x.file, x.text, err, x.want)
		}
	}
}

// teller is a story under way.
type teller struct {
	t    *testing.T
	k    Kernel
	pids map[string]int // by the task's name in the story
}

func (r *teller) step(s step) (err error) {
	switch s.do {
	case write:
		return r.k.Write(s.at, s.file, s.text)
	case read:
		return r.equal(s, func() (string, error) { return r.k.Read(s.at, s.file) })
	case line:
		return r.line(s)
	case mkdir:
		return r.k.Mkdir(s.at)
	case rmdir:
		return r.k.Rmdir(s.at)
	case spawn:
		r.pids[s.text], err = r.k.Spawn(s.at)
		return err
	case fork:
		r.pids[s.text], err = r.k.Fork(r.pids[s.file])
		return err
	case kill:
		return r.k.Kill(s.at)
	case move:
		return r.k.Write(s.at, procs, strconv.Itoa(r.pids[s.text]))
	case affinity:
		return r.k.Affinity(r.pids[s.file], s.text)
	case allowed:
		return r.equal(s, func() (string, error) { return r.k.Allowed(r.pids[s.file]) })
	case tasks:
		return r.equal(s, func() (string, error) { return r.tasks(s.at) })
	case unplug, replug:
		return r.k.Online(s.do == replug)
	}
	return errors.ErrUnsupported
}

func (r *teller) equal(s step, get func() (string, error)) error {
	r.t.Helper()
	got, err := get()
	if err == nil && got != s.text {
		r.t.Errorf("%v %s %s: %q, want %q", s.do, s.at, s.file, got, s.text)
	}
	return err
}

// line waits until a file has a line: some consequences take a kernel a moment.
func (r *teller) line(s step) error {
	r.t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		got, err := r.k.Read(s.at, s.file)
		if err != nil || slices.Contains(strings.Split(got, "\n"), s.text) {
			return err
		}
		if time.Now().After(end) {
			r.t.Errorf("%s/%s is %q, want a line %q", s.at, s.file, got, s.text)
			return nil
		}
	}
}

// tasks returns the names of a group's tasks, sorted.
func (r *teller) tasks(at string) (string, error) {
	text, err := r.k.Read(at, procs)
	if err != nil {
		return "", err
	}
	names := map[string]string{}
	for name, pid := range r.pids {
		names[strconv.Itoa(pid)] = name
	}
	var has []string
	for pid := range strings.FieldsSeq(text) {
		name, known := names[pid]
		if !known {
			name = "outsider " + pid
		}
		has = append(has, name)
	}
	slices.Sort(has)
	return strings.Join(has, " "), nil
}

// clear ends the tasks and removes the groups; what a story had made of them counts, not what it meant to.
func (r *teller) clear() {
	r.t.Helper()
	if err := r.k.Online(true); err != nil && !errors.Is(err, ErrHandsOff) {
		r.t.Errorf("bring CPU 1 back: %v", err)
	}
	for _, at := range []string{"p/c/d", "p/c", "p"} {
		if err := r.k.Kill(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Errorf("kill %s: %v", at, err)
		}
		if err := r.k.Rmdir(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Errorf("remove %s: %v", at, err)
		}
	}
	clear(r.pids)
}
