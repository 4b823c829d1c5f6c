package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Op is a call that a fault can be injected into.
type Op uint8

// Operations.
const (
	OpRead Op = iota
	OpWrite
	OpList
)

// Options describe a tree.
type Options struct {
	// Dir is the directory in place of the mount point. Open creates it. "" keeps the tree in memory alone.
	Dir     string
	Dialect desired.Dialect
	Machine *topo.Machine
	// Fault is called before every operation. If it returns an error, the operation fails with that error and changes
	// nothing. nil injects no fault.
	Fault func(op Op, group, file string) error
	// Observe is called after every atomic change with all groups by path. It runs under the tree's lock and must not
	// call the tree. nil observes nothing.
	Observe func([]Group)
}

// Tree is a simulated cgroup tree. It is safe for concurrent use.
type Tree struct {
	o     Options
	files []file

	mu      sync.Mutex // guards the fields below and the files
	online  cpuset.Set
	groups  map[string]*group // by path; "" is the root
	nextPID int
}

// group is one cgroup. CPUs are dense indices of the machine, memory nodes dense indices of its NUMA nodes.
type group struct {
	path     string
	parent   *group
	children map[string]*group

	cpus, effective     cpuset.Set
	mems, effectiveMems cpuset.Set
	limit, period       int64 // CPU quota, or unlimited, and its period, in microseconds
	burst               int64 // CPU time that the group may save of its quota, in microseconds
	weight              int64 // CPU weight, in the units of the dialect
	memory              int64 // memory limit in bytes, or unlimited
	controllers         bool  // v2: subtree_control names all controllers
	tasks               map[int]cpuset.Set
	files               map[string]string // as last written to disk
}

const (
	unlimited     = -1
	defaultPeriod = 100000
)

// Open returns the tree below o.Dir. It restores the groups and tasks that an earlier Tree left there.
func Open(o Options) (*Tree, error) {
	if o.Fault == nil {
		o.Fault = func(Op, string, string) error { return nil }
	}
	t := &Tree{o: o, files: filesOf(o.Dialect), online: o.Machine.Online(), groups: map[string]*group{}, nextPID: 1000}
	root := t.add("", nil)
	root.controllers = true
	for n := range o.Machine.NumNUMA() {
		if o.Machine.MemoryBytes(topo.NUMA(n)) > 0 || o.Machine.NumNUMA() == 1 {
			root.mems.Add(n)
		}
	}
	if root.mems.IsEmpty() {
		root.mems.Add(0)
	}
	root.cpus = t.online
	err := errors.Join(t.makeDirs(root), t.load(root))
	if err == nil {
		t.refresh(root)
		err = t.flush(root)
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	return t, nil
}

func (t *Tree) add(at string, parent *group) *group {
	g := &group{
		path: at, parent: parent, children: map[string]*group{}, limit: unlimited, period: defaultPeriod,
		tasks: map[int]cpuset.Set{}, files: map[string]string{}, memory: unlimited, weight: 100,
	}
	if t.o.Dialect == desired.V1 {
		g.weight = 1024
	}
	t.groups[at] = g
	if parent != nil {
		parent.children[path.Base(at)] = g
	}
	return g
}

func (t *Tree) remove(g *group) {
	delete(t.groups, g.path)
	delete(g.parent.children, path.Base(g.path))
}

// Dialect returns the tree's dialect.
func (t *Tree) Dialect() desired.Dialect { return t.o.Dialect }

// with calls f with a group, under the lock. Errors wrap the errno that the kernel would return.
func (t *Tree) with(op, at, file string, f func(*group) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := fs.ErrNotExist
	if g := t.groups[at]; g != nil {
		err = f(g)
	}
	return refused(op, path.Join(at, file), err)
}

// Mkdir creates a group, whose parent must exist. It returns fs.ErrExist if the group exists.
func (t *Tree) Mkdir(at string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return refused("mkdir", at, t.mkdir(at))
}

func (t *Tree) mkdir(at string) error {
	dir, _ := path.Split(at)
	parent := t.groups[strings.TrimSuffix(dir, "/")]
	switch {
	case t.groups[at] != nil:
		return fs.ErrExist
	case parent == nil:
		return fs.ErrNotExist
	}
	g := t.add(at, parent)
	if err := t.makeDirs(g); err != nil {
		t.remove(g)
		return err
	}
	t.refresh(g)
	return t.changed(g)
}

// MkdirAll creates a group and its parents as the kubelet does: in v2 it enables the controllers of every parent, in v1
// every new parent gets the CPUs and memory nodes of the group above it. The last group is as the kernel creates it.
func (t *Tree) MkdirAll(at string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := strings.Split(at, "/")
	for i := range parts {
		name := strings.Join(parts[:i+1], "/")
		var err error
		if t.groups[name] == nil {
			err = t.mkdir(name)
		}
		if g := t.groups[name]; err == nil && i+1 < len(parts) {
			if err = t.enableChildren(g); err == nil {
				err = t.changed(g)
			}
		}
		if err != nil {
			return refused("mkdir", name, err)
		}
	}
	return nil
}

// Rmdir removes an empty group.
func (t *Tree) Rmdir(at string) error {
	return t.with("rmdir", at, "", func(g *group) error {
		if len(g.children) > 0 || len(g.tasks) > 0 || g.parent == nil {
			return syscall.EBUSY
		}
		for _, dir := range t.dirs(g) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		t.remove(g)
		t.observe()
		return nil
	})
}

// Children returns the names of the groups below a group, sorted.
func (t *Tree) Children(at string) (names []string, err error) {
	if err := t.o.Fault(OpList, at, ""); err != nil {
		return nil, err
	}
	err = t.with("readdir", at, "", func(g *group) error {
		names = slices.Sorted(maps.Keys(g.children))
		return nil
	})
	return names, err
}

// Read returns the value of a file.
func (t *Tree) Read(at, file string) (text string, err error) {
	if err := t.o.Fault(OpRead, at, file); err != nil {
		return "", err
	}
	err = t.with("read", at, file, func(g *group) error {
		f := t.findFile(g, file)
		if f == nil || f.read == nil {
			return fs.ErrNotExist
		}
		if strings.HasPrefix(file, "cpuset.") {
			if err := t.applyEdit(g); err != nil {
				return err
			}
		}
		text = f.read(t, g)
		return nil
	})
	return text, err
}

// Write writes a value to a file. Errors wrap the errno that the kernel would return.
func (t *Tree) Write(at, file, value string) error {
	if err := t.o.Fault(OpWrite, at, file); err != nil {
		return err
	}
	return t.with("write", at, file, func(g *group) error {
		f := t.findFile(g, file)
		if f == nil {
			return fs.ErrNotExist
		}
		if err := f.write(t, g, strings.TrimSpace(value)); err != nil {
			return err
		}
		return t.changed(g)
	})
}

// Online sets the online CPUs to those of cpus that the machine has.
func (t *Tree) Online(cpus cpuset.Set) error {
	return t.with("online", "", "", func(root *group) error {
		t.online = cpus.Intersect(t.o.Machine.All())
		root.cpus = t.online
		if t.o.Dialect == desired.V1 {
			root.removeOffline(t.online)
		}
		t.refresh(root)
		return t.changed(root)
	})
}

func (t *Tree) changed(g *group) error {
	err := t.flush(g)
	t.observe()
	return err
}

func (t *Tree) observe() {
	if t.o.Observe != nil {
		t.o.Observe(t.snapshot())
	}
}

func refused(op, at string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: at, Err: err}
}

