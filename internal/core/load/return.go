package load

import "time"

// How long the pods of a workload avoid a node that has evicted one of them: as long as firstAvoidance after the first
// eviction, twice as long after each further one, and never longer than longestAvoidance. Evictions that are
// forgetting old no longer count.
const (
	firstAvoidance   = 5 * time.Minute
	longestAvoidance = 40 * time.Minute
	forgetting       = time.Hour
)

// Returns remembers which nodes have evicted pods of which workload because these used too much, so that the pods that
// take their place do not return at once. The zero value remembers nothing.
type Returns struct{ workloads map[string]*evictions }

// evictions are those of one workload.
type evictions struct {
	last   time.Time     // when the last pod was evicted
	length time.Duration // for how long its node is avoided
	nodes  map[string]avoided
}

// avoided is a node with its last eviction of a pod of the workload.
type avoided struct{ evicted, until time.Time }

// Evicted records an eviction. It may be called more than once for the same one.
func (r *Returns) Evicted(workload, node string, at time.Time) {
	if r.workloads == nil {
		r.workloads = map[string]*evictions{}
	}
	for name, e := range r.workloads {
		if at.Sub(e.last) >= forgetting {
			delete(r.workloads, name)
		}
	}
	e := r.workloads[workload]
	switch {
	case e == nil:
		e = &evictions{last: at, length: firstAvoidance, nodes: map[string]avoided{}}
		r.workloads[workload] = e
	case !at.After(e.nodes[node].evicted):
		return
	case at.After(e.last):
		e.last, e.length = at, min(2*e.length, longestAvoidance)
	}
	e.nodes[node] = avoided{at, at.Add(e.length)}
}

// Avoids reports whether the pods of a workload avoid a node now.
func (r *Returns) Avoids(workload, node string, now time.Time) bool {
	e := r.workloads[workload]
	return e != nil && now.Before(e.nodes[node].until)
}

// Knows reports whether a pod of a workload was evicted lately.
func (r *Returns) Knows(workload string) bool { return r.workloads[workload] != nil }
