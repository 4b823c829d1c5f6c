package apply

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// item is one leaf in a pass.
type item struct {
	*leaf
	phase phase    // as of the start of the pass
	role  qos.Role // of the leaf's pod; of the shared pool for a leaf that is put there
	// want is the set of the leaf's row; has is false for a leaf without one, which is never written.
	want cpuset.Set
	has  bool
	// orphan: known from the tree alone, so it may lose CPUs but never gain any.
	orphan bool
}

// reach is every CPU that the group's processes run on now or would run on if its parent were wider. A group that has
// neither a set of its own nor a process reaches nothing: Start comes before its first process.
func (k *kernelState) reach() cpuset.Set {
	if k.cpus.IsEmpty() && !k.populated {
		return cpuset.Set{}
	}
	return k.cpus.Union(k.effective)
}

// settled reports whether the kernel has exactly the row.
func (it *item) settled() bool {
	return !it.has || it.kernel.known && it.kernel.cpus == it.want && it.kernel.effective == it.want
}

// occupies reports whether the leaf's exclusive CPUs are in use, or may be at any moment.
func (it *item) occupies() bool {
	return it.role.Binds() && !it.kernel.vanished && (it.phase == started || it.kernel.populated)
}

// maySee reports whether a pod of role other may run on the CPUs of a pod with the exclusive role r.
func maySee(r, other qos.Role) bool { return r == qos.ExclusiveWithBE && other == qos.BEPool }

// pass is one comparison of the table with the tree.
type pass struct {
	e     *Engine
	m     *topo.Machine
	items []*item
	rows  []desired.Row // of files other than cpuset.cpus
	errs  []error
	focus string // path of a leaf that is read again and written without back-off; "" for none
	// beHeld: groups of best-effort pods that have CPUs do not grow. beLimited: their sets change often, and are not
	// passed to Moved.
	beHeld, beLimited bool
	moved             bool // this round gave a leaf a set that has no CPU in common with its old one
	view              *ledger.View
}

// run does one pass: it brings the tree to the table, as far as it is safe right now. It trusts what it knows of the
// tree unless fresh asks for reading all of it anew. The caller holds turn.
func (e *Engine) run(focus string, fresh bool) error {
	m, ready := e.ready()
	if !ready {
		return ErrNotReady
	}
	e.discardReadings(m)
	if fresh = fresh || !e.surveyed; fresh {
		if err := e.discover(); err != nil {
			return &unreadable{err}
		}
		e.findBurst()
		e.surveyed = true
		e.stale, e.plain = e.plain, e.stale
	} else if err := e.visitPods(); err != nil {
		return &unreadable{err}
	}
	if err := e.readLeaves(m, focus, fresh); err != nil {
		return &unreadable{err}
	}
	e.loadGrants()
	e.classifyOrphans(m)
	if err := e.releaseEnded(); err != nil {
		return &unreadable{err}
	}
	e.keepGrants(m)
	p := e.plan(m, focus)
	if p.isOutdated() {
		return &unreadable{errAnotherMachine}
	}
	p.saveGrants()
	p.noteBursts()
	p.writePlain()
	p.dropBursts()
	// Leaves that make room in one round let others settle in the next.
	for range 1 + len(p.items) {
		p.moved = false
		p.shrink()
		p.grow()
		if !p.moved {
			break
		}
	}
	p.reportStuck()
	p.noteExclusive()
	if fresh {
		p.reportAllSets()
	}
	p.dropVanished()
	return errors.Join(p.errs...)
}

// reportAllSets passes every set of the table to Moved, not only those that changed.
func (p *pass) reportAllSets() {
	for _, it := range p.items {
		if it.has && !it.kernel.vanished && !it.kernel.cpus.IsEmpty() && !(p.beLimited && it.role == qos.BEPool) {
			p.e.moved[it.path] = p.m.FormatList(it.kernel.cpus)
		}
	}
}

// unreadable is the error of a pass that could not read the tree and so did not begin.
type unreadable struct{ error }

func (u *unreadable) Unwrap() error { return u.error }

// errAnotherMachine ends a pass whose table is of another machine than what it has read.
var errAnotherMachine = errors.New("the machine changed meanwhile")

// isOutdated reports whether the table and the leaves are in the indices of different machines.
func (p *pass) isOutdated() bool { return p.view.Machine() != p.m }

func (e *Engine) ready() (*topo.Machine, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.account.View().Machine()
	return m, m != nil && (e.complete || e.begun)
}

