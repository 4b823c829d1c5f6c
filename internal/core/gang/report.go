package gang

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Report is what is known of a gang at one moment.
type Report struct {
	Gang     string // namespace/name
	Settings Settings
	Rules    []domain.Rule // those of Settings, and that of a GPU clique which the gang prefers without stating it
	Object   *Object       // the PodGroup that describes it; nil without one
	Created  time.Time
	Started  bool      // it was satisfied once
	Degraded bool      // its group has started, fewer than the minimum run, and others are pending
	Cycle    int       // of the group's round; 0 where the group is not complete
	Deadline time.Time // of what waits; zero where nothing does
	Members  []Member  // by name
	Last     Attempt   // of its group
	Why      Refusal   // why members that are not bound are not; none where all are, or nothing is in the way
}

// Status is what a gang does, in a word.
type Status string

// Statuses.
const (
	StatusBound   Status = "Bound"   // the minimum is bound
	StatusHolding Status = "Holding" // members hold reservations
	StatusWaiting Status = "Waiting"
)

// In returns the members in some phases.
func (r Report) In(phases ...Phase) (members []Member) {
	for _, m := range r.Members {
		if slices.Contains(phases, m.Phase) {
			members = append(members, m)
		}
	}
	return members
}

// Status returns what the gang does.
func (r Report) Status() Status {
	switch {
	case len(r.In(Bound)) >= r.Settings.Min:
		return StatusBound
	case len(r.In(Waiting, Returning, Allowed)) > 0:
		return StatusHolding
	}
	return StatusWaiting
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
		Gang: id, Settings: g.settings, Rules: s.stated(g), Object: g.object, Created: g.created(),
		Started: g.hasStarted(), Degraded: g.isDegraded(),
	}
	r.Settings.Group = slices.Clone(g.settings.Group)
	if g.group != nil {
		r.Cycle, r.Deadline, r.Last = g.group.cycle, g.group.deadline, g.group.last
	}
	for _, m := range g.members {
		r.Members = append(r.Members, Member{m.pod.UID, m.pod.Namespace, m.pod.Name, m.phase, m.cycle})
	}
	slices.SortFunc(r.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if g.count[Gated] > 0 {
		r.Why = s.gate(g)
	}
	for _, m := range append(r.In(Pending), r.In(Returning, Waiting)...) {
		if r.Why.Code == why.None {
			r.Why = s.Why(m.UID)
		}
	}
	return r, true
}

// Overruled returns the oldest member of a pod's gang, as namespace/name, where that says other things of the gang than
// the pod, which then do not count.
func (s *State) Overruled(uid string) (winner string, overruled bool) {
	m := s.members[uid]
	if m == nil || m.gang.isPlain() || reflect.DeepEqual(m.pod.Settings, m.gang.oldest.pod.Settings) {
		return "", false
	}
	oldest := m.gang.oldest.pod
	return oldest.Namespace + "/" + oldest.Name, true
}

// Gangs returns the names of all gangs, sorted, without those of PodGroups that are Plain.
func (s *State) Gangs() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.gangs)), func(id string) bool { return s.gangs[id].isPlain() })
}

// GangOf returns the gang of a member; empty for a pod that is not known.
func (s *State) GangOf(uid string) string {
	if m := s.members[uid]; m != nil {
		return m.gang.id
	}
	return ""
}

// Company returns the gangs that start together with that of a member, sorted, between commas, and how many members
// they have; nothing for a pod that starts alone.
func (s *State) Company(uid string) (gangs string, members int) {
	m := s.members[uid]
	if m == nil || m.gang.isPlain() || m.gang.group == nil {
		return "", 0
	}
	for _, g := range m.gang.group.gangs {
		members += len(g.members)
	}
	return m.gang.group.key, members
}

// IsOpen reports whether a member is scheduled like a pod without a gang.
func (s *State) IsOpen(uid string) bool {
	m := s.members[uid]
	return m != nil && m.gang.isOpen()
}
