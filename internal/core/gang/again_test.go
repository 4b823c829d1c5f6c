package gang_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// gangOfThree is a State with a gang of three pods of which all are needed.
func gangOfThree() *gang.State {
	s := gang.New(gang.Settings{Wait: time.Minute})
	for _, uid := range []string{"p1", "p2", "p3"} {
		s.Put(gang.Pod{
			UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 3, Wait: time.Minute},
		})
	}
	return s
}

// A member that is tried while reservations of the group have yet to end is refused. The group is tried again when the
// last of them has ended, and only if a member was refused.
func TestAMemberIsTriedAgainWhenReservationsHaveEnded(t *testing.T) {
	t.Parallel()
	s := gangOfThree()
	for round, tried := range []bool{true, false, true} {
		plan, refused := s.Begin("p1")
		if plan == nil {
			t.Fatalf("round %d: no plan: %+v", round, refused)
		}
		e := s.Conclude(plan.Members, []string{"p1", "p2"}, gang.Failure{UID: "p3"}, time.Unix(0, 0))
		slices.Sort(e.Release)
		if !slices.Equal(e.Release, []string{"p1", "p2"}) {
			t.Fatalf("round %d releases %v", round, e.Release)
		}
		if tried {
			if r := s.Try("p3"); r.Code != why.GangHolding {
				t.Errorf("round %d: a member is tried beside reservations of the round before: %+v", round, r)
			}
		}
		if e := s.Lose("p1", why.Finding{}); len(e.Opened) > 0 {
			t.Errorf("round %d: opens %v while a reservation has yet to end", round, e.Opened)
		}
		if opened := len(s.Lose("p2", why.Finding{}).Opened) > 0; opened != tried {
			t.Errorf("round %d: opened %t after the last reservation, a member was refused: %t", round, opened, tried)
		}
	}
}

// A group whose reservations were held for too long is opened once, some time later, unless it has started by then.
func TestAGroupThatTimedOutIsOpenedOnce(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	for name, starts := range map[string]bool{"it waits": false, "it starts before": true} {
		s := gangOfThree()
		s.Place("p1", begin)
		at, waits := s.Deadline()
		if !waits || at != begin.Add(time.Minute) {
			t.Fatalf("%s: the deadline is %v, %t", name, at, waits)
		}
		if e := s.Expire(at); !slices.Equal(e.Release, []string{"p1"}) {
			t.Fatalf("%s: releases %v", name, e.Release)
		}
		s.Lose("p1", why.Finding{})
		if r := s.Why("p2"); r.Code != why.GangTimeout {
			t.Errorf("%s: waits by %v", name, r.Code)
		}
		resumes, waits := s.Deadline()
		if !waits || !resumes.After(at) {
			t.Fatalf("%s: nothing is due after the timeout: %v, %t", name, resumes, waits)
		}
		if starts {
			plan, _ := s.Begin("p1")
			s.Conclude(plan.Members, []string{"p1", "p2", "p3"}, gang.Failure{}, at)
		}
		opened := s.Expire(resumes).Opened
		if len(opened) > 0 == starts {
			t.Errorf("%s: opens %v when its rest is over", name, opened)
		}
		if next, waits := s.Deadline(); waits {
			t.Errorf("%s: %v is due after that", name, next)
		}
		if again := s.Expire(resumes.Add(time.Hour)).Opened; len(again) > 0 {
			t.Errorf("%s: opens %v again", name, again)
		}
		if !starts {
			if r := s.Why("p2"); r.Code == why.GangTimeout {
				t.Errorf("%s: the timeout is still its reason", name)
			}
		}
	}
}

