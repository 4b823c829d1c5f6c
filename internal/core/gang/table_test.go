package gang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// protocol is the scheduling cycle of Koordinator's release 0.7 as its table has it, for one gang whose members must
// all run, with the end of a round made explicit: it follows the last attempt.
type protocol struct {
	cycle   int
	valid   bool
	stamps  map[string]int
	waiting []string
}

// try is the attempt of a member; fits is what its Filter says.
func (p *protocol) try(uid string, fits bool) (refused bool) {
	refused = !p.valid || p.stamps[uid] >= p.cycle
	p.stamps[uid] = p.cycle
	switch {
	case refused:
	case fits:
		p.waiting = append(p.waiting, uid)
	default:
		p.valid, p.waiting = false, nil
	}
	for _, stamp := range p.stamps {
		if stamp < p.cycle {
			return refused
		}
	}
	p.cycle, p.valid = p.cycle+1, true
	return refused
}

func permutations(list []string) (all [][]string) {
	if len(list) == 0 {
		return [][]string{nil}
	}
	for i, first := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append([]string{first}, p...))
		}
	}
	return all
}

// TestRoundsEqualTheSeedsTable is G14: all orders of five members, and each that may fail, or none. At the end of the
// round cycle, stamps and what waits are those of the table.
func TestRoundsEqualTheSeedsTable(t *testing.T) {
	t.Parallel()
	uids := []string{"p1", "p2", "p3", "p4", "p5"}
	for _, order := range permutations(uids) {
		for _, fails := range append([]string{""}, uids...) {
			s := gang.New(gang.Settings{})
			want := &protocol{cycle: 1, valid: true, stamps: map[string]int{}}
			for _, uid := range uids {
				s.Put(gang.Pod{UID: uid, Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 5}})
				want.stamps[uid] = 0
			}
			ended := false
			for _, uid := range order {
				refused := want.try(uid, uid != fails)
				if ended != refused {
					t.Fatalf("%v, %s fails: %s is refused: %v, want %v", order, fails, uid, ended, refused)
				}
				var e gang.Effects
				switch {
				case ended: // our round has ended with the failure: who was not tried is not tried in it
				case uid == fails:
					e = s.Fail(uid, why.Finding{}, time.Time{})
					ended = true
				default:
					e = s.Place(uid, time.Unix(0, 0))
				}
				for _, back := range e.Release {
					s.Lose(back, why.Finding{})
				}
			}
			r, _ := s.Find("ns/g")
			var allowed []string
			for _, m := range r.Members {
				if m.Cycle != want.stamps[m.Name] {
					t.Errorf("%v, %s fails: %s was tried in cycle %d, want %d", order, fails, m.Name, m.Cycle,
						want.stamps[m.Name])
				}
				if m.Phase == gang.Allowed {
					allowed = append(allowed, m.Name)
				}
			}
			slices.Sort(want.waiting)
			if r.Cycle != want.cycle || !slices.Equal(allowed, want.waiting) {
				t.Errorf("%v, %s fails: cycle %d with %v, want %d with %v", order, fails, r.Cycle, allowed, want.cycle,
					want.waiting)
			}
		}
	}
}

// TestGangsThatHaveEndedAreForgotten: what is remembered of them is bounded, and the oldest go first.
func TestGangsThatHaveEndedAreForgotten(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	member := func(i int, node string) gang.Pod {
		id := fmt.Sprint("ns/", i)
		return gang.Pod{UID: id, Name: id, Gang: id, Settings: gang.Settings{Min: 2}, Owner: "job", Node: node}
	}
	const gangs = 10001
	for i := range gangs {
		s.Put(member(i, "node"))
		s.Remove(fmt.Sprint("ns/", i))
	}
	testkit.Check(t, s.Check())
	for i, want := range map[int]why.Code{0: why.GangNotReady, 1: why.None, gangs - 1: why.None} {
		s.Put(member(i, ""))
		if got := s.Gate(fmt.Sprint("ns/", i)).Code; got != want {
			t.Errorf("a pod of gang %d of %d again: %v, want %v", i, gangs, got, want)
		}
	}
}

// TestTheGateCostsTheSameForAnyNumberOfMembers: it allocates nothing, and reads the counters of the gang alone.
//
// F18: each event costs 10 ms while a large gang is gated.
func TestTheGateCostsTheSameForAnyNumberOfMembers(t *testing.T) {
	for _, c := range []struct {
		members int
		want    why.Code
	}{{1, why.GangNotReady}, {5000, why.GangNotReady}, {10000, why.None}} {
		s := gang.New(gang.Settings{})
		for i := range c.members {
			uid := fmt.Sprint(i)
			s.Put(gang.Pod{UID: uid, Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 10000}})
		}
		var got why.Code
		allocations := testing.AllocsPerRun(100, func() { got = s.Gate("0").Code })
		if got != c.want || allocations > 0 {
			t.Errorf("%d members: %v with %v allocations, want %v with none", c.members, got, allocations, c.want)
		}
	}
}

