package kernel

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Names of files besides those that Tenon writes.
const (
	procs          = "cgroup.procs"
	events         = "cgroup.events"
	kill           = "cgroup.kill"
	subtreeControl = "cgroup.subtree_control"
	controllers    = "cgroup.controllers"
	idle           = "cpu.idle"
	weight         = "cpu.weight"
	shares         = "cpu.shares"
	memoryMax      = "memory.max"
	memoryLimit    = "memory.limit_in_bytes"
	memoryEvents   = "memory.events"
	periodV1       = "cpu.cfs_period_us"
)

// Bounds of values, in microseconds and bytes.
const (
	minQuota, maxPeriod = 1000, 1000000
	page                = 4096
	// noLimit is how a v1 kernel shows a memory limit that is none.
	noLimit = 1<<63 - page
)

// available are the controllers that groups can have.
const available = "cpuset cpu memory"

// content returns the files of a group.
func (t *Tree) content(g *group) map[string]string {
	files := map[string]string{procs: formatPIDs(g.tasks)}
	if t.o.Dialect == desired.V2 {
		if g.parent == nil {
			files[controllers] = available // by which programs tell v2 from v1
		}
		files[events] = "populated " + digit(g.populated()) + "\nfrozen 0"
		files[subtreeControl] = ""
		if g.controllers {
			files[subtreeControl] = available
		}
	}
	if !t.controlled(g) {
		return files
	}
	files[desired.CPUs] = t.o.Machine.FormatList(g.cpus)
	files[desired.Mems] = t.formatMems(g.mems)
	files[t.rules.effectiveCPUs()] = t.o.Machine.FormatList(g.effective)
	files[t.rules.effectiveMems()] = t.formatMems(g.effectiveMems)
	share := strconv.FormatInt(g.shares, 10)
	if t.o.Dialect == desired.V1 {
		files[desired.QuotaV1], files[periodV1] = strconv.FormatInt(g.limit, 10), strconv.FormatInt(g.period, 10)
		files[memoryLimit] = formatLimit(g.memoryLimit)
		files[idle], files[shares] = idleAnd(g.idle, "3", share)
		return files
	}
	files[desired.QuotaV2] = formatMax(g.limit) + " " + strconv.FormatInt(g.period, 10)
	files[memoryMax] = formatMax(g.memoryLimit)
	files[memoryEvents] = "oom_kill " + strconv.Itoa(g.oomKills)
	files[idle], files[weight] = idleAnd(g.idle, "1", share)
	return files
}

// controlled reports whether a group has the files of its controllers: in v2 only when its parent enabled them.
func (t *Tree) controlled(g *group) bool {
	return t.o.Dialect == desired.V1 || g.parent == nil || g.parent.controllers
}

func idleAnd(on bool, low, normal string) (flag, share string) {
	if on {
		return "1", low
	}
	return "0", normal
}

func formatLimit(n int64) string {
	if n == unlimited {
		n = noLimit
	}
	return strconv.FormatInt(n, 10)
}

