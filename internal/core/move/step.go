package move

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// retryPause is the shortest time between two attempts to evict a pod.
	retryPause = 5 * time.Second
	// answerTime is how long an eviction without an answer may still take effect.
	answerTime = time.Minute
	// startLimit is how long a job waits for its start: limits over time hold jobs for hours at most.
	startLimit = 24 * time.Hour
	// keepTime and keepWithoutTTL are how long a job is kept beyond its TTL, and from its creation where it has none or
	// has never started.
	keepTime, keepWithoutTTL = 5 * time.Minute, 30 * time.Minute
)

// Action is what follows the write of a status.
type Action string

// Actions. Each has the same effect when it is repeated.
const (
	Wait     Action = ""
	Reserve  Action = "Reserve"  // create the reservation, or adopt one that an earlier process created
	Evict    Action = "Evict"    // the pod with the UID of the job
	Withdraw Action = "Withdraw" // delete the request for the eviction
	Release  Action = "Release"  // delete the reservation
	Finish   Action = "Finish"   // remove the finalizer
	Remove   Action = "Remove"   // delete the job
)

// World is what the API server has beside a job.
type World struct {
	Now time.Time
	// Pod has the name of the job's pod; nil where there is none. Its UID may be another one.
	Pod *Pod
	// Place is the job's reservation; nil where there is none.
	Place *Place
	// Successor is the pod that uses the reservation, or that counts as the one that does, see Exchanged; nil for none.
	Successor *Pod
	// Claimed: the pod that uses the reservation may still have to count for another job, see Exchanged.
	Claimed bool
	// Refused is why the pod may not be evicted now; nil where it may. It is read only before an eviction and while the
	// job waits for arbitration.
	Refused *Refusal
	// Unready counts the other pods of the gang that have to move together with this pod and are not ready to.
	Unready int
	// Requested: an object requests the eviction from other programs, and can be withdrawn. While it may be answered,
	// the pod is Asked; where all have given up, that is a final Failure.
	Requested bool
	// Failure is what the last action of this process returned; nil for success, and where there was none.
	Failure *Failure
	// Memory is how long after its end the limits need the job.
	Memory time.Duration
}

// Pod is a pod of the API server.
type Pod struct {
	Reference
	Node string
	// Terminating is being deleted. Asked has the mark that asks another program to delete it. Ready counts for the
	// successor: a pod that has succeeded is Ready too.
	Terminating, Asked, Ready bool
}

// Place is the reservation of a job.
type Place struct {
	Name, Node string
	// Owners are the UIDs of the pods that the reservation names as its owners.
	Owners []string
	// Foreign was not created for the job: it is not deleted with it.
	Foreign bool
	// Available holds room. Used has been taken by the pod that it was for. Expired will never be used.
	Available, Used, Expired bool
	// Stale excludes other nodes than the job must avoid now. Barred is on a node that the job must avoid now.
	Stale, Barred bool
	// Refused is why the scheduler has found no node; "" where it has not tried, and where it has found one.
	Refused string
}

// Refusal is why a pod may not be evicted.
type Refusal struct {
	Code, Text string
	Final      bool // for good
}

// Failure is the error of an action. Final errors come again with every attempt.
type Failure struct {
	Action Action
	Text   string
	// Final comes again with every attempt. Unknown is an eviction that may have taken effect.
	Final, Unknown bool
}

// turn is one step.
type turn struct {
	*Job
	*World
	s    Status
	late bool // The time of the job is over. Nothing new is begun.
}

// Step returns the status that is to be written and what is to be done then.
func Step(j *Job, w *World) (Status, Action) {
	t := &turn{Job: j, World: w, s: j.Status}
	t.s.Conditions = slices.Clone(t.s.Conditions)
	do := t.take()
	return t.s, do
}

// isLate reports whether the job's time is over. A job without deadline is never late.
func (t *turn) isLate() bool {
	end := t.Deadline(t.Now)
	return !end.IsZero() && !t.Now.Before(end)
}

// Deadline is when a job fails; the zero time is never. The TTL runs from the start: while other jobs have their turn,
// a job loses nothing of its time.
func (j *Job) Deadline(now time.Time) time.Time {
	if j.TTL <= 0 {
		return time.Time{}
	}
	if j.Started.IsZero() {
		return j.Created.Add(max(j.TTL, startLimit) + j.Status.PausedFor(now))
	}
	return j.Started.Add(j.TTL + j.Status.pausedSince(j.Started, now))
}

