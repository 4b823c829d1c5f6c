package apply

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// untangle takes one step out of a knot: exclusive leaves that run on each other's CPUs, so that each waits for another
// one to leave. Strangers who swap the sets of two pods make one. It reports whether it took a step.
//
//	A on 2-3, wants 0-1        A on 2     A on 2      A on 0-1     A on 0-1
//	B on 0-1, wants 2-3   ►    B on 0-1 ► B on 3    ► B on 3    ►  B on 2-3
//
// Where every leaf of the knot has one CPU alone, one of them steps aside onto a CPU of the shared pool that the shared
// leaves have left before. An exclusive leaf and a shared one that stand on each other's rows are a knot too: the
// exclusive one gives up a CPU, so that the shared one has a place to go. No step gives a CPU to two.
func (p *pass) untangle() bool {
	stuck := p.stuck()
	for _, it := range stuck {
		if p.yield(it) {
			return true
		}
	}
	knot := blockers(stuck)
	for _, step := range []func(*item) bool{p.takePart, p.narrow, p.stepAside} {
		for _, it := range knot {
			if step(it) {
				return true
			}
		}
	}
	for _, it := range stuck {
		p.tellStuck(it)
	}
	return false
}

// stuck returns the exclusive leaves that run outside of their rows and cannot get in.
func (p *pass) stuck() []*item {
	var out []*item
	for i := range p.items {
		it := &p.items[i]
		reach := it.kernel.reach()
		if it.role.Binds() && it.has && !it.orphan && it.occupies() && !reach.IsEmpty() && !reach.Overlaps(&it.want) &&
			p.conflict(it) != nil {
			out = append(out, it)
		}
	}
	return out
}

// blockers returns those of the leaves that stand on CPUs of another pod's leaf among them.
func blockers(stuck []*item) []*item {
	var out []*item
	for _, it := range stuck {
		reach := it.kernel.reach()
		for _, x := range stuck {
			if x.uid != it.uid && reach.Overlaps(&x.want) {
				out = append(out, it)
				break
			}
		}
	}
	return out
}

// yield takes from a leaf one CPU that a shared leaf in its way may have.
func (p *pass) yield(it *item) bool {
	reach := it.kernel.reach()
	if reach.Len() < 2 {
		return false
	}
	for i := range p.items {
		x := &p.items[i]
		if x.uid == it.uid || x.role.Binds() || !x.has || maySee(it.role, x.role) {
			continue
		}
		there := x.kernel.reach()
		if wanted := reach.Intersect(x.want); there.Overlaps(&it.want) && !wanted.IsEmpty() {
			return p.step(it, reach.Minus(only(wanted.First())))
		}
	}
	return false
}

// takePart moves a leaf to the part of its row that is free.
func (p *pass) takePart(it *item) bool {
	part := it.want
	for i := range p.items {
		if x := &p.items[i]; x.uid != it.uid && !maySee(it.role, x.role) {
			part = part.Minus(x.kernel.reach())
		}
	}
	return !part.IsEmpty() && p.step(it, part)
}

// narrow leaves a leaf one of its CPUs.
func (p *pass) narrow(it *item) bool {
	reach := it.kernel.reach()
	if reach.Len() < 2 {
		return false
	}
	return p.step(it, only(reach.First()))
}

// stepAside moves a leaf onto one CPU of the shared pool, after everybody else there has left it.
func (p *pass) stepAside(it *item) bool {
	for cpu := range p.view.SharedPool().All() {
		if there, ok := p.tenants(it, cpu); ok && p.vacate(there, cpu) {
			return p.step(it, only(cpu))
		}
	}
	return false
}

// tenants returns the leaves that have to leave a CPU before it may have it; false when one of them cannot.
func (p *pass) tenants(it *item, cpu int) ([]*item, bool) {
	var there []*item
	for i := range p.items {
		x := &p.items[i]
		reach := x.kernel.reach()
		if x.uid == it.uid || maySee(it.role, x.role) || !reach.Has(cpu) {
			continue
		}
		if x.role.Binds() || x.role == qos.KubeletPinned || !x.has || reach.Len() == 1 {
			return nil, false
		}
		there = append(there, x)
	}
	return there, true
}

func (p *pass) vacate(there []*item, cpu int) bool {
	for _, x := range there {
		if !p.step(x, x.kernel.reach().Minus(only(cpu))) {
			return false
		}
	}
	return true
}

// step sets a leaf and reports whether the kernel has what was asked.
func (p *pass) step(it *item, want cpuset.Set) bool {
	p.set(it, want)
	return it.kernel.reach() == want
}

func only(cpu int) cpuset.Set {
	var s cpuset.Set
	s.Add(cpu)
	return s
}

// tellStuck reports, once per cause, that a leaf cannot get its row. It is looked at again in every pass.
func (p *pass) tellStuck(it *item) {
	x := p.conflict(it)
	if x == nil || it.kernel.stuckOn == x.path {
		return
	}
	it.kernel.stuckOn = x.path
	taken := x.kernel.reach().Intersect(it.want)
	p.e.record(Record{
		Kind: EnforcementFailed, UID: it.uid, Container: it.container, Group: it.path, File: desired.CPUs,
		Want: p.m.FormatList(it.want), Got: p.m.FormatList(it.kernel.cpus),
		Err: fmt.Errorf("%s still has CPUs %s, and no CPU is free for a detour", x.path, p.m.FormatList(taken)),
	})
}