// readLeaves reads the leaves that are not known yet, or all of them.
func (e *Engine) readLeaves(m *topo.Machine, focus string, fresh bool) error {
	e.mu.Lock()
	leaves := e.sortedLeaves()
	phases := make([]phase, len(leaves))
	for i, l := range leaves {
		phases[i] = l.phase
	}
	e.mu.Unlock()
	var errs []error
	for i, l := range leaves {
		if fresh || !l.kernel.known || l.path == focus {
			// Between Create and Start the runtime writes what Create answered: no drift.
			errs = append(errs, e.readLeaf(m, l, phases[i] != created))
		}
	}
	return errors.Join(errs...)
}

// classifyOrphans decides what orphans, pods that are known only by their groups, hold. An orphan that had exclusive
// CPUs keeps them until it ends; another orphan may lose CPUs like any member of its pool. The checkpoint names the
// exclusive orphans. Without a checkpoint, CPUs on which no process of the shared pool runs are assumed exclusive,
// which is the safe choice.
func (e *Engine) classifyOrphans(m *topo.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		p := e.pods[uid]
		if p.orphan != found {
			continue
		}
		own, shared, be := e.reaches(uid)
		p.orphan = classified
		g, exclusive := e.grants[uid]
		if !e.recalled {
			g, exclusive = Grant{qos.LSE, m.FormatList(own)}, p.Entry.Role != qos.BEPool && !own.Overlaps(&shared)
			if own.Overlaps(&be) {
				g.Class = qos.LSR
			}
		}
		if exclusive && g.CPUs != "" {
			p.Entry.Class, p.Entry.Role, p.Entry.CPUList = g.Class, qos.Exclusive, g.CPUs
			if g.Class == qos.LSR {
				p.Entry.Role = qos.ExclusiveWithBE
			}
			if !e.begun {
				e.outbox = append(e.outbox, Record{Kind: OrphanHeld, UID: uid, Group: p.Cgroup, Got: g.CPUs})
			}
		}
		e.account.Put(p.Entry)
	}
}

// reaches returns the CPUs on which processes of a pod run, and those on which processes of other pods outside and
// inside the BE pool run. The set of an empty group may be an old answer of Create, so empty groups count only if all
// groups of the pod are empty, and not if they are on CPUs of the shared pool. The caller holds mu.
func (e *Engine) reaches(uid string) (own, shared, be cpuset.Set) {
	var empty []cpuset.Set
	for _, l := range e.leaves {
		reach := l.kernel.reach()
		p := e.pods[l.uid]
		switch {
		case l.uid == uid && l.kernel.populated:
			own = own.Union(reach)
		case l.uid == uid:
			empty = append(empty, reach)
		case !l.kernel.populated:
		case p != nil && p.Entry.Role == qos.BEPool:
			be = be.Union(reach)
		case p != nil && !p.Entry.Role.Binds():
			shared = shared.Union(reach)
		}
	}
	if !own.IsEmpty() {
		return own, shared, be
	}
	for _, reach := range empty {
		if !reach.Overlaps(&shared) {
			own = own.Union(reach)
		}
	}
	return own, shared, be
}

// releaseEnded releases the pods that are gone and whose processes have all ended: groups grow only after that.
func (e *Engine) releaseEnded() error {
	dead := map[string]bool{}
	e.mu.Lock()
	for uid, p := range e.pods {
		if p.gone {
			dead[uid] = true
		}
	}
	leaves := e.sortedLeaves()
	e.mu.Unlock()
	leaves = slices.DeleteFunc(leaves, func(l *leaf) bool { return !dead[l.uid] })
	var errs []error
	for _, l := range leaves {
		err := e.readPopulated(l, l.kernel.cpus)
		if isGone(err) {
			l.kernel.vanished, l.kernel.populated, err = true, false, nil
		}
		errs = append(errs, err)
		if err != nil || e.mayRun(l) {
			delete(dead, l.uid)
		}
	}
	e.dropEnded(slices.Collect(maps.Keys(dead)))
	return errors.Join(errs...)
}

