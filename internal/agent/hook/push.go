package hook

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// batch is the number of containers in one push: the runtime serves no other call while it writes them.
const batch = 1

// Moved takes the sets that a pass of the engine left in groups. A runtime that has another one stored would write that
// again some day: with the systemd driver whenever systemd reloads, with both when a container is resized while no
// agent answers.
func (s *Service) Moved(pass uint64, sets map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if cpus, ok := sets[c.group]; ok && pass >= c.pass {
			c.kernel, c.pass = cpus, pass
		}
	}
	s.announce()
}

// announce puts a token into news if there is some. The caller holds mu.
func (s *Service) announce() {
	for _, c := range s.containers {
		if !c.isNews() {
			continue
		}
		select {
		case s.news <- struct{}{}:
		default:
		}
		return
	}
}

// isNews reports whether the set that the runtime has stored differs from the kernel's, and no push is under way.
func (c *container) isNews() bool {
	return !c.ended && c.kernel != "" && c.kernel != c.stored && c.flights[pushed].cpus == ""
}

// News implements Handler.
func (s *Service) News() <-chan struct{} { return s.news }

// Next implements Handler. There are none while the agent writes nothing.
func (s *Service) Next() []Update {
	if !s.o.Writes() && !s.o.Leaves() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		if c := s.containers[id]; c.isNews() && len(out) < batch {
			s.launch(c, pushed, c.kernel)
			out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: c.kernel}})
		}
	}
	return out
}

// Sent implements Handler. An update that it did not take is not pushed again
// until the container's set changes.
func (s *Service) Sent(updates []Update) {
	for _, u := range updates {
		s.landed(u.ContainerID, pushed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce()
}

// launch records that a set is sent to the runtime. The caller holds mu.
func (s *Service) launch(c *container, from origin, cpus string) {
	now, before := s.o.Clock.Now(), c.flights[from]
	is := flight{cpus: cpus, until: now.Add(flightTime)}
	if before.flies(now) {
		is.cpus, is.more = before.cpus+","+cpus, before.more+1
	}
	c.stored, c.flights[from] = cpus, is
}

// landed records that the runtime has written a set that it received. If it received another set meanwhile, the order
// of the two writes is unknown and the set is sent again. If the kernel's set has changed since, the engine checks
// again.
func (s *Service) landed(id string, from origin) {
	s.mu.Lock()
	c := s.containers[id]
	stale := false
	if c != nil {
		f := &c.flights[from]
		cpus := f.cpus
		if f.more--; f.more < 0 {
			*f = flight{}
		}
		if cpus != "" && c.stored != cpus {
			c.stored = ""
		}
		stale = cpus != "" && c.kernel != "" && c.kernel != cpus
	}
	close(s.landings)
	s.landings = make(chan struct{})
	s.mu.Unlock()
	if stale {
		s.o.Engine.Recheck()
	}
}

// landingOn rejects the start of an exclusive container while the runtime may still write one of its CPUs into the
// group of another container: the engine found the CPUs unused, and that write would change it.
func (s *Service) landingOn(c *Container) error {
	s.mu.Lock()
	cpus := c.Has.CPUs // where the group does not exist yet
	if own := s.containers[c.ID]; own != nil && own.kernel != "" {
		cpus = own.kernel
	}
	if cpus == "" {
		s.mu.Unlock()
		return nil
	}
	now, threats := s.o.Clock.Now(), map[string]string{} // container id to UID
	check := func(id string, x *container, f flight) {
		if x != nil && f.flies(now) && x.uid != c.UID && overlap(cpus, f.cpus) {
			threats[id] = x.uid
		}
	}
	for id, x := range s.containers {
		for _, f := range x.flights {
			check(id, x, f)
		}
		for other, f := range x.others {
			check(other, s.containers[other], f)
		}
	}
	s.mu.Unlock()
	for id, uid := range threats {
		if s.o.Engine.Excludes(c.UID, uid) {
			return engineContainer(c).Blocked(apply.ErrHandOverPending,
				"the runtime is still writing an older set of container %s, with CPUs of %s", id, cpus)
		}
	}
	return nil
}

// shrinking returns updates for containers that the kernel still has on CPUs that a container is to have for itself. As
// a rule there are none: the engine moves the pools when the pod is bound.
func (s *Service) shrinking(c *Container, known *container, cpus string) []Update {
	if cpus == "" || !s.o.Engine.Binds(c.UID) {
		return nil
	}
	s.mu.Lock()
	there, judged := map[string]container{}, map[string]bool{} // most containers have one of a few sets
	for id, x := range s.containers {
		set := cmp.Or(x.kernel, x.stored)
		yes, done := judged[set]
		if !done {
			yes = overlap(set, cpus)
			judged[set] = yes
		}
		if yes && x.uid != c.UID && !x.ended {
			there[id] = *x
		}
	}
	s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(there)) {
		x := there[id]
		if !s.o.Engine.Excludes(c.UID, x.uid) {
			continue
		}
		peek := func() string {
			rows, err := s.o.Engine.Peek(apply.Container{PodUID: x.uid, Name: x.name, Group: x.group})
			if set := resources(rows).CPUs; err == nil && !overlap(set, cpus) {
				return set
			}
			return "" // the start waits until it is gone
		}
		set := s.send(peek, func(set string) {
			if live := s.containers[id]; live != nil && set != "" {
				live.stored = set
			}
			if known.others == nil {
				known.others = map[string]flight{}
			}
			known.others[id] = flight{cpus: set, until: s.o.Clock.Now().Add(flightTime)}
		})
		if set != "" {
			out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: set}})
		}
	}
	return out
}

// send notes a set that is to be sent until it is what the engine wants after it was noted: a container that started in
// between knows nothing of the set, and one that starts later does. note is called with mu held.
func (s *Service) send(wanted func() string, note func(cpus string)) string {
	for cpus := wanted(); ; {
		s.mu.Lock()
		note(cpus)
		s.mu.Unlock()
		again := wanted()
		if again == cpus {
			return cpus
		}
		cpus = again
	}
}

// wrote records that the runtime has written the sets that came with the answer to the Create of a container.
func (s *Service) wrote(id string) {
	s.mu.Lock()
	stale := false
	if c := s.containers[id]; c != nil {
		for other, f := range c.others {
			x := s.containers[other]
			if x == nil || f.cpus == "" {
				continue
			}
			if x.stored != f.cpus {
				x.stored = ""
			}
			stale = stale || x.kernel != "" && x.kernel != f.cpus
		}
		c.others = nil
	}
	s.mu.Unlock()
	if stale {
		s.o.Engine.Recheck()
	}
}

// overlap reports whether two lists have a CPU in common. One that cannot be read overlaps everything.
func overlap(a, b string) bool {
	x, err1 := cpuset.ParseIDs(a)
	y, err2 := cpuset.ParseIDs(b)
	if err1 != nil || err2 != nil {
		return true
	}
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}
