//go:build e2e_cgroup

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/test/e2e/node/cgroup/rulebook"
	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
)

// realKernel is the kernel of this machine, below one group. Groups are named by their path below that.
type realKernel struct {
	hierarchies cgroupfs.Hierarchies
	dialect     desired.Dialect
	tree        *apply.Tree
	// base is the group in every hierarchy; tasks are the processes by id, and forks those that a task made.
	base  string
	tasks map[int]*task
	forks map[int]bool
}

var _ rulebook.Kernel = (*realKernel)(nil)

// needed are the v1 controllers that level 2 works with, that of the cpusets first.
var needed = []string{"cpuset", "cpu", "memory", "freezer"}

// newRealKernel makes the group of this process, after it has removed those of dead ones.
func newRealKernel() (*realKernel, error) {
	hierarchies, err := cgroupfs.Mounted()
	if err != nil {
		return nil, err
	}
	cpusets, ok := hierarchies.With("cpuset")
	if !ok {
		return nil, errors.New("no cgroup controller cpuset is mounted")
	}
	k := &realKernel{
		hierarchies: hierarchies, base: cgroupfs.Name(os.Getpid()), tasks: map[int]*task{}, forks: map[int]bool{},
	}
	if cpusets.V2 {
		k.dialect, k.tree = desired.V2, apply.Mounted(cpusets.Dir, desired.V2)
	} else {
		k.dialect, k.tree = desired.V1, apply.Mounted(filepath.Dir(cpusets.Dir), desired.V1)
	}
	return k, errors.Join(hierarchies.Sweep(), hierarchies.Make(k.base), hierarchies.Make(k.base+"/x"), k.Rmdir("x"))
}

// close ends what is left and removes the group everywhere.
func (k *realKernel) close() error {
	return errors.Join(k.Kill(""), k.hierarchies.Remove(k.base))
}

// Dialect returns the machine's.
func (k *realKernel) Dialect() desired.Dialect { return k.dialect }

// path is the group as the whole tree names it.
func (k *realKernel) path(group string) string { return filepath.Join(k.base, group) }

// dirs are the folders of a group, that of the cpuset first.
func (k *realKernel) dirs(group string) []string {
	var dirs []string
	for _, c := range needed {
		h, ok := k.hierarchies.With(c)
		if dir := filepath.Join(h.Dir, k.path(group)); ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Mkdir makes a group in every hierarchy.
func (k *realKernel) Mkdir(group string) error {
	for _, dir := range k.dirs(group) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Rmdir removes a group from every hierarchy.
func (k *realKernel) Rmdir(group string) error {
	for _, dir := range k.dirs(group) {
		if err := syscall.Rmdir(dir); err != nil {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}

// Read reads a file of a group.
func (k *realKernel) Read(group, file string) (string, error) {
	return k.tree.Read(k.path(group), file)
}

// Write writes a file of a group.
func (k *realKernel) Write(group, file, value string) error {
	return k.tree.Write(k.path(group), file, value)
}

// Spawn starts a task and moves it into a group.
func (k *realKernel) Spawn(group string) (int, error) {
	t, err := newTask()
	if err != nil {
		return 0, err
	}
	for _, dir := range k.dirs(group) {
		if err := put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(t.pid())); err != nil {
			t.end()
			return 0, err
		}
	}
	k.tasks[t.pid()] = t
	return t.pid(), nil
}

// Fork lets a task start a child.
func (k *realKernel) Fork(pid int) (int, error) {
	answer, err := k.tasks[pid].say("fork")
	if err != nil {
		return 0, err
	}
	child, err := strconv.Atoi(answer)
	k.forks[child] = true
	return child, err
}

// Kill ends the tasks of a group and below: those of this test, which alone can be there.
func (k *realKernel) Kill(group string) error {
	dir := k.dirs(group)[0]
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return eventually(func() error {
		pids, err := pidsBelow(dir)
		if err != nil {
			return err
		}
		// A task that is dying is not listed any more, and keeps its group for a moment.
		if events, _ := os.ReadFile(filepath.Join(dir, "cgroup.events")); len(pids) == 0 &&
			!strings.Contains(string(events), "populated 1") {
			return nil
		}
		for _, pid := range pids {
			switch t := k.tasks[pid]; {
			case t != nil:
				t.end()
				delete(k.tasks, pid)
			case k.forks[pid]:
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be dead by now
			default:
				return fmt.Errorf("process %d in %s is a outsider", pid, dir)
			}
		}
		return fmt.Errorf("%s is not empty yet", dir)
	})
}

func pidsBelow(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}

// Affinity pins a task's first thread.
func (k *realKernel) Affinity(pid int, cpus string) error {
	ids, err := cpuset.ParseIDs(cpus)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	for _, id := range ids {
		set.Set(id)
	}
	return unix.SchedSetaffinity(pid, &set)
}

// Allowed returns Cpus_allowed_list of a task's first thread.
func (k *realKernel) Allowed(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list), nil
		}
	}
	return "", fmt.Errorf("process %d has no Cpus_allowed_list", pid)
}

// Online takes CPU 1 offline or back, on machines of the test's own.
func (k *realKernel) Online(on bool) error {
	if !*ownMachine {
		return rulebook.ErrHandsOff
	}
	value := "0"
	if on {
		value = "1"
	}
	return put("/sys/devices/system/cpu/cpu1/online", value)
}

// put is one write(2).
func put(file, value string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(value)
	return err
}

// patience is how long a state may take to come; it is only waited for in full when a test fails.
const patience = time.Minute

// eventually asks until the answer is nil, and returns the last one.
func eventually(ask func() error) error {
	end := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
