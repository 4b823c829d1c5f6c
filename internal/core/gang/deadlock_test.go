package gang_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestTheExampleOfThreeGangs: of 10 CPUs three gangs of five hold 3, 3 and 4. The last gives back, the first starts.
func TestTheExampleOfThreeGangs(t *testing.T) {
	t.Parallel()
	held, free := []int{3, 3, 4}, 0
	fits := func(h int, without []int) bool {
		n := free + held[h]
		for _, o := range without {
			n += held[o]
		}
		return n >= 5
	}
	winner, released := gang.Resolve(3, fits)
	if winner != 0 || !reflect.DeepEqual(released, []int{2}) {
		t.Errorf("%d starts when %v give back, want 0 and [2]", winner, released)
	}
	held, free = []int{5, 3, 0}, 2
	if winner, released := gang.Resolve(3, fits); winner != 0 || len(released) > 0 {
		t.Errorf("%d starts when %v give back: the first may start as it is", winner, released)
	}
}

// TestWhichGangReleases compares with all sets of holders, on two nodes: there is a winner if one could start in any
// case, it is the first of those, none that gives back is spared in vain, those before the winner only where the
// others have not enough, and the question is not asked too often.
func TestWhichGangReleases(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type amounts [2]int
		n := rapid.IntRange(0, 6).Draw(t, "holders")
		draw := func(most int, name string) amounts {
			return amounts{rapid.IntRange(0, most).Draw(t, name), rapid.IntRange(0, most).Draw(t, name)}
		}
		free := draw(2, "free")
		var held, needs []amounts
		for range n {
			held, needs = append(held, draw(4, "held")), append(needs, draw(6, "needs"))
		}
		asked := 0
		fits := func(h int, without []int) bool {
			asked++
			has := free
			for _, o := range append([]int{h}, without...) {
				has[0], has[1] = has[0]+held[o][0], has[1]+held[o][1]
			}
			return has[0] >= needs[h][0] && has[1] >= needs[h][1]
		}
		winner, released := gang.Resolve(n, fits)
		if asked > 4*n {
			t.Fatalf("asked %d times for %d holders", asked, n)
		}
		set := func(bits int) (all []int) {
			for o := range n {
				if bits>>o&1 == 1 {
					all = append(all, o)
				}
			}
			return all
		}
		want, alone := -1, false
		for h := range n {
			for bits := range 1 << n {
				if bits>>h&1 == 1 || !fits(h, set(bits)) {
					continue
				}
				if bits == 0 && !alone {
					want, alone = h, true
				}
				if want < 0 {
					want = h
				}
			}
		}
		if winner != want || alone != (winner >= 0 && len(released) == 0) {
			t.Fatalf("the winner is %d with %v, want %d", winner, released, want)
		}
		if winner < 0 || alone {
			return
		}
		if slices.Contains(released, winner) || !fits(winner, released) {
			t.Fatalf("%d does not start when %v give back", winner, released)
		}
		for bits := range 1 << len(released) {
			var some []int
			for i, o := range released {
				if bits>>i&1 == 1 {
					some = append(some, o)
				}
			}
			if len(some) == len(released)-1 && fits(winner, some) {
				t.Fatalf("%d starts when %v give back, and %v do", winner, some, released)
			}
		}
		var lower []int
		for o := winner + 1; o < n; o++ {
			lower = append(lower, o)
		}
		if slices.Min(released) < winner && fits(winner, lower) {
			t.Fatalf("%v give back, some of which come before %d; those behind it have enough", released, winner)
		}
	})
}

// TestHoldersAreRanked by the lowest priority of their members, then by age, then by name; Strict groups, gangs that
// hold nothing and those that have started are none.
func TestHoldersAreRanked(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{Mode: gang.NonStrict})
	put := func(gangName, name string, priority int32, created int64, settings gang.Settings) {
		s.Put(gang.Pod{
			UID: gangName + name, Namespace: "ns", Name: name, Gang: "ns/" + gangName, Settings: settings,
			Priority: priority, Created: time.Unix(created, 0),
		})
	}
	two := gang.Settings{Min: 2}
	for _, g := range []struct {
		name     string
		priority int32
		created  int64
		settings gang.Settings
	}{
		{"old", 1, 5, two},
		{"low", 0, 1, two},
		{"young", 1, 9, two},
		{"also-old", 1, 5, two},
		{"idle", 7, 1, two},
		{"strict", 7, 1, gang.Settings{Min: 2, Mode: gang.Strict}},
		{"runs", 7, 1, gang.Settings{Min: 1}},
	} {
		put(g.name, "1", g.priority+1, g.created+1, g.settings)
		put(g.name, "0", g.priority, g.created, g.settings)
		if g.name != "idle" {
			s.Place(g.name+"1", time.Unix(0, 0))
		}
	}
	var keys []string
	for _, h := range s.Holders(9) {
		keys = append(keys, h.Key)
		gangName := h.Key[len("ns/"):]
		lacks := func(members ...string) bool {
			failed, _ := h.Plan.Try(members, func(string) bool { return true })
			return failed != ""
		}
		if !slices.Equal(h.Reserved, []string{gangName + "1"}) ||
			!slices.Equal(h.Plan.Members, []string{gangName + "0"}) || !lacks() || lacks(gangName+"0") {
			t.Errorf("got %+v, want the first member reserved, and a plan of the other one", h)
		}
	}
	if want := []string{"ns/also-old", "ns/old", "ns/young", "ns/low"}; !slices.Equal(keys, want) {
		t.Errorf("holders %v, want %v", keys, want)
	}
}

