package gang

import "time"

// Interval decides what is tried between two rounds. Newcomers are pods of no gang that were never tried: many gangs
// that come at once, or are tried again at once, keep them waiting for about one round, not for the rounds of all.
// Newcomers keep a gang waiting for half as many cycles as the round before it had members, however many come; where
// the API server is slow to bind them, for four times as long as that round took at most. After a round that placed
// nothing they all have their cycles for nineteen times as long. Before the first round there is none.
type Interval struct {
	owed   int       // cycles of newcomers before the next round
	failed bool      // the round before it
	began  time.Time // the same
	until  time.Time // the next round may wait; zero while the round before it is under way
}

const (
	// restPerRound bounds how long a round waits for Bindings, in times of the round before it. On a machine whose API
	// server takes most of two cores, the 99th percentile of newcomers beside gangs was up to twice as long with 2.
	restPerRound = 4
	// restPerFailure is the same after a round that placed nothing: gangs that do not fit take a twentieth of the
	// scheduling cycle from newcomers.
	restPerFailure = 19
)

// Next is what follows in an interval.
type Next int

// What follows.
const (
	NextRound    Next = iota // and the interval is over
	NextNewcomer             // the one that has come
	NextWait                 // for a while, until the interval is asked again
)

// Begin notes that a round of so many members begins.
func (i *Interval) Begin(members int, now time.Time) {
	*i = Interval{owed: (members + 1) / 2, began: now}
}

// End notes that the round is over, and whether it placed nothing. Of several calls the first counts.
func (i *Interval) End(failed bool, now time.Time) {
	if i.began.IsZero() || !i.until.IsZero() {
		return
	}
	rest := now.Sub(i.began) * restPerRound
	if failed {
		rest = now.Sub(i.began) * restPerFailure
	}
	i.failed, i.until = failed, now.Add(rest)
}

// Owes reports whether a newcomer that has come is next.
func (i *Interval) Owes(now time.Time) bool { return i.owed > 0 || i.failed && i.rests(now) }

func (i *Interval) rests(now time.Time) bool { return !now.After(i.until) }

// Next returns what follows where another round may begin. came says that there is a newcomer, busy that a pod of no
// gang is being bound.
func (i *Interval) Next(came, busy bool, now time.Time) Next {
	switch owes := i.Owes(now); {
	case owes && came:
		i.owed--
		return NextNewcomer
	case owes && busy && i.rests(now):
		return NextWait
	}
	*i = Interval{}
	return NextRound
}
