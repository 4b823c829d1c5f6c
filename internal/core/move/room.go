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
// evicted and whose own room is empty, the first pod that came after the first eviction of all and that no other job
// needs. Its own room is not needed any more then. Jobs choose in the order of their evictions.
func Exchanged(rooms []Room) map[string]*Pod {
	rooms = slices.SortedFunc(slices.Values(rooms), func(a, b Room) int {
		return cmp.Or(a.Evicted.Compare(b.Evicted), cmp.Compare(a.Job, b.Job))
	})
	needed, found, first := map[string]bool{}, map[string]*Pod{}, time.Time{}
	for _, r := range rooms {
		if needed[r.Successor] = true; first.IsZero() {
			first = r.Evicted
		}
		if r.User != nil && !r.Evicted.IsZero() && r.Successor == "" {
			needed[r.User.UID] = true
		}
	}
	for _, waiting := range rooms {
		if waiting.Evicted.IsZero() || waiting.Successor != "" || waiting.User != nil {
			continue
		}
		for _, r := range rooms {
			u := r.User
			if u != nil && !needed[u.UID] && u.Node != waiting.Source && !u.Created.Before(first) {
				needed[u.UID], found[waiting.Job] = true, &u.Pod
				break
			}
		}
	}
	return found
}
