package sim

import "github.com/tenon-project/tenon/internal/core/gang"

// Gang describes pods that start together.
type Gang struct {
	Name      string      `json:"name"` // namespace/name
	State     gang.Status `json:"state"`
	Members   int         `json:"members"`
	MinMember int         `json:"minMember"`
	Bound     int         `json:"bound"`
}

// gangsNow returns all gangs, by name, in their current state.
func (e *engine) gangsNow() []Gang {
	out := []Gang{}
	e.gangs.Read(func(s *gang.State) {
		for _, id := range s.Gangs() {
			r, _ := s.Find(id)
			out = append(out, Gang{id, r.Status(), len(r.Members), r.Settings.Min, len(r.In(gang.Bound))})
		}
	})
	return out
}