// TestTheGangThatReleasedIsBehind: the winner is tried when all is given back, the others when it has started.
func TestTheGangThatReleasedIsBehind(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{Mode: gang.NonStrict, Min: 2})
	at := time.Unix(0, 0)
	for _, uid := range []string{"a0", "a1", "b0", "b1"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/" + uid[:1]})
	}
	s.Place("a0", at)
	s.Place("b0", at)
	step := func(what string, got, want gang.Effects) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	step("the deadlock", s.Release("ns/a", []string{"ns/b", "ns/gone"}), gang.Effects{Release: []string{"b0"}})
	for _, uid := range []string{"b0", "b1"} {
		if r := s.Gate(uid); r.Code != why.GangDeadlockReleased || r.Gang != "ns/a" {
			t.Errorf("the gate of %s says %+v", uid, r)
		}
	}
	step("it is given back", s.Lose("b0", why.Finding{}), gang.Effects{Opened: []string{"ns/a"}})
	if left := s.Holders(9); len(left) != 1 || left[0].Key != "ns/a" {
		t.Errorf("holders %+v", left)
	}
	step("the winner starts", s.Place("a1", at), gang.Effects{
		Allow: []string{"a0", "a1"}, Opened: []string{"ns/b"},
	})
	if r := s.Gate("b0"); r.Code != why.None {
		t.Errorf("the gate says %+v", r)
	}
	if r := s.Why("b0"); r.Code != why.GangDeadlockReleased {
		t.Errorf("until it is tried again, the pod says %+v", r)
	}
}

// BenchmarkHolders is what is asked every five seconds, and after it in a scheduling cycle: which NonStrict gangs hold
// reservations, of so many gangs of ten pods.
func BenchmarkHolders(b *testing.B) {
	for _, c := range []struct{ gangs, holding int }{{5000, 0}, {5000, 20}, {5000, 5000}} {
		b.Run(fmt.Sprintf("gangs=%d/holding=%d", c.gangs, c.holding), func(b *testing.B) {
			s := gang.New(gang.Settings{})
			for i := range c.gangs {
				for j := range 10 {
					s.Put(gang.Pod{
						UID: fmt.Sprint(i, " ", j), Namespace: "ns", Name: fmt.Sprint(i, "-", j),
						Gang: fmt.Sprint("ns/", i), Created: time.Unix(int64(i), 0),
						Settings: gang.Settings{Min: 10, Mode: gang.NonStrict},
					})
					if i < c.holding && j > 4 {
						s.Place(fmt.Sprint(i, " ", j), time.Unix(0, 0))
					}
				}
			}
			for i := range c.holding { // the gate is open when all exist
				for j := range 5 {
					s.Place(fmt.Sprint(i, " ", j), time.Unix(0, 0))
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := len(s.Holders(20)); got != min(c.holding, 20) {
					b.Fatalf("%d hold", got)
				}
			}
		})
	}
}

// TestTheRestOfANonStrictGang is planned when each other pending member was tried, with what waits.
func TestTheRestOfANonStrictGang(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{Mode: gang.NonStrict})
	for _, uid := range []string{"a", "b", "c", "d"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{
			Min: 3, DomainRules: []domain.Rule{{Label: "rack", Must: true}},
		}})
	}
	s.Place("a", time.Unix(0, 0))
	s.Fail("b", why.Finding{}, time.Time{})
	if p := s.Rest("c"); p != nil {
		t.Errorf("d was not tried, and %v are planned", p.Members)
	}
	s.Fail("c", why.Finding{}, time.Time{})
	for _, uid := range []string{"a", "unknown"} {
		if p := s.Rest(uid); p != nil {
			t.Errorf("%s is not pending, and %v are planned", uid, p.Members)
		}
	}
	p := s.Rest("d")
	if p == nil || !slices.Equal(p.Members, []string{"b", "c", "d"}) {
		t.Fatalf("%+v is planned, want the pending members", p)
	}
	if failed, have := p.Try(p.Members, func(uid string) bool { return uid == "b" }); failed != "d" || have != 2 {
		t.Errorf("%q fails beside %d, want d beside a and b", failed, have)
	}
	if got := p.DomainRequests[0]; got.Min != 2 || !slices.Equal(got.Held, []string{"a"}) {
		t.Errorf("a domain must have room for %d beside %v, want 2 beside a", got.Min, got.Held)
	}
	strict := gang.New(gang.Settings{})
	strict.Put(gang.Pod{UID: "a", Namespace: "ns", Name: "a", Gang: "ns/g"})
	if p := strict.Rest("a"); p != nil {
		t.Errorf("%v of a Strict gang are planned", p.Members)
	}
}
