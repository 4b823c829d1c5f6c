package kernel

import (
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// file is a file that groups have.
type file struct {
	name  string
	in    scope
	read  reader // nil where it can only be written
	write writer
}

type (
	reader func(*Tree, *group) string
	// writer checks a value and assigns it unless it returns an error.
	writer func(t *Tree, g *group, value string) error
)

// scope is the set of groups that have a file.
type scope uint8

const (
	controlled scope = iota // groups whose parent has enabled controllers; in v1 all groups
	everywhere
	top // the root alone
)

const (
	procs     = "cgroup.procs"
	available = "cpuset cpu memory" // the controllers that groups can have
)

// filesOf returns the files of a dialect, in an order in which a group can be restored from them.
func filesOf(d desired.Dialect) []file {
	files := []file{
		{procs, everywhere, (*Tree).formatPIDs, (*Tree).move},
		{desired.CPUs, controlled, cpus((*group).cpuSet), (*Tree).setCPUs},
		{desired.Mems, controlled, mems((*group).memSet), (*Tree).setMems},
	}
	effectiveCPUs := cpus(func(g *group) *cpuset.Set { return &g.effective })
	effectiveMems := mems(func(g *group) *cpuset.Set { return &g.effectiveMems })
	if d == desired.V1 {
		return append(files, []file{
			{"cpuset.effective_cpus", controlled, effectiveCPUs, readOnly},
			{"cpuset.effective_mems", controlled, effectiveMems, readOnly},
			{"cpu.cfs_period_us", controlled, decimal(func(g *group) int64 { return g.period }), (*Tree).setPeriodV1},
			{desired.QuotaV1, controlled, decimal(func(g *group) int64 { return g.limit }), (*Tree).setQuota},
			{desired.BurstV1, controlled, decimal(func(g *group) int64 { return g.burst }), setBurst},
			{desired.SharesV1, controlled, decimal(func(g *group) int64 { return g.weight }), setWeight(2, 262144)},
			{desired.MemoryV1, controlled, decimal(func(g *group) int64 {
				if g.memory == unlimited {
					return noLimitV1
				}
				return g.memory
			}), (*Tree).setMemory},
		}...)
	}
	return append(files, []file{
		{"cgroup.controllers", top, func(*Tree, *group) string { return available }, readOnly}, // v2 alone
		{"cgroup.events", everywhere, func(_ *Tree, g *group) string {
			if g.populated() {
				return "populated 1\nfrozen 0"
			}
			return "populated 0\nfrozen 0"
		}, readOnly},
		{"cgroup.subtree_control", everywhere, func(_ *Tree, g *group) string {
			if g.controllers {
				return available
			}
			return ""
		}, (*Tree).setControllers},
		{"cgroup.kill", everywhere, nil, func(_ *Tree, g *group, value string) error {
			if value != "1" {
				return syscall.EINVAL
			}
			g.kill()
			return nil
		}},
		{"cpuset.cpus.effective", controlled, effectiveCPUs, readOnly},
		{"cpuset.mems.effective", controlled, effectiveMems, readOnly},
		{desired.QuotaV2, controlled, func(_ *Tree, g *group) string {
			quota := "max"
			if g.limit != unlimited {
				quota = format(g.limit)
			}
			return quota + " " + format(g.period)
		}, (*Tree).setQuota},
		{desired.BurstV2, controlled, decimal(func(g *group) int64 { return g.burst }), setBurst},
		{desired.WeightV2, controlled, decimal(func(g *group) int64 { return g.weight }), setWeight(1, 10000)},
		{desired.MemoryV2, controlled, func(_ *Tree, g *group) string {
			if g.memory == unlimited {
				return "max"
			}
			return format(g.memory)
		}, (*Tree).setMemory},
	}...)
}

func (t *Tree) findFile(g *group, name string) *file {
	i := slices.IndexFunc(t.files, func(f file) bool { return f.name == name && t.hasFile(g, f) })
	if i < 0 {
		return nil
	}
	return &t.files[i]
}

func (t *Tree) hasFile(g *group, f file) bool {
	switch f.in {
	case everywhere:
		return true
	case top:
		return g.parent == nil
	}
	return t.o.Dialect == desired.V1 || g.parent == nil || g.parent.controllers
}

func readOnly(*Tree, *group, string) error { return syscall.EINVAL }

func format(n int64) string { return strconv.FormatInt(n, 10) }

func decimal(value func(*group) int64) reader {
	return func(_ *Tree, g *group) string { return format(value(g)) }
}

func (t *Tree) formatPIDs(g *group) string {
	var lines []string
	for _, pid := range slices.Sorted(maps.Keys(g.tasks)) {
		lines = append(lines, strconv.Itoa(pid))
	}
	return strings.Join(lines, "\n")
}

func cpus(set field) reader {
	return func(t *Tree, g *group) string { return t.o.Machine.FormatList(*set(g)) }
}

func mems(set field) reader {
	return func(t *Tree, g *group) string {
		ids := set(g).Slice()
		for i, n := range ids {
			ids[i] = t.o.Machine.NUMAID(topo.NUMA(n))
		}
		return cpuset.FormatIDs(ids)
	}
}

// applyEdit treats a manual change of the file cpuset.cpus as a write: it applies the value, or restores the old one if
// the kernel would refuse the value.
func (t *Tree) applyEdit(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	b, err := os.ReadFile(t.filePath(g.path, desired.CPUs))
	text := strings.TrimSpace(string(b))
	readable := err == nil // a deleted file is written again with the next change
	if !readable || text == g.files[desired.CPUs] {
		return nil
	}
	g.files[desired.CPUs] = text
	if t.setCPUs(g, text) != nil {
		return t.flush(g)
	}
	return t.changed(g)
}

// flush writes the files of g, of the groups below it and of those above it that differ from the disk. It replaces a
// file by renaming, so that a reader sees the old value or the new one, and never a part of a value.
func (t *Tree) flush(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	var errs []error
	for up := g.parent; up != nil; up = up.parent {
		errs = append(errs, t.flushOne(up))
	}
	g.each(func(g *group) { errs = append(errs, t.flushOne(g)) })
	return errors.Join(errs...)
}

func (t *Tree) flushOne(g *group) error {
	for _, f := range t.files {
		if f.read == nil || !t.hasFile(g, f) {
			continue
		}
		text := f.read(t, g)
		if old, ok := g.files[f.name]; ok && old == text {
			continue
		}
		at := t.filePath(g.path, f.name)
		temp := filepath.Join(filepath.Dir(at), "."+f.name)
		if err := os.WriteFile(temp, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(temp, at); err != nil {
			return err
		}
		g.files[f.name] = text
	}
	return nil
}

// hierarchies are the directories below the mount point, one per controller; "" is the mount point itself.
func (t *Tree) hierarchies() []string {
	if t.o.Dialect == desired.V1 {
		return strings.Fields(available)
	}
	return []string{""}
}

// filePath returns the path of a file of a group. In v1 each controller has its own hierarchy, and the files of the
// core are in that of cpuset.
func (t *Tree) filePath(at, file string) string {
	hierarchy, _, _ := strings.Cut(file, ".")
	if known := t.hierarchies(); !slices.Contains(known, hierarchy) {
		hierarchy = known[0]
	}
	return filepath.Join(t.o.Dir, hierarchy, filepath.FromSlash(at), file)
}

func (t *Tree) dirs(g *group) (dirs []string) {
	if t.o.Dir == "" {
		return nil
	}
	for _, h := range t.hierarchies() {
		dirs = append(dirs, filepath.Join(t.o.Dir, h, filepath.FromSlash(g.path)))
	}
	return dirs
}

func (t *Tree) makeDirs(g *group) error {
	for _, dir := range t.dirs(g) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) load(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(t.dirs(g)[0])
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		child := t.add(path.Join(g.path, entry.Name()), g)
		if err := t.makeDirs(child); err != nil {
			return err
		}
		t.restore(child)
		if err := t.load(child); err != nil {
			return err
		}
	}
	return nil
}

// restore sets a group's values and tasks from its files. Files that are missing or refused count as never written: a
// process that was killed between two files leaves such files.
func (t *Tree) restore(g *group) {
	text := func(file string) string {
		b, _ := os.ReadFile(t.filePath(g.path, file))
		return strings.TrimSpace(string(b))
	}
	for _, f := range t.files {
		if value := text(f.name); value != "" {
			_ = f.write(t, g, value)
		}
	}
	for line := range strings.FieldsSeq(text(procs)) {
		if pid, err := strconv.Atoi(line); err == nil {
			g.tasks[pid] = cpuset.Set{}
			t.nextPID = max(t.nextPID, pid+1)
		}
	}
}