// Spawn starts a task in a group and returns its number.
func (t *Tree) Spawn(at string) (pid int, err error) {
	err = t.with("spawn", at, "", func(g *group) error {
		if err := t.checkAttach(g); err != nil {
			return err
		}
		pid = t.addTask(g, cpuset.Set{})
		return t.changed(g)
	})
	return pid, err
}

// Fork starts a task as the child of another one: in its group, with its affinity. It returns the child's number.
func (t *Tree) Fork(pid int) (child int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groupOf(pid)
	if g == nil {
		return 0, refused("fork", "", syscall.ESRCH)
	}
	return t.addTask(g, g.tasks[pid]), t.changed(g)
}

func (t *Tree) addTask(g *group, affinity cpuset.Set) (pid int) {
	pid = t.nextPID
	t.nextPID++
	g.tasks[pid] = affinity
	return pid
}

// Kill ends every task of a group and of the groups below it.
func (t *Tree) Kill(at string) error {
	return t.with("kill", at, "", func(g *group) error {
		g.kill()
		return t.changed(g)
	})
}

func (g *group) kill() { g.each(func(g *group) { clear(g.tasks) }) }

func (t *Tree) move(to *group, value string) error {
	pid, err := strconv.Atoi(value)
	if err != nil {
		return syscall.EINVAL
	}
	from := t.groupOf(pid)
	if from == nil {
		return syscall.ESRCH
	}
	if err := t.checkAttach(to); err != nil {
		return err
	}
	to.tasks[pid] = from.tasks[pid]
	if from != to {
		delete(from.tasks, pid)
	}
	return t.flush(from)
}

func (t *Tree) groupOf(pid int) *group {
	for _, g := range t.groups {
		if _, ok := g.tasks[pid]; ok {
			return g
		}
	}
	return nil
}

// Affinity sets the affinity of a task as sched_setaffinity does; an empty set removes it.
func (t *Tree) Affinity(pid int, mask cpuset.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groupOf(pid); g != nil {
		g.tasks[pid] = mask
	}
}

// Allowed returns the CPUs that a task may run on: its affinity within its group's effective set, or all of that set
// where the two are disjoint. The affinity is kept, and counts again when the effective set contains CPUs of it.
func (t *Tree) Allowed(pid int) cpuset.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groupOf(pid)
	if g == nil {
		return cpuset.Set{}
	}
	if both := g.tasks[pid].Intersect(g.effective); !both.IsEmpty() {
		return both
	}
	return g.effective
}

// Group is one group at one instant.
type Group struct {
	Path            string
	CPUs, Effective cpuset.Set
	// Tasks counts the tasks in the group itself.
	Tasks int
}

// Snapshot returns all groups by path.
func (t *Tree) Snapshot() []Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot()
}

func (t *Tree) snapshot() []Group {
	all := make([]Group, 0, len(t.groups))
	for _, at := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[at]
		all = append(all, Group{Path: at, CPUs: g.cpus, Effective: g.effective, Tasks: len(g.tasks)})
	}
	return all
}
