package hook

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// This file decides which CPUs of existing containers are sent to the runtime, and keeps starts apart
// from writes that the runtime may still make.
//
// Two programs write the cpuset of a container: the engine, and the runtime, which stores a set for each container and
// writes the stored one whenever it updates the container. A set that the Service sends to the runtime is a pending
// write until the runtime reports that it has been made. Three races follow.
//
// The engine changes the set while a write is pending. Whichever of the two writes comes last counts, so the Service
// lets the engine look at the tree again once the runtime has written, and sends the newer set:
//
//	engine                         Service                          runtime
//	  ├─ SetsChanged(B) ─────────────►├─ NextUpdates: B ───────────────►│ stores B
//	  ├─ SetsChanged(C) ─────────────►│                                 │
//	  │  the kernel has C             │                                 ├─ writes B: the kernel has B
//	  │◄──────── Recheck ─────────────┤◄──────────────── UpdatesDone ───┤
//	  ├─ writes C                     ├─ NextUpdates: C ───────────────►│ stores C
//
// Two writes to one container are pending, as one was pushed and one is the answer to an Update. Their order is not
// known, so the stored set is not known either once one of them is done: the Service pushes the kernel's set again.
//
// An exclusive container starts while a write is pending that would put another container on one of its CPUs. The
// engine finds the CPUs unused, and the write would change that. verify therefore asks checkPendingWrites after the
// engine, and waits for the write to end:
//
//	start of X, exclusive on 2                    answer for S, shared
//	  ├─ engine: no group has CPU 2                 ├─ record the pending write {0-2}
//	  ├─ checkPendingWrites: S may get CPU 2        ├─ ask the engine for the set of S again
//	  └─ wait                                       └─ it is {0-1} by now: record and send that instead
//
// The right side closes the gap in the other direction: a set that was computed before X started and recorded after the
// check of X would be seen by neither. recordUntilStable records a set, asks the engine again, and repeats until the
// answer is the recorded one.

// writePath is a way on which a set reaches the runtime. A container has at most one pending write for each.
type writePath int

const (
	pushed   writePath = iota // an update that the Service sends by itself
	replied                   // the answer to an Update
	starting                  // the settings of a container whose group the runtime creates with its first process
	writePaths
)

// pendingWrite is a write that the runtime may make at any time until it reports the end, or the write expires. The
// zero value writes nothing.
type pendingWrite struct {
	// cpus is the set; with several writes on one path, their sets separated by commas.
	cpus string
	// expires is when the runtime has failed rather than to be still writing.
	expires time.Time
	// earlier is the number of writes on the same path that were sent before the last one and have not ended.
	earlier int
}

// isPending reports whether the runtime may still make the write.
func (w pendingWrite) isPending(now time.Time) bool { return w.cpus != "" && now.Before(w.expires) }

// cpuSets is what is known of the CPU set of one container.
type cpuSets struct {
	// stored is the set that the runtime has stored; "" if it is not known.
	stored string
	// answered is the set that Create returned.
	answered string
	// kernel is the set that the engine has written or found in pass; "" until the engine reports one.
	kernel string
	pass   uint64
	// pending are the writes to this container, by path.
	pending [writePaths]pendingWrite
	// shrunk are the sets of other containers, by id, that were sent with the answer to this container's Create. The
	// runtime has written them when it asks for the start, and drops them when it does not create the container. nil
	// once they are written or dropped.
	shrunk map[string]pendingWrite
}

// writeLimit is the longest time that a runtime may take to write a set that it received. It reports the end of a write
// unless that failed.
const writeLimit = 5 * time.Second

// startLimit is the longest time that a runtime may take to start a container: that for which kubelets wait by default.
const startLimit = 2 * time.Minute

// pushSize is the number of containers in one push: the runtime serves no other call while it writes them.
const pushSize = 1

// SetsChanged takes the sets that a pass of the engine left in groups, by group. Passes may be reported out of order. A
// runtime that has stored another set would write it again some day: with the systemd driver whenever systemd reloads,
// with both drivers when a container is resized while no agent answers.
func (s *Service) SetsChanged(pass uint64, sets map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if cpus, ok := sets[c.group]; ok && pass >= c.pass {
			c.kernel, c.pass = cpus, pass
		}
	}
	s.signalUpdates()
}

// signalUpdates puts a token into the channel of Updates if a container needs an update. The caller holds mu.
func (s *Service) signalUpdates() {
	for _, c := range s.containers {
		if !c.needsUpdate() {
			continue
		}
		select {
		case s.updates <- struct{}{}:
		default:
		}
		return
	}
}

// needsUpdate reports whether the set that the runtime has stored differs from the kernel's, and no push is pending.
func (c *container) needsUpdate() bool {
	return !c.ended && c.kernel != "" && c.kernel != c.stored && c.pending[pushed].cpus == ""
}

// Updates implements Handler.
func (s *Service) Updates() <-chan struct{} { return s.updates }

// NextUpdates implements Handler. It returns none while the agent writes nothing.
func (s *Service) NextUpdates() []Update {
	if !s.o.Agent.Writes() && !s.o.Agent.Leaves() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		if c := s.containers[id]; c.needsUpdate() && len(out) < pushSize {
			s.addPending(c, pushed, c.kernel)
			out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: c.kernel}})
		}
	}
	return out
}

