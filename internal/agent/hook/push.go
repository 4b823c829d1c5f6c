package hook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// batch is how many containers the runtime is told of at once: it lets nobody else in while it writes them.
const batch = 1

// Moved takes the sets that a pass of the engine left in groups. A runtime that has another one stored would write that
// again some day: with the systemd driver whenever systemd reloads, with both when a container is resized while no agent
// answers.
func (s *Service) Moved(pass uint64, sets []apply.Moved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range sets {
		if c := s.containers[s.byGroup[m.Group]]; c != nil && pass >= c.pass {
			c.kernel, c.pass = m.CPUs, pass
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

// isNews reports whether the runtime has another set stored than the kernel, and is not being told already.
func (c *container) isNews() bool {
	return !c.ended && c.kernel != "" && c.kernel != c.told && c.flights[pushed].cpus == ""
}

// News has a token while the runtime is to be told something.
func (s *Service) News() <-chan struct{} { return s.news }

// Next returns what to tell the runtime next; nothing when it knows all, or while the agent writes nothing.
func (s *Service) Next() []Update {
	if !s.o.Writes() {
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

// Sent tells that the runtime has written what Next returned. A container that it did not take is not told again before
// its set changes.
func (s *Service) Sent(updates []Update) {
	for _, u := range updates {
		s.landed(u.ContainerID, pushed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announce()
}

// launch notes that the runtime is told a set. The caller holds mu.
func (s *Service) launch(c *container, from origin, cpus string) {
	c.told, c.flights[from] = cpus, flight{cpus, s.o.Clock.Now().Add(flightTime)}
}

// landed notes that the runtime has written what it was told. Where it was told something else meanwhile, nobody knows
// which of them came last: it is told again. Where the engine has moved on, it looks again.
func (s *Service) landed(id string, from origin) {
	s.mu.Lock()
	c := s.containers[id]
	stale := false
	if c != nil {
		cpus := c.flights[from].cpus
		c.flights[from] = flight{}
		if cpus != "" && c.told != cpus {
			c.told = ""
		}
		stale = cpus != "" && c.kernel != "" && c.kernel != cpus
	}
	s.mu.Unlock()
	if stale {
		s.o.Engine.Recheck()
	}
}

// landingOn refuses the start of an exclusive container while the runtime may yet write one of its CPUs into the group
// of another: the engine has seen that nobody is there, and that could end the moment after.
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
	for id, x := range s.containers {
		for _, f := range x.flights {
			if f.cpus != "" && now.Before(f.until) && x.uid != c.UID && overlap(cpus, f.cpus) {
				threats[id] = x.uid
			}
		}
	}
	s.mu.Unlock()
	for id, uid := range threats {
		if s.o.Engine.Excludes(c.UID, uid) {
			return &apply.Blocked{Container: engineContainer(c), Cause: apply.ErrHandOverPending, Detail: fmt.Sprintf(
				"the runtime is still writing an older set of container %s, with CPUs of %s", id, cpus)}
		}
	}
	return nil
}

// shrinking returns updates for containers that the kernel still has on CPUs that a container of the pod uid is to have
// for itself. As a rule there are none: the engine moves the pools when the pod is bound.
func (s *Service) shrinking(uid, cpus string) []Update {
	if cpus == "" || !s.o.Engine.Binds(uid) {
		return nil
	}
	s.mu.Lock()
	there, judged := map[string]container{}, map[string]bool{} // most containers have one of a few sets
	for id, x := range s.containers {
		set := cmp.Or(x.kernel, x.told)
		yes, known := judged[set]
		if !known {
			yes = overlap(set, cpus)
			judged[set] = yes
		}
		if yes && x.uid != uid && !x.ended {
			there[id] = *x
		}
	}
	s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(there)) {
		x := there[id]
		if !s.o.Engine.Excludes(uid, x.uid) {
			continue
		}
		rows, err := s.o.Engine.Peek(apply.Container{PodUID: x.uid, Name: x.name, Group: x.group})
		set := resources(rows).CPUs
		if err != nil || set == "" || overlap(set, cpus) {
			continue // the start waits until it is gone
		}
		s.mu.Lock()
		if live := s.containers[id]; live != nil {
			live.told = set
		}
		s.mu.Unlock()
		out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: set}})
	}
	return out
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
