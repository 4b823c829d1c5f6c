package reservation

import (
	"slices"
	"time"
)

// Phase is how far a reservation is. Succeeded and Failed are final.
type Phase string

// Phases, as Koordinator writes them.
const (
	Pending   Phase = "Pending"   // it has no node
	Waiting   Phase = "Waiting"   // it waits until the pods end on whose room it was placed
	Available Phase = "Available" // it keeps room on its node
	Succeeded Phase = "Succeeded" // the one pod that it was for uses it
	Failed    Phase = "Failed"    // it has expired, or its node was deleted
)

// IsFinal reports whether the phase never changes again.
func (p Phase) IsFinal() bool { return p == Succeeded || p == Failed }

// State is a reservation as its object says.
type State struct {
	Phase Phase
	Node  string // "" before it has one
	// Once: one pod may use it. Running: it is a pod that keeps its room for another one, and has no status.
	Once, Running bool
	// Expires is when it expires; the zero time is never.
	Expires time.Time
	// Ended is when its phase became final; the zero time before.
	Ended time.Time
	// Owners are the pods that the object names: the users, the pod that is announced or, while it is Waiting, the pods
	// on whose room it was placed.
	Owners []Reference
}

// World is what a step depends on besides the object.
type World struct {
	Now time.Time
	// NodeGone: the node was deleted.
	NodeGone     bool
	Announcement Announcement
	// Users are the pods on nodes that say that they use the reservation, sorted.
	Users []Reference
	// Named are the Owners as the API server has them now, those that exist. It is read only where NeedsNamed says so,
	// and need not have those that are Users.
	Named []Named
	// LateUntil is until when the API server may still carry out a request of the process that led before.
	LateUntil time.Time
	// KeepEnded is how long a reservation that has ended is kept; 0 for ever.
	KeepEnded time.Duration
}

// Named is a pod that the object of a reservation names.
type Named struct {
	Reference
	HasNode, Ended bool
}

// Status is what the object is to say.
type Status struct {
	Phase  Phase
	Cause  string // of Failed
	Owners []Reference
}

// Actions are what is to be done, in this order.
type Actions struct {
	// Adopt are pods that run on the room of the reservation: each is to name the reservation that gets its room.
	Adopt []Reference
	// End: the account is to let no pod use the reservation any more, before its object says so.
	End bool
	// Write: the object is to have the Status. Withdraw: the object of one that is Running is to name no pod. Delete:
	// the object is to be deleted.
	Write, Withdraw, Delete bool
	// Again is when the step is to be repeated even if nothing changes; the zero time is never.
	Again time.Time
}

// eventTime is how long the event of a change that the API server has may take.
const eventTime = time.Second

// NeedsNamed reports whether a step reads World.Named.
func (s *State) NeedsNamed(w *World) bool {
	return s.Phase == Waiting || s.mayWithdraw(w) && !w.Now.Before(w.LateUntil)
}

// mayWithdraw reports whether the pod that is announced may turn out not to use the reservation.
func (s *State) mayWithdraw(w *World) bool {
	return w.Announcement == Void && (s.Running || s.isUnused(w))
}

// isUnused reports whether a reservation for one pod, which names that pod and not those that it waits for, has no
// user.
func (s *State) isUnused(w *World) bool {
	return !s.Phase.IsFinal() && s.Phase != Waiting && s.Once && len(w.Users) == 0
}

// Step returns what the object of a reservation is to say, and what is to be done. A step that is repeated, because the
// process ended or a write failed, does the same.
func Step(s *State, w *World) (status Status, do Actions) {
	switch {
	case s.Running && !s.mayWithdraw(w):
		return status, do
	case s.Running:
		do.Again = s.withdrawFrom(w)
		do.Withdraw = do.Again.IsZero()
		return status, do
	case s.Phase.IsFinal() && w.KeepEnded <= 0:
		return status, do
	case s.Phase.IsFinal():
		do.Again = s.Ended.Add(w.KeepEnded)
		if do.Delete = !w.Now.Before(do.Again); do.Delete {
			do.Again = time.Time{}
		}
		return status, do
	}
	occupants, adopt := s.occupants(w)
	status = Status{Owners: w.Users}
	status.Phase, status.Cause = s.next(w, len(occupants) > 0)
	do = Actions{Adopt: adopt, Write: true, Again: s.Expires}
	do.End = status.Phase.IsFinal() && w.Announcement != Spent
	switch {
	case status.Phase == Waiting:
		status.Owners = occupants
	case !s.isUnused(w):
	case w.Announcement == Void:
		if from := s.withdrawFrom(w); !from.IsZero() {
			status.Owners = s.Owners
			if do.Again.IsZero() || from.Before(do.Again) {
				do.Again = from
			}
		}
	default:
		status.Owners = s.Owners
	}
	return status, do
}

// next returns the phase, and for Failed the cause. The reservation was placed on the room of running pods if it is
// occupied: these do not use it.
func (s *State) next(w *World, occupied bool) (next Phase, cause string) {
	used := s.Phase != Waiting && (len(w.Users) > 0 || w.Announcement == Spent)
	switch {
	case s.Node != "" && s.Once && used:
		return Succeeded, ""
	case !s.Expires.IsZero() && !w.Now.Before(s.Expires):
		return Failed, "expired at " + s.Expires.UTC().Format(time.RFC3339)
	case s.Node != "" && w.NodeGone:
		return Failed, "node " + s.Node + " was deleted"
	case s.Node != "" && occupied:
		return Waiting, ""
	case s.Node != "":
		return Available, ""
	}
	return Pending, ""
}

// occupants returns the pods that a Waiting reservation names and that still run, and those of them that do not name
// the reservation yet.
func (s *State) occupants(w *World) (running, adopt []Reference) {
	if s.Phase != Waiting {
		return nil, nil
	}
	for _, o := range s.Owners {
		user := slices.ContainsFunc(w.Users, func(r Reference) bool { return r.UID == o.UID })
		if named := w.named(o); !user && (named == nil || named.Ended) {
			continue
		}
		if running = append(running, o); !user {
			adopt = append(adopt, o)
		}
	}
	return running, adopt
}

// named returns a pod as the API server has it; nil for one that is gone.
func (w *World) named(o Reference) *Named {
	i := slices.IndexFunc(w.Named, func(n Named) bool { return n.UID == o.UID })
	if i < 0 {
		return nil
	}
	return &w.Named[i]
}

// withdrawFrom returns from when a void announcement may be withdrawn; the zero time for now. The process that led
// before may have sent the Binding of the pod just before it ended, and the caches may not know of it yet: so the
// announcement remains until LateUntil, and while the API server says that the pod has a node or is gone.
func (s *State) withdrawFrom(w *World) time.Time {
	if w.Now.Before(w.LateUntil) {
		return w.LateUntil
	}
	for _, o := range s.Owners {
		if named := w.named(o); named == nil || named.HasNode {
			return w.Now.Add(eventTime)
		}
	}
	return time.Time{}
}
