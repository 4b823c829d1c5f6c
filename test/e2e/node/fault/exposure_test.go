//go:build e2e_node

package fault

import (
	"fmt"
	"sync"
	"time"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// container is what a watch knows of a container.
type container struct {
	name, pod string
	// want is the set of a bound container; empty for one of a pool. withBE lets containers of the BE pool onto it.
	want       cpuset.Set
	withBE     bool
	bestEffort bool
	// follows: a runtime lets no plugin decide about it before it starts, as with the container of a sandbox.
	follows bool
}

func (c *container) bound() bool { return !c.want.IsEmpty() }

// place is where a container's processes may run at one moment; it has at least one that has started.
type place struct {
	*container
	cpus cpuset.Set
}

// exposures keeps for how long containers were outside their sets. It is safe for concurrent use.
type exposures struct {
	mu    sync.Mutex // guards the fields below
	since map[string]time.Time
	seen  map[string]bool
	// lost is about bound containers on other CPUs than theirs, crowded about others on the CPUs of bound ones.
	lost, crowded exposure
	// began are bound containers that were outside their set from the first moment on.
	began []string
	looks int
}

// exposure is the longest of a kind, with what it was.
type exposure struct {
	longest time.Duration
	worst   string
}

func (x *exposure) take(d time.Duration, text string) {
	if d >= x.longest {
		x.longest, x.worst = d, text
	}
}

func newExposures() *exposures {
	return &exposures{since: map[string]time.Time{}, seen: map[string]bool{}}
}

// outside says, by name, what is wrong with each container that is outside its set.
func outside(places []place) map[string]string {
	wrong := map[string]string{}
	for _, p := range places {
		if !p.bound() {
			continue
		}
		if p.cpus != p.want {
			wrong[p.name] = fmt.Sprintf("%s runs on %v, want %v", p.name, p.cpus, p.want)
		}
		for _, other := range places {
			if other.pod == p.pod || other.bestEffort && p.withBE || !other.cpus.Overlaps(&p.want) {
				continue
			}
			if wrong[other.name] == "" {
				wrong[other.name] = fmt.Sprintf("%s runs on %v, of which %s has %v", other.name, other.cpus, p.name,
					p.want)
			}
		}
	}
	return wrong
}

// look takes what was seen at one moment.
func (e *exposures) look(now time.Time, places []place) {
	wrong := outside(places)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looks++
	for _, p := range places {
		if _, bad := wrong[p.name]; bad && p.bound() && !p.follows && !e.seen[p.name] {
			e.began = append(e.began, wrong[p.name])
		}
		e.seen[p.name] = true
		e.note(now, p.container, wrong[p.name])
	}
	here := map[string]bool{}
	for _, p := range places {
		here[p.name] = true
	}
	for name := range e.since {
		if !here[name] { // it has ended
			delete(e.since, name)
		}
	}
}

// note takes what is wrong with one container; "" when nothing is.
func (e *exposures) note(now time.Time, c *container, text string) {
	kind := &e.crowded
	if c.bound() && !c.follows {
		kind = &e.lost
	}
	since, was := e.since[c.name]
	switch {
	case text == "" && was: // it ended at some moment since the last look
		kind.take(now.Sub(since), c.name)
		delete(e.since, c.name)
	case text != "" && !was:
		e.since[c.name] = now
		kind.take(0, text)
	case text != "":
		kind.take(now.Sub(since), text)
	}
}

// open reports whether a container is outside its set now.
func (e *exposures) open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.since) > 0
}

// result returns the longest exposures, and the bound containers that began unenforced.
func (e *exposures) result() (lost, crowded exposure, began []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost, e.crowded, e.began
}
