package kernel

import (
	"maps"
	"slices"
	"strconv"
	"syscall"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

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
