package coscheduling

import (
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// membersPerTurn is for how many members of a round one newcomer is tried before the next round.
	membersPerTurn = 2
	// restPerRound bounds how long the next round waits for newcomers to be bound, in times of the round before it.
	restPerRound = 2
	// restStep is after how long it is looked again whether one has come.
	restStep = time.Millisecond
)

// turn is what pods of no gang are owed between two rounds.
type turn struct {
	aside *framework.QueuedPodInfo // the member that begins the next round
	left  int                      // newcomers that may be tried before it
	began time.Time                // of the last round
	until time.Time                // the next one may wait; zero before it is known
}

// Interleave returns the queue's pods, but newcomers of no gang between two rounds, if their priority is not lower.
// Many gangs that come at once, or are tried again at once, keep others waiting for about one round, not for the rounds
// of all. Newcomers keep a gang waiting for half as many cycles as the round before it had members, however many come;
// where the API server is slow to bind them, for twice the time of that round at most.
func (r *Rounds) Interleave(next nextPod) nextPod {
	return func(logger klog.Logger) (pod *framework.QueuedPodInfo, err error) {
		t := &r.turn
		if pod = t.aside; pod == nil {
			if pod, err = next(logger); err != nil || pod == nil {
				return pod, err
			}
		}
		if t.left == 0 || !r.IsMember(pod.Pod) {
			r.setAside(nil)
			return pod, nil
		}
		if now := time.Now(); t.until.IsZero() {
			t.until = now.Add(restPerRound * now.Sub(t.began))
		}
		for ; ; <-time.After(restStep) {
			if other := r.Newcomers.Newcomer(logger, r.Gangs.Priority(pod.Pod), r.IsMember); other != nil {
				t.left--
				r.setAside(pod)
				return other, nil
			}
			if r.Busy == nil || !r.Busy() || time.Now().After(t.until) {
				t.left = 0
				r.setAside(nil)
				return pod, nil
			}
		}
	}
}

// setAside notes the member that begins the next round.
func (r *Rounds) setAside(pod *framework.QueuedPodInfo) {
	if r.turn.aside != pod {
		r.turn.aside = pod
		r.Newcomers.SetAside(pod)
	}
}

// takeTurn notes that a round of so many members begins.
func (t *turn) takeTurn(members int) {
	t.began, t.until = time.Now(), time.Time{}
	t.left = (members + membersPerTurn - 1) / membersPerTurn
}
