package move

import (
	"cmp"
	"slices"
	"time"
)

// Room is the reservation of a job, beside those of other jobs whose pods have the same owner: the scheduler may place
// the new pod of any of them in any of these rooms. A job has one more for each pod in a reservation that it released.
type Room struct {
	// Job is the UID of the job.
	Job string
	// Source is the node that the pod of the job leaves.
	Source string
	// Evicted is when that pod was evicted; the zero time where it was not, or where the eviction has no effect yet.
	Evicted time.Time
	// Successor is the new pod, once the job knows it; one without a UID where the job ended without a new pod.
	Successor *User
	// User is the pod that uses the room; nil for none.
	User *User
}

// User is a pod that uses a room.
type User struct {
	Pod
	Created time.Time
}

// Neighbor is a job whose pod has the same owner as that of another one, as the API server has it. The new pod of each
// may be placed in the room of the other. A job is its own neighbor as well.
type Neighbor struct {
	*Job
	// Old has the name of the job's pod; nil where there is none.
	Old *Pod
	// Known is the pod that the job's status names as the new one; nil where there is none.
	Known *User
	// HasRoom: the job has a reservation. User is the pod that uses it; nil for none. Announced: a pod is named that is
	// not bound yet.
	HasRoom, Announced bool
	User               *User
}

// room returns the room of the job, and whether it counts.
func (n *Neighbor) room() (r Room, counts bool) {
	r = Room{Job: n.UID, Source: n.Source, User: n.User, Successor: n.Known}
	if r.Successor == nil && (n.Status.Pod.UID != "" || n.Status.Phase.IsFinal()) {
		r.Successor = &User{Pod: Pod{Reference: n.Status.Pod}}
	}
	switch {
	case !n.HasRoom && r.Successor == nil:
		return Room{}, false
	case !n.HasRoom, n.isLeft(n.Old): // with its successor, a job in the room of another one has released its own
		r.Evicted = n.Status.EvictedAt()
	}
	return r, true
}

// isLeft reports whether the pod of a job is gone or is being deleted, where p has its name.
func (j *Job) isLeft(p *Pod) bool { return j.isGone(p) || p.Terminating || p.Asked }

func (j *Job) isGone(p *Pod) bool { return p == nil || j.PodUID != "" && p.UID != j.PodUID }

// waitsForRoom: the pod of the job was evicted, and no pod is in its room. holdsEarly: another pod is in its room
// before its own was evicted.
func (w *World) waitsForRoom(j *Job) bool {
	return j.isLeft(w.Pod) && w.Successor == nil && !j.Status.EvictedAt().IsZero() && !w.Place.Used
}

func (w *World) holdsEarly(j *Job) bool { return !j.isLeft(w.Pod) && w.Place.Used && j.Source != "" }

// NeedsNeighbors reports whether a step depends on the rooms of other jobs. The job has a reservation of its own.
func (w *World) NeedsNeighbors(j *Job) bool { return w.waitsForRoom(j) || w.holdsEarly(j) }

// Exchange sets what the scheduler has made of the rooms of a job and of its neighbors: the Successor of a job that
// waits for one, and whether the pod in its room is Claimed. released are the rooms of reservations that were released.
func (w *World) Exchange(j *Job, neighbors []Neighbor, released []Room) {
	rooms := slices.Clone(released)
	for i := range neighbors {
		n := &neighbors[i]
		w.Claimed = w.Claimed || n.Announced && n.UID == j.UID
		if r, counts := n.room(); counts {
			rooms = append(rooms, r)
		}
	}
	found := Exchanged(rooms)
	if w.waitsForRoom(j) {
		w.Successor = found[j.UID]
		return
	}
	for _, pod := range found {
		w.Claimed = w.Claimed || slices.Contains(w.Place.Owners, pod.UID)
	}
}

// Exchanged returns which pods in rooms of others count as the successors of jobs, by job: for a job whose pod was
// evicted and whose own room is empty, a pod that the evictions have caused, that no other job needs, and that is not
// on the node which the job's pod left. As many jobs as possible get a pod, those before others whose pods were evicted
// first. The room of such a job is not needed any more then.
func Exchanged(rooms []Room) map[string]*Pod {
	rooms = slices.SortedFunc(slices.Values(rooms), func(a, b Room) int {
		return cmp.Or(a.Evicted.Compare(b.Evicted), cmp.Compare(a.Job, b.Job))
	})
	needed, first := map[string]bool{}, time.Time{}
	waits := func(r Room) bool { return !r.Evicted.IsZero() && r.Successor == nil && r.User == nil }
	for _, r := range rooms {
		if first.IsZero() && waits(r) {
			first = r.Evicted
		}
		if r.Successor != nil {
			needed[r.Successor.UID] = true
		} else if r.User != nil && !r.Evicted.IsZero() {
			needed[r.User.UID] = true
		}
	}
	// A job that has the pod which the eviction of another one has caused leaves the pod which its own eviction has
	// caused.
	for _, r := range slices.Backward(rooms) {
		has := cmp.Or(r.Successor, r.User)
		if has != nil && !r.Evicted.IsZero() && r.Evicted.Before(first) && !has.Created.Before(first) {
			first = r.Evicted
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
		if waits(r) {
			assign(r, map[string]bool{})
		}
	}
	return found
}
