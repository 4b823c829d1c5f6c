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
	name string
	// want is the set of a bound container; empty for one of a pool. withBE lets containers of the BE pool onto it.
	want       cpuset.Set
	withBE     bool
	bestEffort bool
}

func (c *container) bound() bool { return !c.want.IsEmpty() }

// place is where a container's processes may run at one moment; it has at least one that has started.
type place struct {
	*container
	cpus cpuset.Set
}

// exposures keeps for how long containers were outside their sets. It is safe for concurrent use.
type exposures struct {
	mu      sync.Mutex // guards the fields below
	since   map[string]time.Time
	seen    map[string]bool
	longest time.Duration
	worst   string
	// began are bound containers that were outside their set from the first moment on.
	began []string
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
			if other.name == p.name || other.bestEffort && p.withBE {
				continue
			}
			if other.cpus.Overlaps(&p.want) {
				wrong[other.name] = fmt.Sprintf("%s runs on %v, of which %s has %v", other.name, other.cpus, p.name, p.want)
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
	here := map[string]bool{}
	for _, p := range places {
		here[p.name] = true
		if _, bad := wrong[p.name]; bad && p.bound() && !e.seen[p.name] {
			e.began = append(e.began, wrong[p.name])
		}
		e.seen[p.name] = true
	}
	for name, text := range wrong {
		if _, known := e.since[name]; !known {
			e.since[name] = now
		}
		if d := now.Sub(e.since[name]); d >= e.longest {
			e.longest, e.worst = d, text
		}
	}
	for name, since := range e.since {
		if _, still := wrong[name]; still {
			continue
		}
		if d := now.Sub(since); d > e.longest { // it ended at some moment since the last look
			e.longest, e.worst = d, name
		}
		delete(e.since, name)
	}
}

// open reports whether a container is outside its set now.
func (e *exposures) open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.since) > 0
}

// result returns the longest exposure with what it was, and the bound containers that began unenforced.
func (e *exposures) result() (longest time.Duration, worst string, began []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.longest, e.worst, e.began
}
