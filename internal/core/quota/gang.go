package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// members is the pods of the account that name one gang, by UID.
type members map[string]*entry

// join adds a pod to its gang. What is known of the gang's start is void then.
func (a *Account) join(e *entry) {
	name := e.pod.Gang
	if name == "" {
		return
	}
	if a.gangs[name] == nil {
		a.gangs[name] = members{}
	}
	a.gangs[name][e.pod.UID] = e
	delete(a.starts, name)
}

// part removes a pod from its gang. What is known of the gang's start is void then.
func (a *Account) part(e *entry) {
	delete(a.starts, e.pod.Gang)
	g := a.gangs[e.pod.Gang]
	if delete(g, e.pod.UID); len(g) == 0 {
		delete(a.gangs, e.pod.Gang)
	}
}

// SetGang sets what holds the pods of a gang together; the zero value for one that is gone.
func (a *Account) SetGang(name string, b gang.Bond) {
	delete(a.starts, name)
	if a.bonds[name] = b; b == (gang.Bond{}) {
		delete(a.bonds, name)
	}
}

// gangOf returns the gang of a pod; empty for one that starts alone.
func (a *Account) gangOf(e *entry) string {
	if a.bonds[e.pod.Gang].Plain {
		return ""
	}
	return e.pod.Gang
}

// holding returns how many members of a gang hold their amounts and are not leaving.
func (a *Account) holding(name string) (n int) {
	for _, e := range a.gangs[name] {
		if e.state != Pending && !e.pod.Leaving {
			n++
		}
	}
	return n
}

// Gangs returns the gangs of all pods, by Pod.Gang.
func (a *Account) Gangs() map[string]*Gang {
	gangs, groups := map[string]*Gang{}, map[string][]*Gang{}
	for _, name := range slices.Sorted(maps.Keys(a.gangs)) {
		g := &Gang{Bond: a.bonds[name], Bound: a.holding(name)}
		key := cmp.Or(g.Bond.Group, name)
		gangs[name], groups[key] = g, append(groups[key], g)
	}
	for _, group := range groups {
		for _, g := range group {
			if len(group) > 1 {
				g.Group = group
			}
		}
	}
	return gangs
}

// together returns the pods, and the pending members of their gangs that are required beside those that hold their
// amounts: as many, or as there are, by priority and UID. With gang.Bond.AtOnce, no Strict gang starts where its quotas
// lack room for all that it needs.
func (a *Account) together(uids []string, required func(gang.Bond, int) int) []string {
	all, done := uids, ""
	for _, uid := range uids {
		e := a.pods[uid]
		if e == nil || e.state != Pending || a.gangOf(e) == "" || e.pod.Gang == done {
			continue
		}
		done = e.pod.Gang
		lacks := required(a.bonds[done], a.holding(done))
		if lacks <= 1 && !e.pod.Leaving { // the pod itself is enough
			continue
		}
		var others []*entry
		for _, o := range a.gangs[done] {
			switch {
			case o.state != Pending || o.pod.Leaving:
			case slices.Contains(all, o.pod.UID):
				lacks--
			default:
				others = append(others, o)
			}
		}
		if lacks < len(others) { // else all of them count, in any order: most gangs need every member
			slices.SortFunc(others, func(x, y *entry) int {
				return cmp.Or(cmp.Compare(y.pod.Priority, x.pod.Priority), cmp.Compare(x.pod.UID, y.pod.UID))
			})
		}
		all = slices.Grow(slices.Clip(all), min(max(lacks, 0), len(others)))
		for _, o := range others[:min(max(lacks, 0), len(others))] {
			all = append(all, o.pod.UID)
		}
	}
	return all
}

// start is the members of a gang that were admitted together and have yet to be reserved, with what they ask for. As
// long as nothing else changes of the gang or the quotas, each of them asks for just these, so that the work to admit
// one member after the other is linear in their number.
type start struct {
	uids   map[string]bool
	claims []claim // Invariant: as Account.claim adds them up for uids, within the int64s.
}

// begin notes which members of a gang were admitted together.
func (a *Account) begin(name string, uids []string) {
	if slices.ContainsFunc(a.claims, func(c claim) bool { return c.n == math.MaxInt64 || c.held != 0 }) {
		return
	}
	s := &start{map[string]bool{}, slices.Clone(a.claims)}
	for _, uid := range uids {
		s.uids[uid] = true
	}
	a.starts[name] = s
}

// mayFollow reports whether a pod was admitted with its gang, and those left of it may hold what they ask for now.
func (a *Account) mayFollow(e *entry) bool {
	s := a.starts[e.pod.Gang]
	return s != nil && s.uids[e.pod.UID] && len(a.nominated) == 0 && a.check(e.group.quota, s.claims, 0) == nil
}

// follow notes that a member holds its amounts now, or no longer.
func (a *Account) follow(e *entry) {
	s := a.starts[e.pod.Gang]
	if s == nil || e.state != Reserved || !s.uids[e.pod.UID] {
		delete(a.starts, e.pod.Gang)
		return
	}
	delete(s.uids, e.pod.UID)
	a.each(e, func(asked claim) { find(s.claims, asked).n -= asked.n })
}