func digit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func formatMax(n int64) string {
	if n == unlimited {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

func formatPIDs(tasks map[int]cpuset.Set) string {
	pids := slices.Sorted(maps.Keys(tasks))
	lines := make([]string, len(pids))
	for i, pid := range pids {
		lines[i] = strconv.Itoa(pid)
	}
	return strings.Join(lines, "\n")
}

func (t *Tree) formatMems(s cpuset.Set) string {
	ids := s.Slice()
	for i, n := range ids {
		ids[i] = t.o.Machine.NUMAID(topo.NUMA(n))
	}
	return cpuset.FormatIDs(ids)
}

// set does the write of one file.
func (t *Tree) set(g *group, file, value string) error {
	if _, ok := t.content(g)[file]; !ok && file != kill {
		return fs.ErrNotExist
	}
	switch file {
	case desired.CPUs:
		return t.setCPUs(g, value)
	case desired.Mems:
		return t.setMems(g, value)
	case procs:
		return t.setProcs(g, value)
	case idle:
		if value != "0" && value != "1" {
			return errInvalid
		}
		g.idle, g.shares = value == "1", t.rules.defaultShares()
		return nil
	case t.rules.effectiveCPUs(), t.rules.effectiveMems():
		return errInvalid
	case shares, weight:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || g.idle {
			return errInvalid
		}
		return t.rules.share(g, n)
	}
	if t.o.Dialect == desired.V1 {
		return t.setV1(g, file, value)
	}
	return t.setV2(g, file, value)
}

func (t *Tree) setCPUs(g *group, value string) error {
	set, unknown, err := t.o.Machine.ParseList(value)
	if err != nil {
		return errInvalid
	}
	if len(unknown) > 0 {
		return errRange
	}
	if g.parent == nil {
		return errAccess
	}
	if err := t.rules.cpus(g, set, t.online); err != nil {
		return err
	}
	t.refresh(g)
	return nil
}

func (t *Tree) setMems(g *group, value string) error {
	ids, err := cpuset.ParseIDs(value)
	if err != nil {
		return errInvalid
	}
	var set cpuset.Set
	for _, id := range ids {
		n, ok := t.o.Machine.NUMAByID(id)
		if !ok || !t.groups[""].mems.Has(int(n)) {
			return errInvalid
		}
		set.Add(int(n))
	}
	if g.parent == nil {
		return errAccess
	}
	if err := t.rules.mems(g, set); err != nil {
		return err
	}
	t.refresh(g)
	return nil
}

func (t *Tree) setProcs(g *group, value string) error {
	pid, err := strconv.Atoi(value)
	if err != nil {
		return errInvalid
	}
	return t.move(pid, g)
}

func (t *Tree) setV1(g *group, file, value string) error {
	switch file {
	case desired.QuotaV1:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errInvalid
		}
		return t.setQuota(g, max(n, unlimited), g.period)
	case periodV1:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errInvalid
		}
		return t.setQuota(g, g.limit, n)
	case memoryLimit:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < unlimited {
			return errInvalid
		}
		return t.rules.memory(g, wholePages(n))
	}
	return fs.ErrPermission
}

func (t *Tree) setV2(g *group, file, value string) error {
	switch file {
	case desired.QuotaV2:
		quota, period, given := strings.Cut(value, " ")
		n, err := parseMax(quota)
		if err != nil {
			return err
		}
		length := g.period
		if given {
			if length, err = strconv.ParseInt(period, 10, 64); err != nil {
				return errInvalid
			}
		}
		return t.setQuota(g, n, length)
	case memoryMax:
		n, err := parseMax(value)
		if err != nil {
			return err
		}
		return t.rules.memory(g, wholePages(n))
	case subtreeControl:
		for name := range strings.FieldsSeq(value) {
			if name = strings.TrimPrefix(name, "+"); !slices.Contains(strings.Fields(available), name) {
				return errInvalid
			}
		}
		err := t.rules.open(g)
		t.refresh(g)
		return err
	case kill:
		if value != "1" {
			return errInvalid
		}
		g.killAll()
		return nil
	}
	return fs.ErrPermission
}

// setQuota checks what both dialects ask of a quota.
func (t *Tree) setQuota(g *group, quota, period int64) error {
	if quota != unlimited && quota < minQuota || period < minQuota || period > maxPeriod {
		return errInvalid
	}
	return t.rules.quota(g, quota, period)
}

// wholePages is a memory limit as the kernel keeps it.
func wholePages(n int64) int64 {
	if n == unlimited {
		return n
	}
	return n / page * page
}

func parseMax(value string) (int64, error) {
	if value == "max" {
		return unlimited, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, errInvalid
	}
	return n, nil
}

// refresh computes the effective sets of g and of everything below it.
func (t *Tree) refresh(g *group) {
	g.effective, g.effectiveMems = t.rules.effective(g, t.online)
	for _, child := range g.children {
		t.refresh(child)
	}
}