// UpdatesDone implements Handler. An update that the runtime refused is not pushed again until the container's set
// changes.
func (s *Service) UpdatesDone(updates []Update) {
	for _, u := range updates {
		s.endPending(u.ContainerID, pushed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalUpdates()
}

// addPending records that a set is sent to the runtime. The caller holds mu.
func (s *Service) addPending(c *container, path writePath, cpus string) {
	now, before := s.o.Clock.Now(), c.pending[path]
	w := pendingWrite{cpus: cpus, expires: now.Add(writeLimit)}
	if before.isPending(now) {
		w.cpus, w.earlier = before.cpus+","+cpus, before.earlier+1
	}
	c.stored, c.pending[path] = cpus, w
}

// endPending records that the runtime has made the oldest pending write of a container on a path. If it received
// another set meanwhile, the order of the two writes is unknown and the set is sent again. If the kernel's set has
// changed since the write was sent, the engine looks at the tree again.
func (s *Service) endPending(id string, path writePath) {
	s.mu.Lock()
	c := s.containers[id]
	stale := false
	if c != nil {
		w := &c.pending[path]
		cpus := w.cpus
		if w.earlier--; w.earlier < 0 {
			*w = pendingWrite{}
		}
		if cpus != "" {
			stale = c.wroteStale(cpus)
		}
	}
	close(s.writeEnded)
	s.writeEnded = make(chan struct{})
	s.mu.Unlock()
	if stale {
		s.o.Engine.Recheck()
	}
}

// endShrinking records that the runtime has made the writes that came with the answer to the Create of a container.
func (s *Service) endShrinking(id string) {
	s.mu.Lock()
	stale := false
	if c := s.containers[id]; c != nil {
		for other, w := range c.shrunk {
			if x := s.containers[other]; x != nil && w.cpus != "" {
				stale = x.wroteStale(w.cpus) || stale
			}
		}
		c.shrunk = nil
	}
	s.mu.Unlock()
	if stale {
		s.o.Engine.Recheck()
	}
}

// wroteStale records that the runtime has written a set of the container, and reports whether the kernel is to have
// another one by now. The caller holds Service.mu.
func (c *container) wroteStale(cpus string) bool {
	if c.stored != cpus {
		c.stored = ""
	}
	return c.kernel != "" && c.kernel != cpus
}

// checkPendingWrites rejects the start of an exclusive container while the runtime may still write one of its CPUs into
// the group of another container.
func (s *Service) checkPendingWrites(c *Container) error {
	s.mu.Lock()
	cpus := c.Has.CPUs // where the group does not exist yet
	if own := s.containers[c.ID]; own != nil && own.kernel != "" {
		cpus = own.kernel
	}
	if cpus == "" {
		s.mu.Unlock()
		return nil
	}
	now, threats := s.o.Clock.Now(), map[string]string{} // container id to the pod's UID
	check := func(id string, x *container, w pendingWrite) {
		if x != nil && w.isPending(now) && x.uid != c.UID && overlap(cpus, w.cpus) {
			threats[id] = x.uid
		}
	}
	for id, x := range s.containers {
		for _, w := range x.pending {
			check(id, x, w)
		}
		for other, w := range x.shrunk {
			check(other, s.containers[other], w)
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

// shrinkOthers returns updates for containers that the kernel still has on CPUs that a container is to have for itself.
// As a rule there are none: the engine moves the pools when the pod is bound.
func (s *Service) shrinkOthers(c *Container, known *container, cpus string) []Update {
	if cpus == "" || !s.o.Engine.Binds(c.UID) {
		return nil
	}
	s.mu.Lock()
	overlapping, checked := map[string]container{}, map[string]bool{} // most containers have one of a few sets
	for id, x := range s.containers {
		set := cmp.Or(x.kernel, x.stored)
		overlaps, done := checked[set]
		if !done {
			overlaps = overlap(set, cpus)
			checked[set] = overlaps
		}
		if overlaps && x.uid != c.UID && !x.ended {
			overlapping[id] = *x
		}
	}
	s.mu.Unlock()
	var out []Update
	for _, id := range slices.Sorted(maps.Keys(overlapping)) {
		x := overlapping[id]
		if !s.o.Engine.Excludes(c.UID, x.uid) {
			continue
		}
		wanted := func() string {
			rows, err := s.o.Engine.Peek(apply.Container{PodUID: x.uid, Name: x.name, Group: x.group})
			if set := resources(rows).CPUs; err == nil && !overlap(set, cpus) {
				return set
			}
			return "" // the start waits until the container has left the CPUs
		}
		set := s.recordUntilStable(wanted, func(set string) {
			if live := s.containers[id]; live != nil && set != "" {
				live.stored = set
			}
			if known.shrunk == nil {
				known.shrunk = map[string]pendingWrite{}
			}
			known.shrunk[id] = pendingWrite{cpus: set, expires: s.o.Clock.Now().Add(writeLimit)}
		})
		if set != "" {
			out = append(out, Update{ContainerID: id, Resources: Resources{CPUs: set}})
		}
	}
	return out
}

// recordUntilStable records the set that is to be sent to the runtime, and again until the engine still wants it after
// it was recorded. It returns that set. A container that started in between has not seen the record; one that starts
// later does. record is called with mu held.
func (s *Service) recordUntilStable(wanted func() string, record func(cpus string)) string {
	for cpus := wanted(); ; {
		s.mu.Lock()
		record(cpus)
		s.mu.Unlock()
		again := wanted()
		if again == cpus {
			return cpus
		}
		cpus = again
	}
}

// overlap reports whether two lists have a CPU in common. A list that cannot be read overlaps everything.
func overlap(a, b string) bool {
	x, err1 := cpuset.ParseIDs(a)
	y, err2 := cpuset.ParseIDs(b)
	if err1 != nil || err2 != nil {
		return true
	}
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}
