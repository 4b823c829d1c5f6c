package kernel

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Bounds of quotas and periods in microseconds.
const minQuota, maxPeriod = 1000, 1000000

type field func(*group) *cpuset.Set

func (g *group) cpuSet() *cpuset.Set { return &g.cpus }
func (g *group) memSet() *cpuset.Set { return &g.mems }

// each calls f with g and every group below it, parents first.
func (g *group) each(f func(*group)) {
	f(g)
	for _, child := range g.children {
		child.each(f)
	}
}

func (t *Tree) setCPUs(g *group, value string) error {
	want, unknown, err := t.o.Machine.ParseList(value)
	switch {
	case err != nil:
		return syscall.EINVAL
	case len(unknown) > 0:
		return syscall.ERANGE
	case t.o.Dialect == desired.V1 && g.parent != nil && !want.SubsetOf(&t.online):
		return syscall.EINVAL
	}
	return t.assign(g, (*group).cpuSet, want)
}

func (t *Tree) setMems(g *group, value string) error {
	ids, err := cpuset.ParseIDs(value)
	if err != nil {
		return syscall.EINVAL
	}
	var want cpuset.Set
	for _, id := range ids {
		n, ok := t.o.Machine.NUMAByID(id)
		if !ok || !t.groups[""].mems.Has(int(n)) {
			return syscall.EINVAL
		}
		want.Add(int(n))
	}
	return t.assign(g, (*group).memSet, want)
}

// assign sets the CPUs or memory nodes of a group. In v2 any set is allowed. In v1 the set must be a subset of the
// parent's and contain those of all children.
func (t *Tree) assign(g *group, set field, want cpuset.Set) error {
	if g.parent == nil {
		return syscall.EACCES
	}
	if t.o.Dialect == desired.V1 {
		for _, child := range g.children {
			if !set(child).SubsetOf(&want) {
				return syscall.EBUSY
			}
		}
		if !want.SubsetOf(set(g.parent)) {
			return syscall.EACCES
		}
	}
	if want.IsEmpty() && !set(g).IsEmpty() && g.populated() {
		return syscall.ENOSPC
	}
	*set(g) = want
	t.refresh(g)
	return nil
}

// refresh computes the effective sets of g and of all groups below it, on which their tasks run. In v2 that is the
// group's own set within its parent's effective set, or all of the latter where the two are disjoint.
func (t *Tree) refresh(g *group) {
	g.each(func(g *group) {
		g.effective, g.effectiveMems = g.cpus.Intersect(t.online), g.mems
		if t.o.Dialect == desired.V1 || g.parent == nil {
			return
		}
		g.effective, g.effectiveMems = g.cpus.Intersect(g.parent.effective), g.mems.Intersect(g.parent.effectiveMems)
		if g.effective.IsEmpty() {
			g.effective = g.parent.effective
		}
		if g.effectiveMems.IsEmpty() {
			g.effectiveMems = g.parent.effectiveMems
		}
	})
}

// checkAttach returns the error that the kernel returns for a task that enters g.
func (t *Tree) checkAttach(g *group) error {
	switch {
	case t.o.Dialect == desired.V1 && (g.cpus.IsEmpty() || g.mems.IsEmpty()):
		return syscall.ENOSPC
	case t.o.Dialect == desired.V2 && g.controllers && g.parent != nil:
		return syscall.EBUSY // no internal processes
	}
	return nil
}

// enableChildren prepares g for children with tasks. A v2 kernel lets a group with tasks enable cpu and cpuset, but not
// all controllers. Container runtimes and kubelets enable all of them, so enableChildren refuses a group with tasks.
func (t *Tree) enableChildren(g *group) error {
	switch {
	case g.parent == nil:
	case t.o.Dialect == desired.V1:
		for _, set := range []field{(*group).cpuSet, (*group).memSet} {
			if set(g).IsEmpty() {
				*set(g) = *set(g.parent)
			}
		}
	case len(g.tasks) > 0:
		return syscall.EBUSY
	}
	g.controllers = true
	t.refresh(g)
	return nil
}

func (t *Tree) setControllers(g *group, value string) error {
	for name := range strings.FieldsSeq(value) {
		if name = strings.TrimPrefix(name, "+"); !slices.Contains(strings.Fields(available), name) {
			return syscall.EINVAL
		}
	}
	return t.enableChildren(g)
}