// take decides the job's next action, and changes its status accordingly.
func (t *turn) take() Action {
	switch {
	case t.s.Phase.IsFinal():
		return t.clean()
	case t.Stop:
		return t.fail(Aborted, "", "a user stopped the job")
	case t.Paused:
		t.s.pause(t.Now)
		return Wait
	}
	t.s.resume(t.Now)
	t.s.Phase = cmp.Or(t.s.Phase, Pending)
	if !t.Passed {
		return t.queue()
	}
	if t.s.Phase == Pending {
		t.s.Phase, t.s.Reason, t.s.Message = Running, "", ""
	}
	t.late = t.isLate()
	if do := t.run(); !t.late || t.s.Phase.IsFinal() {
		return do
	}
	return t.expire()
}

// queue waits for arbitration.
func (t *turn) queue() Action {
	switch {
	case t.gone() || t.Pod.Terminating:
		return t.fail(Failed, MissingPod, "the pod does not exist, or is being deleted")
	case t.Refused != nil && t.Refused.Final:
		return t.forbid(*t.Refused)
	case t.isLate():
		return t.fail(Failed, Timeout, fmt.Sprintf("the job did not start within %v: %s", max(t.TTL, startLimit),
			cmp.Or(t.s.Message, "it waits for arbitration")))
	}
	t.wait(t.Refused)
	return Wait
}

// wait writes what a job waits for. While the code is the same, numbers that change are not written.
func (t *turn) wait(r *Refusal) {
	if r == nil {
		r = &Refusal{}
	}
	if r.Code != "" && r.Code == t.s.Reason {
		return
	}
	t.s.Reason, t.s.Message = r.Code, r.Text
}

// gone reports whether the pod of the job does not exist any more.
func (t *turn) gone() bool { return t.isGone(t.Pod) }

// untouched reports whether the pod is as it was before the job.
func (t *turn) untouched() bool { return !t.isLeft(t.Pod) }

// run decides the next action of a job that was admitted.
func (t *turn) run() Action {
	done := t.s.Find(Eviction)
	switch {
	case t.Direct && t.Source == "":
		return t.fail(Failed, ForbiddenMigratePod, "the pod is on no node: it cannot be evicted without a reservation")
	case t.Source == "" && !t.gone() && t.Pod.Node != "": // a pending pod is on a node now
		t.s.Node, t.s.Pod = t.Pod.Node, t.Pod.Reference
		t.s.set(t.Now, Condition{Type: PodScheduled, True: true})
		t.s.end(t.Now, Succeeded, "", "")
		return Wait
	case done.True:
		return t.follow()
	case done.Reason == Evicting && !t.untouched():
		return t.leave()
	}
	if !t.Direct {
		if do, ready := t.place(); !ready {
			return do
		}
	}
	switch {
	case t.s.Phase.IsFinal():
		return Wait
	case t.Source == "": // the scheduler binds the pod
		t.s.set(t.Now, Condition{
			Type: PodBoundReservation, Reason: WaitForPodBindReservation, Message: "the pod is on no node yet",
		})
		return Wait
	case !t.untouched():
		return t.leave()
	}
	return t.evict()
}

