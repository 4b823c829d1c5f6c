package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

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
	// Dir is the directory that stands for the mount point. It is made when missing. "" keeps the tree in memory alone.
	Dir     string
	Dialect desired.Dialect
	Machine *topo.Machine
	// Fault is asked before every call; an error it returns is the call's answer and nothing changes. nil injects none.
	Fault func(op Op, group, file string) error
	// Observe is called after every atomic change with the state of that instant. It runs under the tree's lock and
	// must not call the tree. nil observes nothing.
	Observe func(State)
}

// Tree is a simulated cgroup tree. It is safe for concurrent use.
type Tree struct {
	o     Options
	rules rules

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

	cpus, effective         cpuset.Set
	mems, effectiveMems     cpuset.Set
	limit, period           int64 // CPU quota, or unlimited, and its period, in microseconds
	shares                  int64 // v1: cpu.shares, v2: cpu.weight, while the group is not idle
	idle                    bool
	memoryLimit, memoryUsed int64
	oomKills                int
	controllers             bool // v2: subtree_control names all controllers
	tasks                   map[int]cpuset.Set
	files                   map[string]string // as last written to disk
}

const (
	unlimited     = -1
	defaultPeriod = 100000
)

// Open returns the tree below o.Dir. What an earlier Tree left there is taken up, with its tasks.
func Open(o Options) (*Tree, error) {
	t := &Tree{o: o, rules: rulesOf(o.Dialect), online: o.Machine.Online(), groups: map[string]*group{}, nextPID: 1000}
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
	if err := errors.Join(t.makeDirs(root), t.load(root)); err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	t.refresh(root)
	if err := t.flush(root); err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	return t, nil
}

func (t *Tree) add(at string, parent *group) *group {
	g := &group{
		path: at, parent: parent, children: map[string]*group{}, limit: unlimited, period: defaultPeriod,
		shares: t.rules.defaultShares(), memoryLimit: unlimited,
		tasks: map[int]cpuset.Set{}, files: map[string]string{},
	}
	t.groups[at] = g
	if parent != nil {
		parent.children[path.Base(at)] = g
	}
	return g
}

// Dialect returns the tree's dialect.
func (t *Tree) Dialect() desired.Dialect { return t.o.Dialect }

// Mkdir makes a group; its parent must exist. Making one that exists is fs.ErrExist.
func (t *Tree) Mkdir(at string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mkdir(at)
}

func (t *Tree) mkdir(at string) error {
	if t.groups[at] != nil {
		return &fs.PathError{Op: "mkdir", Path: at, Err: fs.ErrExist}
	}
	parent := t.groups[parentOf(at)]
	if parent == nil {
		return &fs.PathError{Op: "mkdir", Path: at, Err: fs.ErrNotExist}
	}
	g := t.add(at, parent)
	if err := t.makeDirs(g); err != nil {
		delete(t.groups, at)
		delete(parent.children, path.Base(at))
		return err
	}
	t.refresh(g)
	return t.changed(g)
}

// MkdirAll makes a group and its parents as the kubelet does: in v2 every parent gets its controllers enabled, in v1
// every new parent gets the CPUs and memory nodes of the one above. The last group is left as the kernel makes it.
func (t *Tree) MkdirAll(at string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := strings.Split(at, "/")
	for i := range parts {
		group := strings.Join(parts[:i+1], "/")
		if t.groups[group] == nil {
			if err := t.mkdir(group); err != nil {
				return err
			}
		}
		if g := t.groups[group]; i+1 < len(parts) {
			if err := t.rules.open(g); err != nil {
				return refused("mkdir", group, err)
			}
			t.refresh(g)
			if err := t.changed(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// Rmdir removes an empty group.
func (t *Tree) Rmdir(at string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[at]
	if g == nil {
		return &fs.PathError{Op: "rmdir", Path: at, Err: fs.ErrNotExist}
	}
	if len(g.children) > 0 || len(g.tasks) > 0 || g.parent == nil {
		return refused("rmdir", at, errBusy)
	}
	if err := t.removeDirs(g); err != nil {
		return err
	}
	delete(t.groups, at)
	delete(g.parent.children, path.Base(at))
	t.observe()
	return nil
}

// Children returns the names of the groups below a group, sorted.
func (t *Tree) Children(at string) ([]string, error) {
	if err := t.fault(OpList, at, ""); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[at]
	if g == nil {
		return nil, &fs.PathError{Op: "readdir", Path: at, Err: fs.ErrNotExist}
	}
	names := make([]string, 0, len(g.children))
	for name := range g.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Read returns what a file says.
func (t *Tree) Read(at, file string) (string, error) {
	if err := t.fault(OpRead, at, file); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[at]
	if g == nil {
		return "", &fs.PathError{Op: "read", Path: path.Join(at, file), Err: fs.ErrNotExist}
	}
	if strings.HasPrefix(file, "cpuset.") {
		if err := t.adopt(g); err != nil {
			return "", err
		}
	}
	text, ok := t.content(g)[file]
	if !ok {
		return "", &fs.PathError{Op: "read", Path: path.Join(at, file), Err: fs.ErrNotExist}
	}
	return text, nil
}

// Write hands a value to a file. Refusals wrap the errno that the kernel would give.
func (t *Tree) Write(at, file, value string) error {
	if err := t.fault(OpWrite, at, file); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[at]
	if g == nil {
		return &fs.PathError{Op: "write", Path: path.Join(at, file), Err: fs.ErrNotExist}
	}
	if err := t.set(g, file, strings.TrimSpace(value)); err != nil {
		return refused("write", path.Join(at, file), err)
	}
	return t.changed(g)
}

// adopt takes a hand-made change of cpuset.cpus as a write, or undoes it.
func (t *Tree) adopt(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	b, err := os.ReadFile(t.place(g.path, desired.CPUs))
	text := strings.TrimSpace(string(b))
	readable := err == nil // a file that someone deleted comes back with the next change
	if !readable || text == g.files[desired.CPUs] {
		return nil
	}
	g.files[desired.CPUs] = text
	if t.set(g, desired.CPUs, text) != nil {
		return t.flush(g)
	}
	return t.changed(g)
}

// Online sets the online CPUs, which the machine must have.
func (t *Tree) Online(cpus cpuset.Set) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.online = cpus.Intersect(t.o.Machine.All())
	root := t.groups[""]
	root.cpus = t.online
	t.rules.unplug(root, t.online)
	t.refresh(root)
	return t.changed(root)
}

func (t *Tree) fault(op Op, at, file string) error {
	if t.o.Fault == nil {
		return nil
	}
	return t.o.Fault(op, at, file)
}

// changed writes the files of g and below and notifies the observer.
func (t *Tree) changed(g *group) error {
	err := t.flush(g)
	t.observe()
	return err
}

func (t *Tree) observe() {
	if t.o.Observe != nil {
		t.o.Observe(State{t})
	}
}

func parentOf(at string) string {
	dir := path.Dir(at)
	if dir == "." {
		return ""
	}
	return dir
}

func refused(op, at string, err error) error { return &fs.PathError{Op: op, Path: at, Err: err} }
