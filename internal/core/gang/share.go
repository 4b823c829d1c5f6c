package gang

import "time"

// LoopShare bounds the part of the scheduling loop's time that rounds take in which no pod gets a node, while pods that
// start alone wait in the queue. Without it many gangs that do not fit, and that are all tried again after each event,
// would keep such pods waiting for the sum of their rounds.
//
// The rule: after a failed round of length d, pods that start alone precede the members of gangs for another 3 d. So in
// each period in which such a pod waits without interruption, at most a quarter of the time belongs to failed rounds,
// plus one round that was under way when the period began or ends. Rounds that place or evict pods are not bounded,
// and while no such pod waits, gangs have all of the loop.
//
// LoopShare belongs to the scheduling loop. The zero value is ready to use.
type LoopShare struct {
	// began is when the round under way began; zero between two rounds.
	began time.Time
	// until is the end of the rest behind the last failed round; zero before the first one.
	until time.Time
}

// restPerRound is the length of the rest, in lengths of the failed round before it.
const restPerRound = 3

// Begin records that a round begins.
func (s *LoopShare) Begin(now time.Time) { s.began = now }

// End records that the round under way is over, and whether it failed. Without a round under way it does nothing.
func (s *LoopShare) End(failed bool, now time.Time) {
	if !s.began.IsZero() && failed {
		s.until = now.Add(restPerRound * now.Sub(s.began))
	}
	s.began = time.Time{}
}

// IsSpent reports whether pods that start alone precede the members of gangs.
func (s *LoopShare) IsSpent(now time.Time) bool { return now.Before(s.until) }
