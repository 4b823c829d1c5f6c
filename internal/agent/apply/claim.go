package apply

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// settleClaims decides about allocations that changed while their pods run, as happens when somebody edits the pods'
// annotations. A pod moves when nobody else has the new CPUs, or those who have them move away too; its old ones stay its
// own until it has left them. Otherwise the change is refused: the pod keeps what it was granted, in the account too,
// until the new CPUs are free or the allocation changes again. A pod that is gone from the API keeps what it was granted.
func (e *Engine) settleClaims(m *topo.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	granted := map[string]string{} // of the pods whose allocation changed
	for uid, p := range e.pods {
		if p.orphan != known || !p.Entry.Role.Binds() {
			continue
		}
		switch g, yes := e.changed(m, p); {
		case yes && p.gone: // it ends where it ran
			held := p.Entry
			held.CPUList = g
			e.account.Put(held)
		case yes:
			granted[uid] = g
		case p.refused != "" && !p.gone:
			p.refused = ""
			e.account.Put(p.Entry)
		}
	}
	refused := e.refusals(m, granted)
	for _, uid := range slices.Sorted(maps.Keys(granted)) {
		p, objection := e.pods[uid], refused[uid]
		switch {
		case objection != "":
			held := p.Entry
			held.CPUList = granted[uid]
			e.account.Put(held)
			if objection != p.refused {
				e.outbox = append(e.outbox, Record{
					Kind: AllocationRefused, UID: uid, Namespace: p.Entry.Namespace, Name: p.Entry.Name,
					Group: p.Cgroup, Want: p.Entry.CPUList, Got: granted[uid], Detail: objection,
				})
			}
		case p.refused != "":
			e.account.Put(p.Entry)
		}
		p.refused = objection
	}
}

// refusals returns why changes cannot be followed, by UID. It begins with all of them followed and takes out those that
// contradict what the others have then, until none does. The caller holds turn and mu.
func (e *Engine) refusals(m *topo.Machine, granted map[string]string) map[string]string {
	refused := map[string]string{}
	view := e.account.View()
	inForce := func(uid string) cpuset.Set {
		switch g, changed := granted[uid]; {
		case !changed:
			return view.CPUsOf(uid)
		case refused[uid] != "":
			return e.claim(m, g)
		}
		return e.claim(m, e.pods[uid].Entry.CPUList)
	}
	for again := true; again; {
		again = false
		for _, uid := range slices.Sorted(maps.Keys(granted)) {
			if refused[uid] != "" {
				continue
			}
			if text := e.objection(m, e.pods[uid], inForce); text != "" {
				refused[uid], again = text, true
			}
		}
	}
	return refused
}

// changed returns what a running pod was granted, and whether its allocation says something else by now. The caller
// holds turn and mu.
func (e *Engine) changed(m *topo.Machine, p *pod) (granted string, yes bool) {
	g, ok := e.grants[p.Entry.UID]
	if !ok || g.CPUs == "" || g.CPUs == p.Entry.CPUList || !e.runs(p.Entry.UID) {
		return "", false
	}
	return g.CPUs, e.claim(m, p.Entry.CPUList) != e.claim(m, g.CPUs)
}

// runs reports whether a process lives in a group of the pod, or may at any moment. The caller holds turn and mu.
func (e *Engine) runs(uid string) bool {
	for _, l := range e.leaves {
		if l.uid == uid && !l.kernel.vanished && (l.phase == started || l.kernel.populated) {
			return true
		}
	}
	return false
}

// claim returns the CPUs of a list that the machine has and that are online; none when it cannot be read.
func (e *Engine) claim(m *topo.Machine, list string) cpuset.Set {
	set, _, err := m.ParseList(list)
	if err != nil {
		return cpuset.Set{}
	}
	return set.Intersect(m.Online())
}

// objection says why a running pod cannot have the CPUs that it claims; "" when it can. The caller holds turn and mu.
func (e *Engine) objection(m *topo.Machine, p *pod, inForce func(uid string) cpuset.Set) string {
	claim := e.claim(m, p.Entry.CPUList)
	if claim.IsEmpty() {
		return "it names no CPU of this machine that is online"
	}
	view := e.account.View()
	for o := range view.Entries() {
		if o.UID == p.Entry.UID || !o.Role.Binds() {
			continue
		}
		if taken := inForce(o.UID).Intersect(claim); !taken.IsEmpty() {
			return fmt.Sprintf("CPUs %s are those of pod %s/%s", m.FormatList(taken), o.Namespace, o.Name)
		}
	}
	if taken := view.KubeletStatic().Intersect(claim); !taken.IsEmpty() {
		return fmt.Sprintf("CPUs %s are pinned by the kubelet", m.FormatList(taken))
	}
	return ""
}
