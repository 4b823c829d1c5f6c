package tune

import (
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/isolate"
)

// Files of interrupts, below the machine's root.
const (
	interrupts      = "proc/irq"
	affinityFile    = "smp_affinity_list"
	defaultAffinity = interrupts + "/default_smp_affinity"
)

// steer returns the Settings that keep interrupts off the quiet CPUs of a Steering. The default affinity comes first,
// so that an interrupt that is set up meanwhile is right from the beginning. Where another program keeps the default
// and irqbalance, as CRI-O does for pods that ask it to, only the interrupts themselves are set.
func steer(root host.Root, files Files, s *isolate.Steering, keepsDefault bool) []Setting {
	wish := "off CPUs " + cpuset.FormatIDs(s.Quiet)
	var out []Setting
	add := func(file string, want func(original string) (string, error)) {
		out = append(out, NewSetting(file, wish, want))
	}
	if keepsDefault {
		add(defaultAffinity, func(original string) (string, error) {
			cpus, err := host.ParseMap(original)
			return isolate.FormatMask(s.Affinity(cpus, -1)), err
		})
	}
	for _, number := range interruptNumbers(root) {
		at := path.Join(interrupts, strconv.Itoa(number))
		add(path.Join(at, affinityFile), func(original string) (string, error) {
			cpus, err := cpuset.ParseIDs(original)
			if err != nil {
				return "", err
			}
			return cpuset.FormatIDs(s.Affinity(cpus, nodeOf(files, at))), nil
		})
	}
	if keepsDefault {
		add(Bans, func(original string) (string, error) {
			cpus, err := cpuset.ParseIDs(original)
			return cpuset.FormatIDs(s.Banned(cpus)), err
		})
	}
	return out
}

// interruptNumbers lists the interrupts of the machine in ascending order.
func interruptNumbers(root host.Root) []int {
	entries, err := os.ReadDir(root.Path(interrupts))
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// nodeOf returns the NUMA node of the device of an interrupt; -1 where the kernel knows none.
func nodeOf(files Files, at string) int {
	text, err := files.Read(path.Join(at, "node"))
	n, bad := strconv.Atoi(text)
	if err != nil || bad != nil {
		return -1
	}
	return n
}