// flush writes the files of g and below, and those of the groups above, that differ from the disk. A file is replaced
// by renaming, so that a reader sees the old or the new value and never a part of one.
func (t *Tree) flush(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	var errs []error
	for up := g.parent; up != nil; up = up.parent {
		errs = append(errs, t.flushOne(up))
	}
	var down func(*group)
	down = func(g *group) {
		errs = append(errs, t.flushOne(g))
		for _, child := range g.children {
			down(child)
		}
	}
	down(g)
	return errors.Join(errs...)
}

func (t *Tree) flushOne(g *group) error {
	for file, text := range t.content(g) {
		if old, ok := g.files[file]; ok && old == text {
			continue
		}
		at := t.place(g.path, file)
		temp := filepath.Join(filepath.Dir(at), "."+file)
		if err := os.WriteFile(temp, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(temp, at); err != nil {
			return err
		}
		g.files[file] = text
	}
	return nil
}

// place returns where a file stands. In v1 each controller has its hierarchy; the core's files are those of cpuset's.
func (t *Tree) place(at, file string) string {
	hierarchy := ""
	if t.o.Dialect == desired.V1 {
		hierarchy, _, _ = strings.Cut(file, ".")
		if !slices.Contains(t.rules.hierarchies(), hierarchy) {
			hierarchy = "cpuset"
		}
	}
	return filepath.Join(t.o.Dir, hierarchy, filepath.FromSlash(at), file)
}

func (t *Tree) makeDirs(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	for _, h := range t.rules.hierarchies() {
		if err := os.MkdirAll(filepath.Join(t.o.Dir, h, filepath.FromSlash(g.path)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) removeDirs(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	for _, h := range t.rules.hierarchies() {
		if err := os.RemoveAll(filepath.Join(t.o.Dir, h, filepath.FromSlash(g.path))); err != nil {
			return err
		}
	}
	return nil
}

// load takes up the groups below g that the disk has. Files that are missing or cannot be read as what they should be
// count as never written: a process that was killed between two files leaves such.
func (t *Tree) load(g *group) error {
	if t.o.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(t.place(g.path, procs)))
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

func (t *Tree) restore(g *group) {
	text := func(file string) string {
		b, err := os.ReadFile(t.place(g.path, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	if set, _, err := t.o.Machine.ParseList(text(desired.CPUs)); err == nil {
		g.cpus = set
	}
	if ids, err := cpuset.ParseIDs(text(desired.Mems)); err == nil {
		for _, id := range ids {
			if n, ok := t.o.Machine.NUMAByID(id); ok {
				g.mems.Add(int(n))
			}
		}
	}
	for line := range strings.FieldsSeq(text(procs)) {
		if pid, err := strconv.Atoi(line); err == nil {
			g.tasks[pid] = cpuset.Set{}
			t.nextPID = max(t.nextPID, pid+1)
		}
	}
	if t.o.Dialect == desired.V1 {
		g.limit, g.period = number(text(desired.QuotaV1)), orElse(number(text(periodV1)), defaultPeriod)
		if g.memoryLimit = number(text(memoryLimit)); g.memoryLimit == noLimit {
			g.memoryLimit = unlimited
		}
	} else {
		quota, length, _ := strings.Cut(text(desired.QuotaV2), " ")
		g.limit, g.period = number(quota), orElse(number(length), defaultPeriod)
		g.memoryLimit = number(text(memoryMax))
		g.controllers = text(subtreeControl) != ""
	}
	if g.idle = text(idle) == "1"; !g.idle {
		g.shares = orElse(max(number(text(shares)), number(text(weight))), g.shares)
	}
}

// orElse returns n, or what counts where n was never written.
func orElse(n, otherwise int64) int64 {
	if n > 0 {
		return n
	}
	return otherwise
}

// number parses a limit; a text that is not a number means unlimited.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return unlimited
	}
	return n
}
