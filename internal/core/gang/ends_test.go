package gang_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestWhenAStartIsLookedForAnew names each change that counts, and each that does not.
func TestWhenAStartIsLookedForAnew(t *testing.T) {
	t.Parallel()
	end := func(node string, seconds int) gang.End { return gang.End{Node: node, At: at(seconds)} }
	unknown := func(node string) gang.End { return gang.End{Node: node} }
	was := gang.Ends{
		"early": end("held", 10), "late": end("other", 90), "service": unknown("held"), "other": unknown("other"),
	}
	const now, start = 20, 50
	for name, c := range map[string]struct {
		changed gang.Ends // with a zero End for a pod that is gone
		others  uint64
		vain    int
		want    bool
	}{
		"nothing":                         {nil, 0, 0, false},
		"a pod ends as it declared":       {gang.Ends{"early": {}}, 0, 0, false},
		"a pod ends sooner":               {gang.Ends{"late": {}}, 0, 0, true},
		"a pod without an end is gone":    {gang.Ends{"other": {}}, 0, 0, true},
		"a pod declares an earlier end":   {gang.Ends{"late": end("other", 80)}, 0, 0, true},
		"a pod declares a later end":      {gang.Ends{"late": end("other", 99)}, 0, 0, false},
		"a pod declares an end now":       {gang.Ends{"other": end("other", 99)}, 0, 0, true},
		"a pod takes its end back":        {gang.Ends{"late": unknown("other")}, 0, 0, false},
		"a pod comes elsewhere":           {gang.Ends{"new": unknown("other")}, 0, 0, false},
		"a pod comes that ends before":    {gang.Ends{"new": end("held", start)}, 0, 0, false},
		"a pod comes that ends behind":    {gang.Ends{"new": end("held", start+1)}, 0, 0, true},
		"a pod comes without an end":      {gang.Ends{"new": unknown("held")}, 0, 9, true},
		"a held node is free later":       {gang.Ends{"early": end("held", start+1)}, 0, 9, true},
		"a held node is free at no time":  {gang.Ends{"early": unknown("held")}, 0, 9, true},
		"a held pod outlives, but not so": {gang.Ends{"early": end("held", start)}, 0, 0, false},
		"an event":                        {nil, 1, 0, true},
		"one, and a vain search":          {nil, 1, 1, false},
		"two, and a vain search":          {nil, 2, 1, true},
		"one, and a pod that ends sooner": {gang.Ends{"late": {}}, 1, 1, true},
		"too few":                         {nil, 63, 6, false},
		"enough":                          {nil, 64, 6, true},
		"enough, however often":           {nil, 64, 99, true},
	} {
		ends := maps.Clone(was)
		for uid, end := range c.changed {
			if ends[uid] = end; end == (gang.End{}) {
				delete(ends, uid)
			}
		}
		s := gang.Search{Ends: was, Others: 7, Vain: c.vain}
		if got := s.IsDue(ends, 7+c.others, []string{"held"}, at(start), at(now)); got != c.want {
			t.Errorf("%s: due %t, want %t", name, got, c.want)
		}
	}
	times := slices.SortedFunc(slices.Values(was.Times()), time.Time.Compare)
	if want := []time.Time{at(10), at(90)}; !slices.Equal(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
}

// TestTheFirstRoomIsTheFirstTimeThatHasIt compares with a count of the copies at each time.
func TestTheFirstRoomIsTheFirstTimeThatHasIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		amount := rapid.Int64Range(-2, 6)
		each := rapid.SliceOfN(rapid.Int64Range(0, 3), 2, 2).Draw(rt, "each")
		copies := rapid.IntRange(0, 8).Draw(rt, "copies")
		rooms := make([]gang.Room, rapid.IntRange(0, 3).Draw(rt, "nodes"))
		for i := range rooms {
			rooms[i].Free = rapid.SliceOfN(amount, 2, 2).Draw(rt, "free")
			for range rapid.IntRange(0, 4).Draw(rt, "pods") {
				l := gang.Leave{Room: rapid.SliceOfN(rapid.Int64Range(0, 4), 2, 2).Draw(rt, "has")}
				if s := rapid.IntRange(0, 9).Draw(rt, "leaves"); s > 0 {
					l.At = at(s)
				}
				rooms[i].Leaves = append(rooms[i].Leaves, l)
			}
		}
		holds := func(when time.Time) (n int) {
			for _, r := range rooms {
				free := slices.Clone(r.Free)
				for _, l := range r.Leaves {
					for i := range free {
						if !l.At.After(when) {
							free[i] += l.Room[i]
						}
					}
				}
				node := 0
				short := func() bool {
					return each[0] > max(free[0], 0) || each[1] > max(free[1], 0)
				}
				for ; node < copies && !short(); node++ {
					for i := range free {
						free[i] -= each[i]
					}
				}
				n += node
			}
			return n
		}
		var want time.Time
		ok := holds(want) >= copies
		for s := 1; s <= 9 && !ok; s++ {
			want = at(s)
			ok = holds(want) >= copies
		}
		first, found := gang.FirstRoom(rooms, each, copies)
		if found != ok || ok && !first.Equal(want) {
			rt.Fatalf("%d copies of %v on %v: got %v %t, want %v %t", copies, each, rooms, first, found, want, ok)
		}
	})
}

// TestAPlanNeedsTheMinimumOfItsGangs and not all of its members.
func TestAPlanNeedsTheMinimumOfItsGangs(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	for _, uid := range []string{"a", "b", "c"} {
		s.Put(gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 2}})
	}
	if plan, _ := s.Begin("a"); plan.Needed() != 2 || gang.Single("d").Needed() != 1 {
		t.Errorf("a gang of 2 needs %d, and a pod alone %d", plan.Needed(), gang.Single("d").Needed())
	}
	s.Remove("c")
	s.Place("a", time.Time{})
	if plan, _ := s.Begin("b"); plan.Needed() != 1 {
		t.Errorf("a gang of 2 needs %d beside one that waits", plan.Needed())
	}
}

// TestPodsThatAreOverByATime are those with a known end that is not after it.
func TestPodsThatAreOverByATime(t *testing.T) {
	t.Parallel()
	ends := gang.Ends{
		"soon": {"n", at(5)}, "then": {"n", at(10)}, "late": {"n", at(11)}, "never": {Node: "n"}, "other": {"o", at(1)},
	}
	got := slices.Sorted(maps.Keys(ends.Over(at(10))))
	if want := []string{"other", "soon", "then"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	on := ends.OverOn([]string{"n", "p"}, at(10))
	if want := map[string][]string{"n": {"soon", "then"}}; !reflect.DeepEqual(on, want) {
		t.Errorf("got %v, want %v", on, want)
	}
}
