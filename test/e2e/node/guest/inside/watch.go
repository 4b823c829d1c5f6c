package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// classVariable is the variable with which a container of the tests reports its class of pod.
const classVariable = "TENON_CLASS="

// watch looks at all groups with processes again and again until a file appears, and prints what it saw.
func watch(args []string) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	root := flags.String("root", "/sys/fs/cgroup/kubepods", "group below which pods live")
	until := flags.String("until", "", "file whose appearance ends the watch")
	every := flags.Duration("every", 10*time.Millisecond, "pause between two rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *until == "" {
		return errors.New("--until is missing")
	}
	w := &watcher{root: *root, pools: map[string]bool{}, owners: map[string]bool{}, problems: map[string]bool{}}
	for {
		if _, err := os.Stat(*until); err == nil {
			return json.NewEncoder(os.Stdout).Encode(w.report())
		}
		if err := w.round(); err != nil {
			return err
		}
		time.Sleep(*every)
	}
}

type watcher struct {
	root     string
	rounds   int
	pools    map[string]bool // sets that LS containers had
	owners   map[string]bool // groups that had exclusive CPUs
	problems map[string]bool
}

// leaf is a group of a container whose first program runs.
type leaf struct {
	path, class string
	cpus        cpuset.Set
}

func (l leaf) exclusive() bool { return l.class == "LSE" || l.class == "LSR" }

// mayShare reports whether o may use the CPUs of l.
func (l leaf) mayShare(o leaf) bool {
	return filepath.Dir(l.path) == filepath.Dir(o.path) || l.class == "LSR" && o.class == "BE"
}

func (w *watcher) round() error {
	paths, err := w.groups()
	if err != nil {
		return err
	}
	w.rounds++
	var leaves []leaf
	for _, path := range paths {
		l, ok := read(path)
		if !ok {
			continue
		}
		leaves = append(leaves, l)
		switch {
		case l.class == "LS":
			w.pools[l.cpus.String()] = true
		case l.exclusive():
			w.owners[l.path] = true
		}
	}
	for _, owner := range leaves {
		for _, other := range leaves {
			if owner.exclusive() && !owner.mayShare(other) && owner.cpus.Overlaps(&other.cpus) {
				w.confirm(owner.path, other.path)
			}
		}
	}
	return nil
}

// confirm reads two groups again that were not read at one instant: the owner before and after the other one. Only what
// the owner had both times can have been shared.
func (w *watcher) confirm(owner, other string) {
	before, ok1 := read(owner)
	middle, ok2 := read(other)
	after, ok3 := read(owner)
	if !ok1 || !ok2 || !ok3 {
		return
	}
	shared := before.cpus.Intersect(after.cpus).Intersect(middle.cpus)
	if !shared.IsEmpty() {
		w.problems[fmt.Sprintf("%s %s (%v) and %s %s (%v) share %v", after.class, owner, after.cpus, middle.class,
			other, middle.cpus, shared)] = true
	}
}

func (w *watcher) groups() ([]string, error) {
	var paths []string
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it ended meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir():
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// read looks at one group; ok is false where no program of a test runs in it. A runtime that prepares a container is
// not one: it enters the group before it sets the group's CPUs.
func read(path string) (l leaf, ok bool) {
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return leaf{}, false
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		if class := class(pid); class != "" && started(pid) {
			l.class = class
		}
	}
	if l.class == "" {
		return leaf{}, false
	}
	text, err := os.ReadFile(filepath.Join(path, "cpuset.cpus.effective"))
	if err != nil {
		return leaf{}, false
	}
	l.path = path
	l.cpus, err = cpuset.Parse(strings.TrimSpace(string(text)))
	return l, err == nil
}

// started reports whether a process runs the program of its container already.
func started(pid string) bool {
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	name, err := os.ReadFile("/proc/" + pid + "/comm")
	return err == nil && !strings.HasPrefix(string(name), "runc")
}

func (w *watcher) report() wire.Watched {
	r := wire.Watched{Rounds: w.rounds, Owners: len(w.owners)}
	for pool := range w.pools {
		r.Pools = append(r.Pools, pool)
	}
	for problem := range w.problems {
		r.Problems = append(r.Problems, problem)
	}
	slices.Sort(r.Pools)
	slices.Sort(r.Problems)
	return r
}
