package move

import (
	"slices"
	"time"
)

// Phase is how far a job is. The zero value is Pending.
type Phase string

// Phases.
const (
	Pending   Phase = "Pending"
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
	Aborted   Phase = "Aborted"
)

// IsFinal reports whether the job has ended.
func (p Phase) IsFinal() bool { return p == Succeeded || p == Failed || p == Aborted }

// Types of conditions, in the order in which a job gets them.
const (
	Paused               = "Paused"
	ReservationCreated   = "ReservationCreated"
	ReservationScheduled = "ReservationScheduled"
	Eviction             = "Eviction"
	PodScheduled         = "PodScheduled"
	PodBoundReservation  = "PodBoundReservation"
	BoundPodReady        = "BoundPodReady"
	Ended                = "Ended"
)

// Reasons of conditions and of a job that failed.
const (
	MissingPod                = "MissingPod"
	ForbiddenMigratePod       = "ForbiddenMigratePod"
	FailedCreateReservation   = "FailedCreateReservation"
	MissingReservation        = "MissingReservation"
	Unschedulable             = "Unschedulable"
	ReservationExpired        = "ReservationExpired"
	Evicting                  = "Evicting"
	FailedEvict               = "FailedEvict"
	EvictComplete             = "EvictComplete"
	WaitForPodBindReservation = "WaitForPodBindReservation"
	WaitForBoundPodReady      = "WaitForBoundPodReady"
	Timeout                   = "Timeout"
)

// Complete is the stage of a job that has succeeded.
const Complete = "Complete"

// Job is one job as its object says: what its steps depend on, and what the limits of core/evict count.
type Job struct {
	UID, Name string
	// Namespace, PodName and PodUID name the pod that is to move. Invariant: PodUID is not empty where Passed.
	Namespace, PodName, PodUID string
	// Workload and Gang are those of the pod when the job started. They are empty where the pod has none, and for a pod
	// that had failed: its eviction takes nothing from them, so the job does not count against their limits.
	Workload, Gang string
	// Source is the node of the pod when the job started; "" for a pod without node.
	Source  string
	Created time.Time
	// Started is when arbitration let the job start; the zero time before.
	Started time.Time
	// Paused takes no step. The time that a job is paused does not count for its TTL.
	Paused bool
	// Stop ends the job as Aborted: a user deletes it or has asked for it.
	Stop bool
	// Deleting is true where the object waits for its finalizer only.
	Deleting bool
	// Passed is set once with PodUID and Source, when arbitration lets the job start.
	Passed bool
	// Direct evicts without a reservation. Named uses a reservation that a user has named and created. TTL is how long
	// after its start the job fails; 0: never. They depend on the arguments of the descheduler: no limit reads them.
	Direct, Named bool
	TTL           time.Duration
	Status        Status
}

// IsWaiting reports whether the job waits for arbitration.
func (j *Job) IsWaiting() bool { return j.Started.IsZero() && !j.Status.Phase.IsFinal() }

// IsRunning reports whether the job has started and has not ended.
func (j *Job) IsRunning() bool { return !j.Started.IsZero() && !j.Status.Phase.IsFinal() }

// LastEviction returns the latest time at which the job may have evicted its pod; the zero time where it has not. Times
// of objects are whole seconds: the eviction was before the next one.
func (j *Job) LastEviction() time.Time {
	at := j.Status.EvictedAt()
	if at.IsZero() {
		return at
	}
	return at.Add(time.Second - 1)
}

// EndedAt returns when the job ended; the zero time before. A job without conditions ended when it was created.
func (j *Job) EndedAt() (at time.Time) {
	if !j.Status.Phase.IsFinal() {
		return at
	}
	for _, c := range j.Status.Conditions {
		if c.Changed.After(at) {
			at = c.Changed
		}
	}
	if at.IsZero() {
		return j.Created
	}
	return at
}

// Status is what a job has reached.
type Status struct {
	Phase Phase
	// Stage is the type of the condition that changed last before the end, Complete for a job that succeeded.
	Stage string
	// Reason is why the job failed or, while it waits, the code of what refuses. Message is the sentence for people.
	Reason, Message string
	// Node is the node with the kept place.
	Node string
	// Pod is the new pod; the zero value until it is known.
	Pod        Reference
	Conditions []Condition
}

// Reference names a pod.
type Reference struct{ Namespace, Name, UID string }

// Condition is one thing that has been reached, or is waited for.
type Condition struct {
	Type, Reason, Message string
	True                  bool
	// Changed is when True last changed.
	Changed time.Time
	// Probed is the time of the last attempt for Eviction. For Paused it is when the pause would have begun if all
	// pauses were one that ends with the last.
	Probed time.Time
}

// Find returns the condition of a type; the zero value where there is none.
func (s *Status) Find(kind string) Condition {
	if i := s.index(kind); i >= 0 {
		return s.Conditions[i]
	}
	return Condition{}
}

// index returns the position of a condition; -1 if there is none.
func (s *Status) index(kind string) int {
	return slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type == kind })
}

// set sets a condition. One that says the same keeps its times.
func (s *Status) set(now time.Time, c Condition) {
	i := s.index(c.Type)
	if i < 0 {
		i, s.Conditions = len(s.Conditions), append(s.Conditions, Condition{Type: c.Type, True: !c.True})
	}
	was := &s.Conditions[i]
	if c.Changed = was.Changed; was.True != c.True {
		c.Changed = now
	}
	if c.Probed.IsZero() {
		if c.Probed = was.Probed; c.Probed.IsZero() || c.Changed.Equal(now) {
			c.Probed = now
		}
	}
	if *was != c {
		if *was = c; c.Type != Ended {
			s.Stage = c.Type
		}
	}
}

// isEvicted reports whether the pod was evicted, as far as the object says: an eviction without a known end counts.
func (s *Status) isEvicted() bool {
	c := s.Find(Eviction)
	return c.Reason == Evicting || c.Reason == EvictComplete
}

// EvictedAt returns when the pod was evicted; the zero time where it was not.
func (s *Status) EvictedAt() time.Time {
	if s.isEvicted() {
		return s.Find(Eviction).Probed
	}
	return time.Time{}
}

// PausedFor returns how long a job has been paused in all.
func (s *Status) PausedFor(now time.Time) time.Duration { return s.pausedSince(time.Time{}, now) }

// pausedSince returns how long a job has been paused since a time. Earlier pauses count if the last one is later.
func (s *Status) pausedSince(since, now time.Time) time.Duration {
	c := s.Find(Paused)
	end := c.Changed
	switch {
	case c.Type == "":
		return 0
	case c.True:
		end = now
	}
	return max(min(end.Sub(c.Probed), end.Sub(since)), 0)
}

// pause begins a pause. Probed is set so that the pauses before this one count too.
func (s *Status) pause(now time.Time) {
	if !s.Find(Paused).True {
		s.set(now, Condition{
			Type: Paused, True: true, Message: "the job takes no step", Probed: now.Add(-s.PausedFor(now)),
		})
	}
}

// resume ends a pause, if there is one.
func (s *Status) resume(now time.Time) {
	if c := s.Find(Paused); c.True {
		s.set(now, Condition{Type: Paused, Probed: c.Probed})
	}
}

// end ends a job.
func (s *Status) end(now time.Time, phase Phase, reason, message string) {
	s.Phase, s.Reason, s.Message = phase, reason, message
	s.set(now, Condition{Type: Ended, True: true, Reason: string(phase)})
	if phase == Succeeded {
		s.Stage = Complete
	}
}
