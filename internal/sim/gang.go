package sim

import "github.com/tenon-project/tenon/internal/core/gang"

// Gang is the pods that start together.
type Gang struct {
	Name      string `json:"name"`  // namespace/name
	State     string `json:"state"` // Bound, Holding or Waiting
	Members   int    `json:"members"`
	MinMember int    `json:"minMember"`
	Bound     int    `json:"bound"`
}

// States of a gang.
const (
	GangBound   = "Bound"   // the minimum is bound
	GangHolding = "Holding" // members hold reservations
	GangWaiting = "Waiting"
)

// gangsNow returns all gangs by name, as they are now.
func (e *engine) gangsNow() []Gang {
	out := []Gang{}
	e.gangs.Read(func(s *gang.State) {
		for _, id := range s.Gangs() {
			r, _ := s.Find(id)
			g := Gang{Name: id, State: GangWaiting, Members: len(r.Members), MinMember: r.Settings.Min}
			for _, m := range r.Members {
				switch m.Phase {
				case gang.Bound:
					g.Bound++
				case gang.Waiting, gang.Returning, gang.Allowed:
					g.State = GangHolding
				}
			}
			if g.Bound >= g.MinMember {
				g.State = GangBound
			}
			out = append(out, g)
		}
	})
	return out
}