// TestAGangThatFailedMayBeTriedAtOnce, however often it has failed: no clock has moved.
//
// F7: a cache of gangs that were denied, and the backoff of each member, keep a gang that fits for more than a minute.
func TestAGangThatFailedMayBeTriedAtOnce(t *testing.T) {
	t.Parallel()
	s, now := gang.New(gang.Settings{}), time.Unix(0, 0)
	for _, uid := range []string{"p1", "p2", "p3"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 3}})
	}
	for i := range 50 {
		for _, uid := range []string{"p1", "p2", "p3"} {
			if r := s.Gate(uid); r.Code != why.None {
				t.Fatalf("after %d failures %s is held: %+v", i, uid, r)
			}
		}
		plan, refused := s.Begin("p2")
		if plan == nil || len(plan.Members) != 3 {
			t.Fatalf("after %d failures the plan is %+v, refused %+v", i, plan, refused)
		}
		s.Conclude(plan.Members, nil, gang.Failure{UID: "p1", Cause: why.Finding{}}, now)
	}
}

// BenchmarkGate is the question of the scheduling queue about each pod.
func BenchmarkGate(b *testing.B) {
	for _, members := range []int{4, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			s := gang.New(gang.Settings{})
			for i := range members {
				name := fmt.Sprint(i)
				s.Put(gang.Pod{UID: name, Name: name, Gang: "ns/g", Settings: gang.Settings{Min: members}})
			}
			b.ReportAllocs()
			for b.Loop() {
				if s.Gate("0").Code != why.None {
					b.Fatal("gated")
				}
			}
		})
	}
}

// TestAMemberThatCannotBeReservedIsNamedBesideThoseThatWere: the plan has room for it, and Reserve does not.
func TestAMemberThatCannotBeReservedIsNamedBesideThoseThatWere(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	for _, uid := range []string{"p1", "p2", "p3"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 3}})
	}
	plan, _ := s.Begin("p1")
	e := s.Conclude(plan.Members, []string{"p1", "p2"}, gang.Failure{UID: "p3"}, time.Unix(0, 0))
	if r := s.Why("p3"); len(e.Release) != 2 || len(e.Allow) > 0 || r.Have != 2 || r.Need != 3 || r.Pod != "ns/p3" {
		t.Errorf("effects %+v, reason %+v, want p1 and p2 back, and that p3 failed beside 2 of 3", e, r)
	}
}

func TestTheReportOfAGangHasTheRoundInWhichItStarted(t *testing.T) {
	t.Parallel()
	s := gangOfThree()
	plan, _ := s.Begin("p1")
	at := time.Unix(40, 0)
	s.Conclude(plan.Members, []string{"p1", "p2", "p3"}, gang.Failure{}, at)
	r, _ := s.Find("ns/g")
	if want := (gang.Attempt{At: at, Placed: 3, Needed: 3}); r.Last != want {
		t.Errorf("the last attempt is %+v, want %+v", r.Last, want)
	}
}

// TestAPlanGoesOnBehindTheOneBefore: a group with more domains than are tried at once is tried again at once, until all
// were or it starts.
func TestAPlanGoesOnBehindTheOneBefore(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	for _, uid := range []string{"p1", "p2"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 2}})
	}
	for i, c := range []struct{ skip, next int }{{0, 1000}, {1000, 2000}, {2000, 0}, {0, 1000}} {
		plan, _ := s.Begin("p1")
		if plan.Skip.Choices != c.skip {
			t.Fatalf("plan %d begins behind %+v, want %d", i, plan.Skip, c.skip)
		}
		tried := gang.Tried{
			Rule: domain.Rule{Label: "rack", Must: true}, Domains: c.skip + 1000, Many: 2500,
			More: c.next > 0, Best: "r1",
		}
		e := s.Conclude(plan.Members, nil, gang.Failure{
			UID: "p2", Skip: gang.Portion{Choices: c.next}, Tried: tried,
		}, time.Unix(0, 0))
		if again := slices.Equal(e.Opened, []string{"ns/g"}); again != (c.next > 0) {
			t.Errorf("plan %d left others from %d on, and the group is tried again at once: %t", i, c.next, again)
		}
		if says := strings.Contains(s.Why("p1").String(), "no more are tried at once"); says != (c.next > 0) {
			t.Errorf("plan %d left others from %d on, and says %s", i, c.next, s.Why("p1"))
		}
	}
	plan, _ := s.Begin("p1")
	s.Conclude(plan.Members, []string{"p1", "p2"}, gang.Failure{}, time.Unix(0, 0))
	if r, _ := s.Find("ns/g"); plan.Skip.Choices != 1000 || len(r.In(gang.Allowed)) != 2 {
		t.Errorf("behind %+v %+v were allowed", plan.Skip, r.In(gang.Allowed))
	}
}
