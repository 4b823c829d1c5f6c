package quota

import (
	"cmp"
	"slices"
)

// gang is the pods of one gang, by UID.
type gang map[string]*entry

func (a *Account) join(e *entry) {
	name := e.pod.Gang
	if name == "" {
		return
	}
	if a.gangs[name] == nil {
		a.gangs[name] = gang{}
	}
	a.gangs[name][e.pod.UID] = e
}

func (a *Account) part(e *entry) {
	g := a.gangs[e.pod.Gang]
	if delete(g, e.pod.UID); len(g) == 0 {
		delete(a.gangs, e.pod.Gang)
	}
}

// SetGang sets how many members of a gang must run, for one whose members do not say it; 0 where nothing does.
func (a *Account) SetGang(name string, least int) {
	if a.least[name] = least; least == 0 {
		delete(a.least, name)
	}
}

// needs returns how many members of a gang must run, the most that is said, and how many hold their amounts and stay.
func (a *Account) needs(name string) (least, bound int) {
	least = a.least[name]
	for _, e := range a.gangs[name] {
		least = max(least, e.pod.GangMin)
		if e.state != Pending && !e.pod.Leaving {
			bound++
		}
	}
	return least, bound
}

// Gangs returns the gangs of all pods, by Pod.Gang. A gang needs the most that a member says; all that are bound where
// none says anything.
func (a *Account) Gangs() map[string]*Gang {
	gangs := map[string]*Gang{}
	for name := range a.gangs {
		least, bound := a.needs(name)
		gangs[name] = &Gang{Min: cmp.Or(least, bound), Bound: bound}
	}
	return gangs
}

// together returns the pods, and the pending members of their gangs that must start with them: as many as each gang
// lacks, or as there are, by priority and UID. No gang is to start where its quotas lack room for all that it needs.
func (a *Account) together(uids []string) []string {
	all, done := uids, ""
	for _, uid := range uids {
		e := a.pods[uid]
		if e == nil || e.state != Pending || e.pod.Gang == "" || e.pod.Gang == done {
			continue
		}
		done = e.pod.Gang
		least, bound := a.needs(done)
		lacks := least - bound
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