// place gets the reservation, and reports whether the pod may be evicted as far as it is concerned.
func (t *turn) place() (do Action, ready bool) {
	created := t.s.Find(ReservationCreated)
	p, failure := t.Place, t.failureOf(Reserve)
	used := p != nil && p.Used && !p.Expired && t.untouched() && t.Source != ""
	switch {
	case used && p.Foreign:
		return t.fail(Failed, MissingReservation, "another pod used the reservation before the pod was evicted"), false
	case used && (t.Claimed || t.late):
		return Wait, false
	case used:
		return t.again("another pod used the reservation: one more is needed"), false
	case p == nil && !t.untouched():
		return t.fail(Failed, MissingPod, "the pod does not exist any more, or is being deleted"), false
	case p == nil && created.True:
		return t.fail(Failed, MissingReservation, "the reservation was deleted"), false
	case p == nil && t.Named:
		return t.fail(Failed, MissingReservation, "the reservation of spec.reservationOptions does not exist"), false
	case p == nil && failure != nil:
		t.s.set(t.Now, Condition{Type: ReservationCreated, Reason: FailedCreateReservation, Message: failure.Text})
		if failure.Final {
			return t.fail(Failed, FailedCreateReservation, failure.Text), false
		}
		return Wait, false
	case p == nil && t.late:
		return Wait, false
	case p == nil:
		return Reserve, false
	}
	if !created.True {
		t.s.set(t.Now, Condition{Type: ReservationCreated, True: true, Message: p.Name})
	}
	bound := t.s.Find(ReservationScheduled)
	free := !p.Foreign && !p.Used && !p.Expired && !t.late && t.untouched() && t.s.Find(Eviction).Reason != Evicting
	switch {
	case free && !p.Available && p.Stale:
		return t.again("the nodes that the job must avoid have changed"), false
	case free && p.Available && p.Barred:
		return t.again("the job must avoid node " + p.Node + " now"), false
	case p.Expired && t.late: // both have the same time to live
		return Wait, false
	case p.Expired:
		return t.fail(Failed, ReservationExpired, "the reservation expired, or its node was deleted"), false
	case !p.Available && !p.Used && !t.untouched():
		return t.fail(Failed, MissingPod, "the pod does not exist any more, or is being deleted"), false
	case !p.Available && !p.Used:
		if p.Refused != "" {
			t.s.set(t.Now, Condition{Type: ReservationScheduled, Reason: Unschedulable, Message: p.Refused})
		}
		return Wait, false
	case p.Node == "" || p.Node == t.Source:
		return t.fail(Failed, ForbiddenMigratePod, "the reservation is on the node of the pod"), false
	case !bound.True:
		t.s.Node = p.Node
		t.s.set(t.Now, Condition{Type: ReservationScheduled, True: true, Message: p.Node})
	}
	return Wait, true
}

// again gives the reservation up, so that the next step makes another one.
func (t *turn) again(why string) Action {
	t.s.set(t.Now, Condition{Type: ReservationCreated, Message: why})
	if t.s.index(ReservationScheduled) >= 0 {
		t.s.set(t.Now, Condition{Type: ReservationScheduled})
	}
	t.s.Node = ""
	return Release
}

// evict evicts the pod when every check passes.
func (t *turn) evict() Action {
	done := t.s.Find(Eviction)
	if failure := t.failureOf(Evict); failure != nil && !failure.Unknown {
		t.s.set(t.Now, Condition{Type: Eviction, Reason: FailedEvict, Message: failure.Text, Probed: done.Probed})
		t.wait(&Refusal{Code: FailedEvict, Text: failure.Text})
		if failure.Final {
			return t.fail(Failed, FailedEvict, failure.Text)
		}
		return Wait
	}
	switch {
	case t.late:
		return Wait
	case t.Refused != nil && t.Refused.Final:
		return t.forbid(*t.Refused)
	case t.Refused != nil:
		t.wait(t.Refused)
		return Wait
	case t.Unready > 0:
		t.wait(&Refusal{Text: fmt.Sprintf("%d other pods of the gang have no place yet", t.Unready)})
		return Wait
	case done.Type != "" && t.Now.Before(done.Probed.Add(retryPause)):
		return Wait
	}
	t.wait(nil)
	t.s.set(t.Now, Condition{Type: Eviction, Reason: Evicting, Probed: t.Now})
	return Evict
}

// leave waits until the pod is gone.
func (t *turn) leave() Action {
	at := t.s.Find(Eviction).Probed
	if at.IsZero() { // another client deletes the pod
		if at = t.Now; t.Direct {
			return t.fail(Failed, MissingPod, "the pod does not exist any more, or is being deleted")
		}
	}
	if !t.gone() {
		t.s.set(t.Now, Condition{Type: Eviction, Reason: Evicting, Probed: at})
		return Wait
	}
	t.wait(nil)
	t.s.set(t.Now, Condition{Type: Eviction, Reason: EvictComplete, True: true, Probed: at})
	return t.follow()
}