// mayRun reports whether a process runs in the leaf or may still start there: between the answer to Start and the first
// process the group is empty.
func (e *Engine) mayRun(l *leaf) bool {
	if l.kernel.populated {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return l.phase == started && !l.kernel.lived && !l.kernel.vanished
}

func (e *Engine) dropEnded(dead []string) {
	e.dropGrants(dead)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range dead {
		if p := e.pods[uid]; p == nil || !p.gone {
			continue // it came back meanwhile
		}
		delete(e.pods, uid)
		e.account.Remove(uid)
	}
	maps.DeleteFunc(e.leaves, func(_ string, l *leaf) bool { return e.pods[l.uid] == nil })
}

// plan joins the table with the leaves. A plan that is outdated has no rows.
func (e *Engine) plan(m *topo.Machine, focus string) *pass {
	e.mu.Lock()
	e.unpinned = e.findUnpinned(e.account.View())
	in, _ := e.input()
	leaves := e.sortedLeaves()
	p := &pass{e: e, m: m, view: in.View, items: make([]*item, 0, len(leaves)), focus: focus}
	p.beHeld, p.beLimited = e.beHeld, !in.BE.CPUs.IsEmpty()
	kstatic := desired.Pinned(in.View)
	for _, l := range leaves {
		if l.kernel.vanished {
			continue
		}
		it := &item{leaf: l, phase: l.phase}
		if owner := e.pods[l.uid]; owner != nil {
			it.role, it.orphan = owner.Entry.Role, owner.orphan != known
			if _, pinned := kstatic[l.uid]; pinned && owner.Pinnable {
				it.role = qos.KubeletPinned
			}
			if e.unpinned[l] && it.role == qos.KubeletPinned {
				it.role = qos.SharedPool
			}
			if in.Kubelet != nil && it.role != qos.KubeletPinned {
				it.role, it.orphan = qos.SharedPool, false
			}
		}
		p.items = append(p.items, it)
	}
	e.mu.Unlock()
	if in.Kubelet != nil { // no pod has CPUs of its own any more
		e.dropGrants(slices.Collect(maps.Keys(e.grants)))
	}
	if p.isOutdated() {
		return p
	}
	byPath := make(map[string]*item, len(p.items))
	for _, it := range p.items {
		byPath[it.path] = it
	}
	for _, row := range desired.Compute(in).Rows {
		if row.File != desired.CPUs {
			p.rows = append(p.rows, row)
			continue
		}
		if it := byPath[row.Path]; it != nil {
			it.want, it.has = row.CPUs, true
			if row.Cause == desired.UnallocatedShared {
				it.role = qos.SharedPool
			}
		}
	}
	p.fallBackToPool()
	return p
}

// fallBackToPool puts the processes of exclusive pods on the shared pool when they have no CPUs: all that they had went
// offline, or none were allocated. A v2 kernel lets them run on all CPUs of their parent, including those of other
// pods. New ones do not start.
func (p *pass) fallBackToPool() {
	pool := p.view.SharedPool()
	for _, it := range p.items {
		if it.has || it.orphan || !it.role.Binds() || !it.kernel.populated || pool.IsEmpty() {
			continue
		}
		if it.kernel.stranded || !it.kernel.effective.SubsetOf(&it.kernel.cpus) || p.e.hasLeftGrant(p.m, it) {
			it.role, it.want, it.has, it.kernel.stranded = qos.SharedPool, pool, true, true
		}
	}
}

// hasLeftGrant reports whether a leaf runs on other CPUs than its pod was granted.
func (e *Engine) hasLeftGrant(m *topo.Machine, it *item) bool {
	g, ok := e.grants[it.uid]
	own, _, err := m.ParseList(g.CPUs)
	return ok && err == nil && !it.kernel.effective.SubsetOf(&own)
}

// discardReadings drops what was read of the tree if the machine is another one: sets are in the indices of their
// machine. The caller holds turn.
func (e *Engine) discardReadings(m *topo.Machine) {
	if e.machine == m {
		return
	}
	e.machine = m
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.leaves {
		l.kernel.known = false
	}
}

// grantRecord stands for the checkpoint where files of the tree are named.
const grantRecord = "the record of granted CPUs"

// saveGrants saves the grants of exclusive pods that run and whose grant is not in the checkpoint: their allocation
// changed, or the checkpoint was lost.
//
// A failure to save them, as on a full disk, is reported and retried, and does not fail the pass: the tree can be in
// sync all the same, and an agent that is not ready would leave the node unmanaged.
func (p *pass) saveGrants() {
	for _, it := range p.items {
		f := file{it.path, grantRecord}
		if it.orphan || !it.has || !it.occupies() || p.e.isBackingOff(f) {
			continue
		}
		g := p.e.grantOf(it)
		if err := p.e.saveGrant(it.uid, g); err != nil {
			p.e.failed(f, Record{UID: it.uid, Container: it.container, Want: g.CPUs}, err)
			return
		}
	}
}

// shrink takes from every leaf the CPUs that its row does not have, deepest leaf first. A leaf that would keep no CPU
// gets the free part of its row in one write instead: an empty set would mean all CPUs.
func (p *pass) shrink() {
	order := p.order(func(a, b *item) int { return depth(b.path) - depth(a.path) })
	var moved []*item
	for _, it := range order {
		reach := it.kernel.reach()
		if !it.has || reach.SubsetOf(&it.want) {
			continue
		}
		if keep := reach.Intersect(it.want); !keep.IsEmpty() {
			p.set(it, keep)
		} else {
			moved = append(moved, it)
		}
	}
	for _, it := range moved { // after all exclusive leaves have shrunk
		free, ok := p.free(it)
		if !ok && !it.role.Binds() {
			free, ok = p.restOfPool(it)
		}
		if ok {
			p.moved = true
			p.set(it, free)
		}
	}
}

// restOfPool returns a set for a shared leaf that has to leave all its CPUs while none of its row is free: the free
// CPUs of its pool. It is false if running exclusive pods have all of them; the leaf then remains where it is.
func (p *pass) restOfPool(it *item) (cpuset.Set, bool) {
	anywhere := *it
	anywhere.want = p.view.SharedPool()
	if it.role == qos.BEPool {
		anywhere.want = p.view.BEPool()
	}
	return p.free(&anywhere)
}

// grow gives every leaf its row, shallowest leaf first, exclusive ones before those of the pools.
func (p *pass) grow() {
	order := p.order(func(a, b *item) int {
		if c := depth(a.path) - depth(b.path); c != 0 {
			return c
		}
		switch {
		case a.role.Binds() == b.role.Binds():
			return 0
		case a.role.Binds():
			return -1
		}
		return 1
	})
	for _, it := range order {
		if it.settled() || it.orphan || !it.has ||
			p.beHeld && it.role == qos.BEPool && !it.kernel.cpus.IsEmpty() {
			continue
		}
		// A parent that is narrower than the row is not cured by writing again.
		if free, ok := p.free(it); ok && free != it.kernel.cpus {
			p.set(it, free)
		}
	}
}

// order returns the items sorted by cmp, then by path.
func (p *pass) order(compare func(a, b *item) int) []*item {
	out := slices.Clone(p.items)
	slices.SortStableFunc(out, compare)
	return out
}

// free returns the part of the leaf's row that it may have right now: for an exclusive leaf all or nothing, for a
// shared one what no exclusive pod has. false when that is nothing.
func (p *pass) free(it *item) (cpuset.Set, bool) {
	if it.role.Binds() {
		return it.want, p.conflict(it) == nil
	}
	free := it.want
	for _, x := range p.items {
		if x.uid != it.uid && x.occupies() && !maySee(x.role, it.role) {
			free = free.Minus(x.kernel.reach())
		}
	}
	return free, !free.IsEmpty()
}

// claim is every CPU that other exclusive pods have to wait for: those of the leaf's reach, and of its row while it
// runs.
func (it *item) claim() cpuset.Set {
	claim := it.kernel.reach()
	if it.has && it.occupies() {
		claim = claim.Union(it.want)
	}
	return claim
}

// conflict returns a leaf of another pod that has a claim on CPUs of the row of the exclusive leaf it, nil when there
// is none.
func (p *pass) conflict(it *item) *item {
	for _, x := range p.items {
		if x.uid == it.uid || maySee(it.role, x.role) || x.role.Binds() && !x.occupies() {
			continue
		}
		if claim := x.claim(); claim.Overlaps(&it.want) {
			return x
		}
	}
	return nil
}

// describeConflict returns a sentence about the CPUs of the row of it on which x has a claim.
func (p *pass) describeConflict(x, it *item) string {
	claim := x.claim()
	return fmt.Sprintf("%s still has CPUs %s", x.path, p.m.FormatList(claim.Intersect(it.want)))
}

// reportStuck reports, once per cause, the exclusive leaves that run outside of their rows and whose rows are in use,
// as after another program has swapped the sets of two pods. They remain where they are until the other pod ends.
func (p *pass) reportStuck() {
	for _, it := range p.items {
		reach := it.kernel.reach()
		if !it.role.Binds() || !it.has || it.orphan || !it.occupies() || reach.IsEmpty() || reach.Overlaps(&it.want) {
			continue
		}
		x := p.conflict(it)
		if x == nil || it.kernel.stuckOn == x.path {
			continue
		}
		it.kernel.stuckOn = x.path
		r := it.record(EnforcementFailed, p.m.FormatList(it.want), p.m.FormatList(it.kernel.cpus))
		r.Err = errors.New(p.describeConflict(x, it))
		p.e.record(r)
	}
}

// dropVanished drops what is known of groups that vanished, and the faults of files that need no retry any more: those
// that were due and that the pass did not have to try.
func (p *pass) dropVanished() {
	e := p.e
	e.mu.Lock()
	for _, it := range p.items {
		if it.kernel.vanished && it.leaf.phase != created {
			delete(e.leaves, it.path)
			e.wake()
		}
	}
	groups := make(map[string]bool, len(e.leaves))
	for at, l := range e.leaves {
		groups[at], groups[path.Dir(at)], groups[path.Dir(path.Dir(at))] = !l.kernel.vanished, true, true
	}
	e.mu.Unlock()
	now := e.o.Clock.Now()
	maps.DeleteFunc(e.faults, func(f file, x *fault) bool { return !groups[f.group] || !x.next.After(now) })
	maps.DeleteFunc(e.plain, func(f file, _ string) bool { return !groups[f.group] })
}
