package gang_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// step is a round, or the cycle of a newcomer, of a scheduling loop. Times are in milliseconds.
type step struct {
	members     int // of a round; 0 for a newcomer
	failed      bool
	came        int // a newcomer
	began, over int
	bound       int // a newcomer, in the background
}

// rest is how long the next round may wait after a round.
func (s step) rest() int {
	if s.failed {
		return 19 * (s.over - s.began)
	}
	return 4 * (s.over - s.began)
}

// loop is a scheduling loop with gangs that are always to be tried, and what it has done until now.
type loop struct {
	rounds, newcomers []step // that are to come, with how long they take in over and bound
	done              []step
	interval          gang.Interval
	now, rested       int
}

func drawLoop(t *rapid.T) *loop {
	l := &loop{}
	for range rapid.IntRange(0, 5).Draw(t, "rounds") {
		l.rounds = append(l.rounds, step{
			members: rapid.IntRange(1, 7).Draw(t, "members"), over: rapid.IntRange(0, 20).Draw(t, "takes"),
			failed: rapid.Bool().Draw(t, "failed"),
		})
	}
	came := 0
	for range rapid.IntRange(0, 20).Draw(t, "newcomers") {
		came += rapid.SampledFrom([]int{0, 0, 1, 10, 100}).Draw(t, "comes after")
		l.newcomers = append(l.newcomers, step{
			came: came, over: rapid.IntRange(0, 3).Draw(t, "takes"),
			bound: rapid.IntRange(0, 40).Draw(t, "is bound in"),
		})
	}
	return l
}

func at(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }

// begin moves the first of some steps to what was done.
func (l *loop) begin(from *[]step) {
	s := (*from)[0]
	*from = (*from)[1:]
	s.began, s.over = l.now, l.now+s.over
	s.bound += s.over
	l.done, l.now = append(l.done, s), s.over
}

// comes reports whether a newcomer waits.
func (l *loop) comes() bool { return len(l.newcomers) > 0 && l.newcomers[0].came <= l.now }

// busy reports whether a newcomer is being bound.
func (l *loop) busy() bool {
	return slices.ContainsFunc(l.done, func(s step) bool { return s.members == 0 && s.bound > l.now })
}

// next is the oracle: what follows, of nothing but what was done.
func (l *loop) next() gang.Next {
	last, tried := step{}, 0
	for _, s := range slices.Backward(l.done) {
		if s.members > 0 {
			last = s
			break
		}
		tried++
	}
	rests := l.now-last.over <= last.rest()
	if tried*2 < last.members || last.failed && rests {
		if l.comes() {
			return gang.NextNewcomer
		}
		if l.busy() && rests {
			return gang.NextWait
		}
	}
	return gang.NextRound
}

// run tries all gangs, and newcomers between them.
func (l *loop) run(t *rapid.T) {
	failed := false // the last round
	for len(l.rounds) > 0 {
		l.interval.End(failed, at(l.now))
		want := l.next()
		owes := l.interval.Owes(at(l.now))
		if !owes && want != gang.NextRound || owes && l.comes() && want != gang.NextNewcomer {
			t.Fatalf("at %d it is %t that newcomers are owed a cycle after %+v, want %d", l.now, owes, l.done, want)
		}
		if owes {
			if got := l.interval.Next(l.comes(), l.busy(), at(l.now)); got != want {
				t.Fatalf("at %d there follows %d after %+v, want %d", l.now, got, l.done, want)
			}
		}
		switch want {
		case gang.NextNewcomer:
			l.begin(&l.newcomers)
		case gang.NextWait:
			l.now++
			l.rested++
		default:
			l.interval.Begin(l.rounds[0].members, at(l.now))
			failed = l.rounds[0].failed
			l.begin(&l.rounds)
		}
	}
}

// TestNewcomersAndGangsWaitForEachOtherNoLongerThanOneRound holds four properties: a newcomer waits for a second round
// only where as many before it have had their cycles after the first; newcomers have no more of them than that, but for
// nineteen times as long as a round that placed nothing; a round waits for nothing without them; and where it waits for
// them to be bound, then for four times as long as the last took at most, or those nineteen.
func TestNewcomersAndGangsWaitForEachOtherNoLongerThanOneRound(t *testing.T) {
	t.Parallel()
	cycles, rests := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoop(t)
		plain := len(l.newcomers) > 0
		l.run(t)
		for i, from := range l.done {
			if from.members == 0 {
				continue
			}
			most, next := (from.members+1)/2, slices.IndexFunc(l.done[i+1:], func(s step) bool { return s.members > 0 })
			if next < 0 {
				continue // the last one
			}
			between, to := l.done[i+1:i+1+next], l.done[i+1+next]
			passed := func(s step) bool { return s.members == 0 && s.came <= from.over }
			if later := append(slices.Clone(l.done[i+1+next:]), l.newcomers...); len(between) < most &&
				slices.ContainsFunc(later, passed) {
				t.Errorf("%+v are tried between %+v and %+v, and others came before: %+v", between, from, to, later)
			}
			rested := to.began - from.over
			for _, s := range between {
				rested -= s.over - s.began
			}
			late := func(s step) bool { return !from.failed || s.began > from.over+from.rest() }
			if slices.ContainsFunc(between[min(most, len(between)):], late) || rested > from.rest()+1 ||
				rested > 0 && !plain {
				t.Errorf("between %+v and %+v are %+v, and %d ms of rest", from, to, between, rested)
			}
			cycles += len(between)
		}
		rests += l.rested
	})
	if cycles == 0 || rests == 0 {
		t.Errorf("%d newcomers between rounds and %d ms of rest: too few to mean anything", cycles, rests)
	}
}

// TestWithoutGangsNothingIsOwed to newcomers, however many are tried.
func TestWithoutGangsNothingIsOwed(t *testing.T) {
	t.Parallel()
	var i gang.Interval
	for n := range 3 {
		i.End(n > 0, at(n))
		if next := i.Next(true, true, at(n)); i.Owes(at(n)) || next != gang.NextRound || i != (gang.Interval{}) {
			t.Errorf("%d is next, in the interval %+v", next, i)
		}
	}
}

// TestIdleTimeIsNotCountedToARound: the next one, an hour later, does not wait for the bindings of that hour.
func TestIdleTimeIsNotCountedToARound(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]gang.Next{
		0: gang.NextWait, 40 * time.Millisecond: gang.NextWait, 41 * time.Millisecond: gang.NextRound,
		time.Hour: gang.NextRound,
	} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			var i gang.Interval
			i.Begin(4, at(0))
			i.End(false, at(10))
			i.End(true, at(10).Add(after))
			if got := i.Next(false, true, at(10).Add(after)); got != want {
				t.Errorf("%d is next, want %d", got, want)
			}
		})
	}
}
