package gang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Check returns what is wrong with a State: each number it keeps is counted again.
func (s *State) Check() error {
	for id, g := range s.gangs {
		var count [numPhases]int
		untried, oldest, gates := 0, (*member)(nil), map[string]int{}
		for uid, m := range g.members {
			count[m.phase]++
			if g.group != nil && m.cycle > g.group.cycle {
				return fmt.Errorf("%s was tried in cycle %d of %d", uid, m.cycle, g.group.cycle)
			}
			if m.phase == Pending && (g.group == nil || m.cycle < g.group.cycle) {
				untried++
			}
			if m.phase == Gated {
				gates[m.pod.Gate]++
			}
			if m.older(oldest) {
				oldest = m
			}
			if s.members[uid] != m || m.gang != g || m.pod.Gang != id {
				return fmt.Errorf("%s is a member of %s and of %s", uid, id, m.pod.Gang)
			}
		}
		switch {
		case id != g.id || len(g.members) == 0 && g.object == nil:
			return fmt.Errorf("gang %s is kept under %s, with %d members", g.id, id, len(g.members))
		case count != g.count || g.group != nil && untried != g.untried:
			return fmt.Errorf("gang %s counts %v, %d untried, and has %v, %d", id, g.count, g.untried, count, untried)
		case g.bonded != s.Bond(id):
			return fmt.Errorf("gang %s has the bond %+v, and %+v was reported", id, s.Bond(id), g.bonded)
		case !maps.Equal(gates, g.gates):
			return fmt.Errorf("gang %s counts the gates %v, and has %v", id, g.gates, gates)
		case oldest != g.oldest:
			return fmt.Errorf("the oldest of %s is another", id)
		case (g.group != nil) != (s.foreign(g) == ""):
			return fmt.Errorf("gang %s has the group %v and lacks %q", id, g.group, s.foreign(g))
		case g.group == nil:
			if count[Waiting] > 0 {
				return fmt.Errorf("members of %s wait without a group", id)
			}
			continue
		case s.groups[g.group.key] != g.group || g.group.key != strings.Join(g.settings.Group, ","):
			return fmt.Errorf("gang %s has another group than %v", id, g.settings.Group)
		case len(g.group.gangs) != len(g.settings.Group) || !slices.Contains(g.group.gangs, g):
			return fmt.Errorf("gang %s is not in its group", id)
		case count[Waiting] > 0 && g.group.deadline.IsZero():
			return fmt.Errorf("members of %s wait for ever", id)
		case count[Waiting] > 0 && g.isOpen():
			return fmt.Errorf("members of %s wait, and it is satisfied", id)
		}
	}
	counting := 0
	for key, g := range s.groups {
		switch c := g.claim; {
		case len(g.gangs) == 0:
			return fmt.Errorf("group %s is empty", key)
		case c == nil:
		case !g.plans() || s.gate(g.gangs[0]).Code != why.None:
			return fmt.Errorf("group %s is not to be planned, and has a claim", key)
		case c.outlook == Short && c.overtaken < s.maxOvertakes:
			if counting++; !slices.Contains(s.short, g) {
				return fmt.Errorf("group %s is not overtaken any more", key)
			}
		}
	}
	if counting != len(s.short) || !slices.IsSortedFunc(s.short, compareClaims) {
		return fmt.Errorf("%d groups count, want %d in order", len(s.short), counting)
	}
	if len(s.ended) != len(s.endings) || len(s.ended) > mostEnded {
		return fmt.Errorf("%d ended gangs in a list of %d", len(s.ended), len(s.endings))
	}
	for name, b := range s.branches {
		switch above := s.branches[compositeName(b.Parent)]; {
		case b.name != name || !b.Exists && len(b.below) == 0:
			return fmt.Errorf("branch %s is kept under %s, with %d below", b.name, name, len(b.below))
		case b.Parent != "" && (above == nil || above.below[name] != b):
			return fmt.Errorf("branch %s is not below %s", name, b.Parent)
		case b.gang != nil && s.gangs[b.gang.id] != b.gang:
			return fmt.Errorf("branch %s has gang %s, which is gone", name, b.gang.id)
		}
	}
	listers := 0
	for id, gangs := range s.listers {
		listers += len(gangs)
		for lister, g := range gangs {
			if s.gangs[lister] != g || !slices.Contains(g.settings.Group, id) {
				return fmt.Errorf("%s does not list %s", lister, id)
			}
		}
	}
	for _, g := range s.gangs {
		listers -= len(g.settings.Group)
	}
	if listers != 0 {
		return fmt.Errorf("%d listings too many", listers)
	}
	return nil
}

// PlanOf is a plan of gangs of which so many members must run, none does, and these are to be tried.
func PlanOf(least []int, members [][]string) *Plan {
	p := &Plan{gang: map[string]*tally{}}
	for g, uids := range members {
		t := &tally{least: least[g], pending: len(uids)}
		p.tallies = append(p.tallies, t)
		for _, uid := range uids {
			p.gang[uid] = t
		}
		p.Members = append(p.Members, uids...)
	}
	slices.Sort(p.Members)
	return p
}
