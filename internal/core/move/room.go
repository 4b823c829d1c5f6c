package move

import (
	"cmp"
	"slices"
	"time"
)

// Room is the reservation of a job, beside those of other jobs whose pods have the same owner: the scheduler may place
// the new pod of any of them in any of these rooms.
type Room struct {
	// Job is the UID of the job.
	Job string
	// Source is the node that the pod of the job leaves.
	Source string
	// Evicted is when that pod was evicted; the zero time where it was not, or where the eviction has no effect yet.
	Evicted time.Time
	// Successor is the UID of the new pod, once the job knows it.
	Successor string
	// User is the pod that uses the room; nil for none.
	User *User
}

// User is a pod that uses a room.
type User struct {
	Pod
	Created time.Time
}

// Exchanged returns which pods in rooms of others count as the successors of jobs, by job: for a job whose pod was
// evicted and whose own room is empty, a pod that came after the first eviction of all, that no other job needs, and
// that is not on the node which the job's pod left. As many jobs as possible get a pod, those before others whose pods
// were evicted first. The room of such a job is not needed any more then.
func Exchanged(rooms []Room) map[string]*Pod {
	rooms = slices.SortedFunc(slices.Values(rooms), func(a, b Room) int {
		return cmp.Or(a.Evicted.Compare(b.Evicted), cmp.Compare(a.Job, b.Job))
	})
	needed, first := map[string]bool{}, time.Time{}
	for _, r := range rooms {
		if needed[r.Successor] = true; first.IsZero() {
			first = r.Evicted
		}
		if r.User != nil && !r.Evicted.IsZero() && r.Successor == "" {
			needed[r.User.UID] = true
		}
	}
	found, jobs := map[string]*Pod{}, map[string]Room{} // by job, and by the UID of the pod that it has
	var assign func(waiting Room, tried map[string]bool) bool
	assign = func(waiting Room, tried map[string]bool) bool {
		for _, r := range rooms {
			u := r.User
			if u == nil || needed[u.UID] || tried[u.UID] || u.Node == waiting.Source || u.Created.Before(first) {
				continue
			}
			tried[u.UID] = true
			if other, taken := jobs[u.UID]; !taken || assign(other, tried) {
				found[waiting.Job], jobs[u.UID] = &u.Pod, waiting
				return true
			}
		}
		return false
	}
	for _, r := range rooms {
		if !r.Evicted.IsZero() && r.Successor == "" && r.User == nil {
			assign(r, map[string]bool{})
		}
	}
	return found
}
