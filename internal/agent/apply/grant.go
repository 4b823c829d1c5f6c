package apply

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// keepGrants keeps running pods on the CPUs that they were granted when their allocation changes, as happens when a
// user edits the pods' annotations: in the account too, until their processes have ended or the allocation is the
// granted one again.
func (e *Engine) keepGrants(m *topo.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		p := e.pods[uid]
		if p.orphan != known || !p.Entry.Role.Binds() {
			continue
		}
		granted, changed := e.changedGrant(m, p)
		switch {
		case changed:
			held := p.Entry
			held.CPUList = granted
			e.account.Put(held)
			if !p.kept && !p.gone {
				e.outbox = append(e.outbox, Record{
					Kind: AllocationRefused, UID: uid, Namespace: p.Entry.Namespace, Name: p.Entry.Name,
					Group: p.Cgroup, Want: p.Entry.CPUList, Got: granted,
				})
			}
			p.kept = true // of a deleted pod too: grantOf must not record the changed allocation
		case p.kept && !p.gone:
			p.kept = false
			e.account.Put(p.Entry)
		}
	}
}

// changedGrant returns what a running pod was granted, and whether its allocation says something else by now. The
// caller holds turn and mu.
func (e *Engine) changedGrant(m *topo.Machine, p *pod) (granted string, yes bool) {
	g, ok := e.grants[p.Entry.UID]
	if !ok || g.CPUs == "" || g.CPUs == p.Entry.CPUList {
		return "", false
	}
	for _, l := range e.leaves {
		if l.uid == p.Entry.UID && !l.kernel.vanished && (l.phase == started || l.kernel.populated) {
			return g.CPUs, onlineCPUs(m, p.Entry.CPUList) != onlineCPUs(m, g.CPUs)
		}
	}
	return "", false
}

// onlineCPUs returns the CPUs of a list that the machine has and that are online; none when it cannot be read.
func onlineCPUs(m *topo.Machine, list string) cpuset.Set {
	set, _, err := m.ParseList(list)
	if err != nil {
		return cpuset.Set{}
	}
	return set.Intersect(m.Online())
}