// follow waits for the pod that uses the place.
func (t *turn) follow() Action {
	next := t.Successor
	switch {
	case t.Direct:
		t.s.end(t.Now, Succeeded, "", "")
	case next == nil && t.Place == nil:
		return t.fail(Failed, MissingReservation, "the reservation was deleted before a pod used it")
	case next == nil && t.Place.Expired && !t.late:
		return t.fail(Failed, ReservationExpired, "the reservation expired before a pod used it")
	case next == nil:
		t.s.set(t.Now, Condition{
			Type: PodBoundReservation, Reason: WaitForPodBindReservation, Message: "no pod uses the reservation yet",
		})
	default:
		t.s.Pod, t.s.Node = next.Reference, cmp.Or(next.Node, t.s.Node)
		t.s.set(t.Now, Condition{Type: PodScheduled, True: true})
		t.s.set(t.Now, Condition{Type: PodBoundReservation, True: true})
		if p := t.Place; p != nil && p.Available && !p.Foreign {
			return Release // the pod is in the room that was held for another one
		}
		if !next.Ready {
			t.s.set(t.Now, Condition{
				Type: BoundPodReady, Reason: WaitForBoundPodReady, Message: "the new pod is not Ready yet",
			})
			break
		}
		t.s.set(t.Now, Condition{Type: BoundPodReady, True: true})
		t.s.end(t.Now, Succeeded, "", "")
	}
	return Wait
}

// expire ends a job whose time is over.
func (t *turn) expire() Action {
	reason, waits := Timeout, Condition{Message: t.s.Message}
	for _, c := range t.s.Conditions {
		if !c.True && c.Message != "" && c.Type != Paused && t.s.Message == "" {
			waits = c
		}
	}
	if waits.Reason == Unschedulable {
		reason = Unschedulable
	}
	return t.fail(Failed, reason, fmt.Sprintf("the job did not end within %v: %s", t.TTL,
		cmp.Or(waits.Message, t.missing())))
}

// missing names the step that a job without a message waits for.
func (t *turn) missing() string {
	evicting := t.s.Find(Eviction).Reason == Evicting
	switch {
	case evicting && t.untouched():
		return "no answer to the eviction, and the pod still runs"
	case evicting:
		return "the pod is asked to end, and still exists"
	case t.Direct || t.s.Find(ReservationScheduled).True:
		return "the eviction has not begun"
	case t.Place == nil:
		return "the reservation does not exist yet"
	}
	return "the reservation has no node yet"
}

// forbid ends the job with a refusal.
func (t *turn) forbid(r Refusal) Action {
	return t.fail(Failed, ForbiddenMigratePod, r.Text)
}

// withdrawn is what the condition Eviction says while a request is withdrawn that may still be answered.
const withdrawn = "the request for the eviction is withdrawn"

// fail ends a job. A request for the eviction is withdrawn first. An eviction without an answer is waited for: whether
// the place is kept depends on it.
func (t *turn) fail(phase Phase, reason, message string) Action {
	c := t.s.Find(Eviction)
	if c.Reason == Evicting && t.Requested && !t.gone() && !t.Pod.Terminating {
		if c.Message != withdrawn {
			t.s.set(t.Now, Condition{Type: Eviction, Reason: Evicting, Message: withdrawn, Probed: t.Now})
		}
		return Withdraw
	}
	if c.Reason == Evicting && t.untouched() {
		if t.Now.Before(c.Probed.Add(answerTime)) {
			return Wait
		}
		t.s.set(t.Now, Condition{Type: Eviction, Reason: FailedEvict, Message: message, Probed: c.Probed})
	}
	t.s.end(t.Now, phase, reason, message)
	return Wait
}

// failureOf returns the failure of the last action if it was this one; else nil.
func (t *turn) failureOf(a Action) *Failure {
	if t.Failure != nil && t.Failure.Action == a {
		return t.Failure
	}
	return nil
}

// clean removes what a job that has ended leaves.
func (t *turn) clean() Action {
	owned := t.Place != nil && !t.Place.Foreign
	switch {
	case t.Requested:
		return Withdraw
	case owned && (t.Place.Expired || !t.s.isEvicted() && !t.Place.Used):
		return Release
	case t.Deleting || t.Now.Before(t.removal()):
		return Finish
	case owned:
		return Release
	}
	return Remove
}

// removal is when the object of a job that has ended is deleted.
func (t *turn) removal() time.Time {
	at := t.Created.Add(keepWithoutTTL)
	if t.TTL > 0 && !t.Started.IsZero() {
		at = t.Deadline(t.Now).Add(keepTime)
	}
	if needed := t.s.Find(Ended).Changed.Add(t.Memory); needed.After(at) {
		return needed
	}
	return at
}
