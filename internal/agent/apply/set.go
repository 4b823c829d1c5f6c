package apply

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// ErrDisjoint is returned for a set that has no CPU in common with what the parent group has: the kernel would take it
// and silently give the whole set of the parent.
var ErrDisjoint = errors.New("the parent group has none of these CPUs")

// set writes a leaf's cpuset and reads back what the kernel made of it.
func (p *pass) set(it *item, want cpuset.Set) {
	e, f := p.e, file{it.path, desired.CPUs}
	if e.isBackingOff(f) && it.path != p.focus {
		return
	}
	text := p.m.FormatList(want)
	err := p.writeSet(it.setGroup(), want)
	if errors.Is(err, syscall.EPERM) && e.o.Cgroup.Dialect() == desired.V2 && !it.kernel.sealed {
		it.kernel.sealed = true
		err = p.writeSet(it.setGroup(), want)
	}
	if err == nil {
		err = e.returnDisplaced(it.leaf)
	}
	if err == nil || !isGone(err) {
		err = errors.Join(err, p.readBack(it, want))
	}
	switch {
	case err == nil:
		delete(e.faults, f)
		if !p.beLimited || it.role != qos.BEPool { // a runtime cannot store a new set each second
			e.moved[it.path] = text
		}
		if !it.settled() {
			return
		}
		it.kernel.stuckOn = ""
		if it.kernel.drifted {
			it.kernel.drifted = false
			e.record(it.record(DriftRepaired, text, text))
		}
	case isGone(err):
		it.kernel = kernelState{vanished: true, lived: it.kernel.lived}
	default:
		e.failed(f, it.record(EnforcementFailed, text, ""), err)
		p.errs = append(p.errs, fmt.Errorf("set %s of %s to %q: %w", desired.CPUs, it.path, text, err))
	}
}

// readBack reads the set of a leaf after a write: the kernel may have taken another one than was written.
func (p *pass) readBack(it *item, want cpuset.Set) error {
	cpus, err := p.e.readSet(p.m, it.setGroup(), desired.CPUs)
	if err != nil {
		return err
	}
	it.kernel.known, it.kernel.cpus = true, cpus
	if err := p.e.readEffective(p.m, it.leaf); err != nil {
		return err
	}
	if got := it.kernel.effective; !got.SubsetOf(&want) && cpus == want {
		p.e.record(it.record(EffectiveWiderThanDesired, p.m.FormatList(want), p.m.FormatList(got)))
		return fmt.Errorf("the kernel gives %q instead of %q", p.m.FormatList(got), p.m.FormatList(want))
	}
	return nil
}

// writeSet writes the set of one group. A v1 kernel refuses to take CPUs that a nested group still has: then the nested
// groups go first.
func (p *pass) writeSet(group string, want cpuset.Set) error {
	if err := p.insideParent(group, want); err != nil {
		return err
	}
	err := p.write(group, want)
	if errors.Is(err, syscall.EACCES) {
		if err = p.widenAbove(group, want); err == nil {
			err = p.write(group, want)
		}
	}
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return p.writeNested(group, want)
}

func (p *pass) write(group string, set cpuset.Set) error {
	return p.e.o.Cgroup.Write(group, desired.CPUs, p.m.FormatList(set))
}

// widenAbove gives the groups above a group, up to that of all pods, the CPUs that it is to have: a v1 kernel takes a
// CPU that goes offline out of all groups and does not put it back. No process lives in those groups.
func (p *pass) widenAbove(group string, want cpuset.Set) error {
	above := path.Dir(group)
	if p.e.o.Cgroup.Dialect() != desired.V1 || !p.e.holdsPods(above) {
		return nil
	}
	if err := p.widenAbove(above, want); err != nil {
		return err
	}
	has, err := p.e.readSet(p.m, above, desired.CPUs)
	if err != nil || want.SubsetOf(&has) {
		return err
	}
	return p.write(above, has.Union(want))
}

// holdsPods reports whether a group is one of those below which pods live, or lies below one.
func (e *Engine) holdsPods(group string) bool {
	return slices.ContainsFunc(e.o.Roots,
		func(root string) bool { return group == root || strings.HasPrefix(group, root+"/") })
}

// insideParent refuses a set that would make a v2 kernel fall back to the parent's.
func (p *pass) insideParent(group string, want cpuset.Set) error {
	if p.e.o.Cgroup.Dialect() != desired.V2 {
		return nil
	}
	parent, err := p.e.readSet(p.m, path.Dir(group), effectiveV2)
	if err == nil && !parent.Overlaps(&want) {
		return ErrDisjoint
	}
	return err
}

// writeNested narrows the groups below group and then group itself. When a nested group has nothing in common with the
// new set, group takes both for a moment: want is free at that time, and the old set was its own.
func (p *pass) writeNested(group string, want cpuset.Set) error {
	names, err := p.e.o.Cgroup.Children(group)
	if err != nil {
		return err
	}
	sets := make([]cpuset.Set, len(names))
	disjoint := false
	for i, name := range names {
		old, err := p.e.readSet(p.m, path.Join(group, name), desired.CPUs)
		if err != nil {
			return err
		}
		if old.IsEmpty() {
			continue
		}
		if sets[i] = old.Intersect(want); sets[i].IsEmpty() {
			sets[i], disjoint = want, true
		}
	}
	if disjoint {
		old, err := p.e.readSet(p.m, group, desired.CPUs)
		if err == nil {
			err = p.write(group, old.Union(want))
		}
		if err != nil {
			return err
		}
	}
	for i, name := range names {
		if sets[i].IsEmpty() {
			continue
		}
		if err := p.writeSet(path.Join(group, name), sets[i]); err != nil && !isGone(err) {
			return err
		}
	}
	return p.write(group, want)
}
