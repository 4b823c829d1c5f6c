package gang

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Report is what is known of a gang at one moment.
type Report struct {
	Gang     string // namespace/name
	Settings Settings
	InObject bool // a PodGroup describes it
	Created  time.Time
	Started  bool      // it was satisfied once
	Degraded bool      // it has started, fewer than the minimum run, and others are pending
	Cycle    int       // of the group's round; 0 where the group is not complete
	Deadline time.Time // of what waits; zero where nothing does
	Members  []Member  // by name
}

// Member is a member of a gang.
type Member struct {
	UID, Namespace, Name string
	Phase                Phase
	Cycle                int // in which it was last tried
}

// Find returns the report of a gang; false for one that does not exist.
func (s *State) Find(id string) (Report, bool) {
	g := s.gangs[id]
	if g == nil {
		return Report{}, false
	}
	r := Report{
		Gang: id, Settings: g.settings, InObject: g.object != nil, Created: g.created(), Started: g.started,
		Degraded: g.isDegraded(),
	}
	r.Settings.Group = slices.Clone(g.settings.Group)
	if g.group != nil {
		r.Cycle, r.Deadline = g.group.cycle, g.group.deadline
	}
	for _, m := range g.members {
		r.Members = append(r.Members, Member{m.pod.UID, m.pod.Namespace, m.pod.Name, m.phase, m.cycle})
	}
	slices.SortFunc(r.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return r, true
}

// Gangs returns the names of all gangs, sorted.
func (s *State) Gangs() []string { return slices.Sorted(maps.Keys(s.gangs)) }

// GangOf returns the gang of a member; empty for a pod that is not known.
func (s *State) GangOf(uid string) string {
	if m := s.members[uid]; m != nil {
		return m.gang.id
	}
	return ""
}