// removeOffline removes offline CPUs from every v1 group, which do not return with the CPUs. Tasks of a group without
// CPUs move to the nearest group above it that has some. A v2 group keeps an offline CPU in its set.
func (g *group) removeOffline(online cpuset.Set) {
	g.each(func(g *group) {
		g.cpus = g.cpus.Intersect(online)
		if !g.cpus.IsEmpty() || g.parent == nil {
			return
		}
		to := g.parent
		for to.parent != nil && to.cpus.IsEmpty() {
			to = to.parent
		}
		maps.Copy(to.tasks, g.tasks)
		clear(g.tasks)
	})
}

func (g *group) populated() bool {
	tasks := 0
	g.each(func(g *group) { tasks += len(g.tasks) })
	return tasks > 0
}

// parseLimit parses an amount, or no limit: any negative number in v1, "max" in v2.
func (t *Tree) parseLimit(value string) (int64, error) {
	if t.o.Dialect == desired.V2 && value == "max" {
		return unlimited, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || t.o.Dialect == desired.V2 && n < 0 {
		return 0, syscall.EINVAL
	}
	return n, nil
}

func (t *Tree) setPeriodV1(g *group, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return syscall.EINVAL
	}
	return g.setQuotaV1(g.limit, n)
}

// setQuota sets a v1 quota, or a v2 quota and, if given, its period.
func (t *Tree) setQuota(g *group, value string) error {
	quota, period, given := strings.Cut(value, " ")
	n, err := t.parseLimit(quota)
	length := g.period
	if given && err == nil {
		length, err = strconv.ParseInt(period, 10, 64)
	}
	switch {
	case err != nil || given && t.o.Dialect == desired.V1:
		return syscall.EINVAL
	case t.o.Dialect == desired.V1:
		return g.setQuotaV1(max(n, unlimited), length)
	}
	return g.assignQuota(n, length)
}

// setQuotaV1: a child's share may not exceed its parent's, whichever of the two is written.
func (g *group) setQuotaV1(quota, period int64) error {
	if asked := ratio(quota, period); asked != unlimited {
		below := int64(0)
		for _, child := range g.children {
			child.each(func(x *group) { below = max(below, ratio(x.limit, x.period)) })
		}
		if asked < below {
			return syscall.EINVAL
		}
		for up := g.parent; up != nil; up = up.parent {
			if above := ratio(up.limit, up.period); above != unlimited && asked > above {
				return syscall.EINVAL
			}
		}
	}
	return g.assignQuota(quota, period)
}

func (g *group) assignQuota(quota, period int64) error {
	if quota != unlimited && quota < max(minQuota, g.burst) || period < minQuota || period > maxPeriod {
		return syscall.EINVAL
	}
	g.limit, g.period = quota, period
	return nil
}

// setWeight sets a CPU weight between two bounds: a v1 kernel corrects others, a v2 kernel refuses them.
func setWeight(least, most int64) writer {
	return func(t *Tree, g *group, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || t.o.Dialect == desired.V2 && (n < least || n > most) {
			return syscall.EINVAL
		}
		g.weight = min(max(n, least), most)
		return nil
	}
}

// noLimitV1 is what a v1 kernel shows of a group without a memory limit.
const noLimitV1 = 1<<63 - pageBytes

const pageBytes = 4096

// setMemory sets a memory limit, of which the kernel stores whole pages.
func (t *Tree) setMemory(g *group, value string) error {
	n, err := t.parseLimit(value)
	if err != nil {
		return err
	}
	if g.memory = unlimited; n >= 0 && n < noLimitV1 {
		g.memory = n - n%pageBytes
	}
	return nil
}

// setBurst: a group saves no more than its quota. Without a quota any burst is taken, and has no effect.
func setBurst(_ *Tree, g *group, value string) error {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n < 0 || g.limit != unlimited && n > g.limit {
		return syscall.EINVAL
	}
	g.burst = n
	return nil
}

// ratio returns a quota as a part of one CPU, in units of 2^-20, by which quotas are compared.
func ratio(quota, period int64) int64 {
	if quota == unlimited || period <= 0 {
		return unlimited
	}
	return quota << 20 / period
}
