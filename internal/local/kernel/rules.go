package kernel

import (
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Errnos by the name of what they say.
const (
	errBusy    = syscall.EBUSY
	errAccess  = syscall.EACCES
	errNoSpace = syscall.ENOSPC
	errInvalid = syscall.EINVAL
	errRange   = syscall.ERANGE
)

// rules are what the two dialects do differently.
type rules interface {
	// hierarchies are the directories below the mount point, one per controller; "" is the mount point itself.
	hierarchies() []string
	// names of the effective files, the memory limit and the group switch.
	effectiveCPUs() string
	effectiveMems() string
	// defaultShares is the share of CPU time of a new group, in the dialect's scale.
	defaultShares() int64
	// cpus, mems, quota, share and memory check a write and, when they return nil, do it.
	cpus(g *group, want, online cpuset.Set) error
	mems(g *group, want cpuset.Set) error
	quota(g *group, want, period int64) error
	share(g *group, want int64) error
	memory(g *group, limit int64) error
	// effective returns what the tasks of g get.
	effective(g *group, online cpuset.Set) (cpus, mems cpuset.Set)
	// attach checks that a task may enter g.
	attach(g *group) error
	// open makes g fit to have children whose tasks run.
	open(g *group) error
	// unplug applies a change of the online CPUs to g; it is called for the root first.
	unplug(g *group, online cpuset.Set)
}

func rulesOf(d desired.Dialect) rules {
	if d == desired.V1 {
		return v1{}
	}
	return v2{}
}

// v2: a group may ask for anything; what it gets is cut to its parent's, and all of its parent's when nothing is left.
type v2 struct{}

func (v2) hierarchies() []string { return []string{""} }
func (v2) effectiveCPUs() string { return "cpuset.cpus.effective" }
func (v2) effectiveMems() string { return "cpuset.mems.effective" }

func (v2) defaultShares() int64 { return 100 }

func (v2) cpus(g *group, want, _ cpuset.Set) error {
	if want.IsEmpty() && !g.cpus.IsEmpty() && g.populated() {
		return errNoSpace
	}
	g.cpus = want
	return nil
}

func (v2) mems(g *group, want cpuset.Set) error {
	if want.IsEmpty() && !g.mems.IsEmpty() && g.populated() {
		return errNoSpace
	}
	g.mems = want
	return nil
}

func (v2) quota(g *group, want, period int64) error {
	g.limit, g.period = want, period
	return nil
}

func (v2) share(g *group, want int64) error {
	if want < 1 || want > 10000 {
		return errRange
	}
	g.shares = want
	return nil
}

// memory: usage above a new limit is reclaimed; what cannot be ends in an OOM kill inside the group.
func (v2) memory(g *group, limit int64) error {
	g.memoryLimit = limit
	if limit != unlimited && g.memoryUsed > limit {
		g.oomKills++
		g.memoryUsed = 0
		clear(g.tasks)
	}
	return nil
}

func (v2) effective(g *group, online cpuset.Set) (cpus, mems cpuset.Set) {
	if g.parent == nil {
		return online, g.mems
	}
	cpus, mems = g.cpus.Intersect(g.parent.effective), g.mems.Intersect(g.parent.effectiveMems)
	if cpus.IsEmpty() {
		cpus = g.parent.effective
	}
	if mems.IsEmpty() {
		mems = g.parent.effectiveMems
	}
	return cpus, mems
}

func (v2) attach(g *group) error {
	if g.controllers && g.parent != nil {
		return errBusy // no internal processes
	}
	return nil
}

// open: a kernel lets a group with tasks enable cpu and cpuset alone; container runtimes and kubelets enable all, and
// so that is refused here too.
func (v2) open(g *group) error {
	if len(g.tasks) > 0 && g.parent != nil {
		return errBusy
	}
	g.controllers = true
	return nil
}

// unplug changes nothing: an offline CPU is remembered and returns by itself.
func (v2) unplug(*group, cpuset.Set) {}

// v1: a group may only ask for what its parent has, and only give up what no child has.
type v1 struct{}

func (v1) hierarchies() []string { return []string{"cpuset", "cpu", "memory"} }
func (v1) effectiveCPUs() string { return "cpuset.effective_cpus" }
func (v1) effectiveMems() string { return "cpuset.effective_mems" }

func (v1) defaultShares() int64 { return 1024 }

func (v1) cpus(g *group, want, online cpuset.Set) error {
	if !want.SubsetOf(&online) {
		return errInvalid
	}
	err := nested(g, want, func(x *group) cpuset.Set { return x.cpus })
	if err == nil {
		g.cpus = want
	}
	return err
}

func (v1) mems(g *group, want cpuset.Set) error {
	err := nested(g, want, func(x *group) cpuset.Set { return x.mems })
	if err == nil {
		g.mems = want
	}
	return err
}

func nested(g *group, want cpuset.Set, of func(*group) cpuset.Set) error {
	if g.parent == nil {
		return errAccess
	}
	for _, child := range g.children {
		if has := of(child); !has.SubsetOf(&want) {
			return errBusy
		}
	}
	if parent := of(g.parent); !want.SubsetOf(&parent) {
		return errAccess
	}
	if old := of(g); want.IsEmpty() && !old.IsEmpty() && len(g.tasks) > 0 {
		return errNoSpace
	}
	return nil
}

// quota: a child's share may not exceed its parent's, whichever of the two is written.
func (v1) quota(g *group, want, period int64) error {
	if want != unlimited {
		asked := ratio(want, period)
		if above := g.boundAbove(); above != unlimited && asked > above || g.widestBelow() > asked {
			return errInvalid
		}
	}
	g.limit, g.period = want, period
	return nil
}

// share: the kernel takes every number and moves it into its limits.
func (v1) share(g *group, want int64) error {
	g.shares = min(max(want, 2), 262144)
	return nil
}

func (v1) memory(g *group, limit int64) error {
	if limit != unlimited && g.memoryUsed > limit {
		return errBusy
	}
	g.memoryLimit = limit
	return nil
}

func (v1) effective(g *group, online cpuset.Set) (cpus, mems cpuset.Set) {
	return g.cpus.Intersect(online), g.mems
}

func (v1) attach(g *group) error {
	if g.cpus.IsEmpty() || g.mems.IsEmpty() {
		return errNoSpace
	}
	return nil
}

func (v1) open(g *group) error {
	if g.parent != nil && g.cpus.IsEmpty() {
		g.cpus = g.parent.cpus
	}
	if g.parent != nil && g.mems.IsEmpty() {
		g.mems = g.parent.mems
	}
	return nil
}

// unplug takes offline CPUs out of every group for good; tasks of a group that is left with nothing move to the nearest
// group above that has CPUs.
func (r v1) unplug(g *group, online cpuset.Set) {
	g.cpus = g.cpus.Intersect(online)
	if g.cpus.IsEmpty() && g.parent != nil {
		to := g.parent
		for to.parent != nil && to.cpus.IsEmpty() {
			to = to.parent
		}
		for pid, mask := range g.tasks {
			to.tasks[pid] = mask
		}
		clear(g.tasks)
	}
	for _, child := range g.children {
		r.unplug(child, online)
	}
}

// populated reports whether a task lives in g or below.
func (g *group) populated() bool {
	if len(g.tasks) > 0 {
		return true
	}
	for _, child := range g.children {
		if child.populated() {
			return true
		}
	}
	return false
}

// ratio is what quotas are compared by: the part of one CPU, in units of 2^-20.
func ratio(quota, period int64) int64 {
	if quota == unlimited {
		return unlimited
	}
	return quota << 20 / period
}

// boundAbove returns the ratio of the tightest quota above g, or unlimited.
func (g *group) boundAbove() int64 {
	bound := int64(unlimited)
	for p := g.parent; p != nil; p = p.parent {
		if above := ratio(p.limit, p.period); above != unlimited && (bound == unlimited || above < bound) {
			bound = above
		}
	}
	return bound
}

// widestBelow returns the largest ratio below g; 0 when no group below has a quota.
func (g *group) widestBelow() int64 {
	widest := int64(0)
	for _, child := range g.children {
		widest = max(widest, ratio(child.limit, child.period), child.widestBelow())
	}
	return widest
}