// Overtakes count since a plan failed first: another plan that fails for lack of room forgets none of them.
func TestOvertakesCountOverPlans(t *testing.T) {
	t.Parallel()
	behind := gang.Rank{Name: "ns/p"}
	for name, c := range map[string]struct {
		second gang.Outlook
		due    bool
	}{
		"the second plan lacks room as well":  {gang.Short, true},
		"the second plan has another failure": {gang.NoRoomNeeded, false},
		"the second plan is hopeless":         {gang.Hopeless, false},
	} {
		s, uid := waiting(t, 2, gang.Failure{Outlook: gang.Short})
		s.Overtake(behind)
		plan, _ := s.Begin(uid)
		s.Conclude(plan.Members, nil, gang.Failure{UID: "b", Outlook: c.second}, time.Unix(30, 0))
		if s.Overtaken(uid, false) {
			t.Errorf("%s: overtaken after one of two", name)
		}
		opened := s.Overtake(behind).Opened
		if got := s.Overtaken(uid, false); got != c.due || len(opened) > 0 != c.due {
			t.Errorf("%s: overtaken %t, opened %v, want %t", name, got, opened, c.due)
		}
		if again := s.Overtake(behind).Opened; len(again) > 0 {
			t.Errorf("%s: opened again: %v", name, again)
		}
		plan, _ = s.Begin(uid)
		s.Conclude(plan.Members, nil, gang.Failure{UID: "b", Outlook: c.second}, time.Unix(40, 0))
		if again := s.Overtake(behind).Opened; len(again) > 0 {
			t.Errorf("%s: opened again after a third plan: %v", name, again)
		}
	}
	s, _ := waiting(t, 0, gang.Failure{Outlook: gang.Reserved})
	if s.Reserves("ns/g") {
		t.Error("nodes are kept though no group is to have a reservation")
	}
}

// A plan may say when its group is to be tried again, whatever happens: it is opened once then.
func TestAGroupIsTriedAgainWhenItsPlanSaysSo(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	s := gangOfThree()
	plan, _ := s.Begin("p1")
	s.Conclude(plan.Members, nil, gang.Failure{UID: "p3", Again: begin.Add(time.Minute)}, begin)
	for _, c := range []struct {
		after  time.Duration
		opened bool
	}{{time.Minute - 1, false}, {time.Minute, true}, {time.Hour, false}} {
		if got := s.Expire(begin.Add(c.after)).Opened; slices.Equal(got, []string{"ns/g"}) != c.opened {
			t.Errorf("after %v: opened %v, want %t", c.after, got, c.opened)
		}
	}
}

func TestAGangThatFailsKeepsTheTimeOfItsFirstFailure(t *testing.T) {
	t.Parallel()
	s, begin := gangOfThree(), time.Unix(1000, 0)
	for _, c := range []struct {
		after  time.Duration
		placed []string
		since  time.Duration
	}{
		{after: time.Minute, since: time.Minute},
		{after: 2 * time.Minute, since: time.Minute},
		{after: 3 * time.Minute, placed: []string{"p1", "p2", "p3"}, since: 3 * time.Minute}, // it has started
	} {
		now := begin.Add(c.after)
		plan, _ := s.Begin("p1")
		s.Conclude(plan.Members, c.placed, gang.Failure{UID: "p3"}, now)
		if got := s.FailedSince("p2", now); got != begin.Add(c.since) {
			t.Errorf("after %v: it fails since %v, want %v", c.after, got.Sub(begin), c.since)
		}
	}
}

// A reservation that ends by itself lets the other members of a NonStrict gang be tried. The round of a Strict gang
// ends.
func TestAReservationThatIsLost(t *testing.T) {
	t.Parallel()
	for mode, opened := range map[gang.Mode]bool{gang.NonStrict: true, gang.Strict: false} {
		s := gang.New(gang.Settings{})
		for _, uid := range []string{"p1", "p2", "p3"} {
			s.Put(gang.Pod{
				UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 2, Mode: mode},
			})
		}
		s.Place("p1", time.Unix(0, 0))
		e := s.Lose("p1", why.Finding{})
		if slices.Contains(e.Opened, "ns/g") != opened {
			t.Errorf("mode %v: opened %v, want %t", mode, e.Opened, opened)
		}
		if r := s.Gate("p1"); r.Code != why.None {
			t.Errorf("mode %v: the member may not be tried again: %+v", mode, r)
		}
		for _, uid := range []string{"p1", "unknown"} {
			if e := s.Lose(uid, why.Finding{}); len(e.Opened)+len(e.Release)+len(e.Allow) > 0 {
				t.Errorf("mode %v: a pod without a reservation loses one: %+v", mode, e)
			}
		}
		s.Put(gang.Pod{
			UID: "p1", Namespace: "ns", Name: "p1", Gang: "ns/g", Node: "n",
			Settings: gang.Settings{Min: 2, Mode: mode},
		})
		if e := s.Lose("p1", why.Finding{}); len(e.Opened)+len(e.Release)+len(e.Allow) > 0 {
			t.Errorf("mode %v: a bound pod loses a reservation: %+v", mode, e)
		}
	}
}
