//go:build linux

package cgroupfs

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Name returns the name of the group of the tests of a process.
func Name(pid int) string { return Prefix + strconv.Itoa(pid) }

// Sweep removes what tests left behind whose process is gone. It must be called in the process id namespace of those
// who named the groups.
func (hs Hierarchies) Sweep() error {
	var errs []error
	for _, name := range hs.Left() {
		pid, err := strconv.Atoi(strings.TrimPrefix(name, Prefix))
		if err == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue // its process lives
		}
		errs = append(errs, hs.Remove(name))
	}
	return errors.Join(errs...)
}

// Left returns the names of the groups of tests that exist, sorted.
func (hs Hierarchies) Left() []string {
	var names []string
	for _, h := range hs {
		entries, err := os.ReadDir(h.Dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), Prefix) && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}
