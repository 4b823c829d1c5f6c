//go:build linux

package cgroupfs

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Prefix begins the name of every group that tests make; the id of the process follows.
const Prefix = "tenon-e2e-"

// Hierarchy is a mounted tree of cgroups.
type Hierarchy struct {
	// Dir is where it is mounted.
	Dir string
	// Controllers are those that it is mounted with in v1, those that it offers in v2.
	Controllers []string
	// V2 reports whether the hierarchy is unified.
	V2 bool
}

// Has reports whether the hierarchy has a controller.
func (h Hierarchy) Has(controller string) bool { return slices.Contains(h.Controllers, controller) }

// Hierarchies are all that are mounted on a machine.
type Hierarchies []Hierarchy

// Mounted reads which hierarchies are mounted.
func Mounted() (Hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	var found Hierarchies
	seen := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		h, ok := parseMount(lines.Text())
		if !ok || seen[h.Dir] {
			continue
		}
		seen[h.Dir] = true
		if h.V2 {
			text, err := os.ReadFile(filepath.Join(h.Dir, "cgroup.controllers"))
			if err != nil {
				return nil, fmt.Errorf("find cgroups: %w", err)
			}
			h.Controllers = strings.Fields(string(text))
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, errors.New("find cgroups: none are mounted")
	}
	return found, nil
}

// parseMount reads one line of /proc/PID/mountinfo: ID PARENT DEVICE ROOT DIR OPTIONS [TAGS…] - TYPE SOURCE OPTIONS.
func parseMount(line string) (Hierarchy, bool) {
	mount, system, found := strings.Cut(line, " - ")
	left, right := strings.Fields(mount), strings.Fields(system)
	if !found || len(left) < 6 || len(right) < 3 {
		return Hierarchy{}, false
	}
	switch right[0] {
	case "cgroup2":
		return Hierarchy{Dir: left[4], V2: true}, true
	case "cgroup":
		var controllers []string
		for _, option := range strings.Split(right[2], ",") {
			if option != "rw" && option != "ro" && !strings.HasPrefix(option, "name=") {
				controllers = append(controllers, option)
			}
		}
		return Hierarchy{Dir: left[4], Controllers: controllers}, true
	}
	return Hierarchy{}, false
}

// Unified reports whether cpusets are of cgroup v2.
func (hs Hierarchies) Unified() bool {
	h, ok := hs.With("cpuset")
	return ok && h.V2
}

// With returns the hierarchy that has a controller.
func (hs Hierarchies) With(controller string) (Hierarchy, bool) {
	for _, h := range hs {
		if h.Has(controller) {
			return h, true
		}
	}
	return Hierarchy{}, false
}

// Dirs returns where a group lies in every hierarchy.
func (hs Hierarchies) Dirs(group string) []string {
	dirs := make([]string, len(hs))
	for i, h := range hs {
		dirs[i] = filepath.Join(h.Dir, group)
	}
	return dirs
}

// controllerOf returns which controller a file belongs to. Files of the core are those of the cpusets' hierarchy.
func controllerOf(file string) string {
	controller, _, _ := strings.Cut(file, ".")
	if controller == "cgroup" || controller == "tasks" {
		return "cpuset"
	}
	return controller
}

// Path returns the path of a file of a group, such as "cpuset.cpus".
func (hs Hierarchies) Path(group, file string) (string, error) {
	h, ok := hs.With(controllerOf(file))
	if !ok {
		return "", fmt.Errorf("%s of %s: no hierarchy has the controller %q", file, group, controllerOf(file))
	}
	return filepath.Join(h.Dir, group, file), nil
}

// Read returns the content of a file of a group without white space around it.
func (hs Hierarchies) Read(group, file string) (string, error) {
	name, err := hs.Path(group, file)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}

// Write hands a value to the kernel in one write.
func (hs Hierarchies) Write(group, file, value string) (err error) {
	name, err := hs.Path(group, file)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(value)
	return err
}

// Make makes a group in every hierarchy, with its ancestors, such that processes and groups can be put below it: in v1
// with the cpuset of the parent, in v2 with all controllers handed down to it.
func (hs Hierarchies) Make(group string) error {
	for _, h := range hs {
		at := ""
		for _, name := range strings.Split(strings.Trim(path.Clean("/"+group), "/"), "/") {
			if err := h.handDown(at); err != nil {
				return err
			}
			at = path.Join(at, name)
			if err := os.Mkdir(filepath.Join(h.Dir, at), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make group: %w", err)
			}
			if err := h.inherit(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// handDown gives the groups below a group of v2 the controllers that it has.
func (h Hierarchy) handDown(group string) error {
	if !h.V2 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(h.Dir, group, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("hand down controllers: %w", err)
	}
	for _, c := range strings.Fields(string(text)) {
		// The root of a hybrid machine has controllers that may not be handed down while v1 uses them.
		err := os.WriteFile(filepath.Join(h.Dir, group, "cgroup.subtree_control"), []byte("+"+c), 0)
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("hand down controller %s: %w", c, err)
		}
	}
	return nil
}

// inherit fills the cpuset of a new group of v1, which else takes no process.
func (h Hierarchy) inherit(group string) error {
	if h.V2 || !h.Has("cpuset") {
		return nil
	}
	dir := filepath.Join(h.Dir, group)
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			if err != nil {
				return fmt.Errorf("fill cpuset: %w", err)
			}
			continue
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), parent, 0)
		}
		if err != nil {
			return fmt.Errorf("fill cpuset: %w", err)
		}
	}
	return nil
}

// removeLimit bounds the wait for killed processes to be gone.
const removeLimit = 20 * time.Second

// Remove kills every process in a group and removes it with all below it, in every hierarchy. A group that does not
// exist is none.
func (hs Hierarchies) Remove(group string) error {
	if top, _, _ := strings.Cut(strings.TrimPrefix(group, "/"), "/"); !strings.HasPrefix(top, Prefix) {
		return fmt.Errorf("remove group %q: it is not below one of ours (%s*)", group, Prefix)
	}
	var errs []error
	for end := time.Now().Add(removeLimit); ; time.Sleep(10 * time.Millisecond) {
		errs = nil
		for _, dir := range hs.Dirs(group) {
			kill(dir)
			errs = append(errs, removeTree(dir))
		}
		if errors.Join(errs...) == nil || time.Now().After(end) {
			return errors.Join(errs...)
		}
	}
}

// kill ends the processes in a group and below it. Those that cgroup v1 has frozen would not hear of it.
func kill(dir string) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "freezer.state" {
			_ = os.WriteFile(name, []byte("THAWED"), 0) // the root group has no such file
		}
		return nil
	})
	for _, pid := range Processes(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
	}
}

// Processes returns the ids of the processes in the group at dir and below it, as this process sees them.
func Processes(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // a group that vanishes has no processes
		}
		text, _ := os.ReadFile(name)
		for _, word := range strings.Fields(string(text)) {
			var pid int
			if _, err := fmt.Sscan(word, &pid); err == nil && pid > 0 { // 0 is a process of another namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// removeTree removes directories, deepest first. The files in them go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
