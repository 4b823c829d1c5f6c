package gang_test

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

func at(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }

func ranked(priority int32, created int, name string) gang.Rank {
	return gang.Rank{Priority: priority, Turn: gang.Turn{Created: at(created)}, Name: name}
}

// TestWhoMayUseHeldRoom names each reason for which a hold yields, and what each of them requires.
func TestWhoMayUseHeldRoom(t *testing.T) {
	t.Parallel()
	easy := gang.HoldRules{Most: 1, Backfill: true, Below: math.MinInt32}
	free := gang.HoldRules{Most: 1, Below: 0}
	promised := gang.Hold{Rank: ranked(5, 10, "held"), Start: at(100)}
	behind := ranked(5, 20, "behind")
	for name, c := range map[string]struct {
		rules gang.HoldRules
		hold  gang.Hold
		user  gang.HoldUser
		want  bool
	}{
		"before it: older":             {gang.HoldRules{}, promised, gang.HoldUser{Rank: ranked(5, 9, "u")}, true},
		"before it: a higher priority": {gang.HoldRules{}, promised, gang.HoldUser{Rank: ranked(6, 99, "u")}, true},
		"itself":                       {easy, promised, gang.HoldUser{Rank: promised.Rank}, false},
		"ends at the start":            {easy, promised, gang.HoldUser{Rank: behind, Ends: at(100)}, true},
		"ends behind the start":        {easy, promised, gang.HoldUser{Rank: behind, Ends: at(101)}, false},
		"ends at no known time":        {easy, promised, gang.HoldUser{Rank: behind}, false},
		"ends before, no backfill": {
			gang.HoldRules{Most: 1}, promised, gang.HoldUser{Rank: behind, Ends: at(1)}, false,
		},
		"ends before, no promise": {
			easy, gang.Hold{Rank: promised.Rank}, gang.HoldUser{Rank: behind, Ends: at(1)}, false,
		},
		"loses nothing": {
			free, promised, gang.HoldUser{Rank: ranked(-1, 20, "u"), Priority: -1, Evictable: true}, true,
		},
		"loses nothing, and may not be evicted": {
			free, promised, gang.HoldUser{Rank: ranked(-1, 20, "u"), Priority: -1}, false,
		},
		"has the priority from which pods lose something": {
			free, promised, gang.HoldUser{Rank: ranked(0, 20, "u"), Evictable: true}, false,
		},
		"a member has a higher priority than its rank": {
			free, promised, gang.HoldUser{Rank: ranked(-1, 20, "u"), Evictable: true}, false,
		},
		"loses nothing, and no one says so": {
			easy, promised, gang.HoldUser{Rank: ranked(-1, 20, "u"), Priority: -1, Evictable: true}, false,
		},
		"loses nothing, of the held priority": {
			free,
			gang.Hold{Rank: ranked(-1, 10, "held"), Start: at(100)},
			gang.HoldUser{Rank: ranked(-1, 20, "u"), Priority: -1, Evictable: true},
			false,
		},
	} {
		if got := c.rules.Yields(c.hold, c.user); got != c.want {
			t.Errorf("%s: yields %t, want %t", name, got, c.want)
		}
	}
	for priority, want := range map[int32]bool{-1: true, 0: false, 5: false} {
		if got := free.Frees(promised.Rank, priority); got != want {
			t.Errorf("frees what priority %d has: %t, want %t", priority, got, want)
		}
	}
	if free.Frees(ranked(-1, 0, "u"), -1) {
		t.Error("frees what a pod of the same priority has")
	}
}

// TestWhoMayHoldRoom: the first units in the order, those with a promise alone count.
func TestWhoMayHoldRoom(t *testing.T) {
	t.Parallel()
	old, young := ranked(0, 10, "old"), ranked(0, 20, "young")
	urgent := ranked(9, 30, "urgent")
	byAge := gang.HoldRules{Most: 1, Order: gang.ByAge}
	hold := func(r gang.Rank) gang.Hold { return gang.Hold{Rank: r, Start: at(1)} }
	for name, c := range map[string]struct {
		rules gang.HoldRules
		unit  gang.Rank
		holds []gang.Hold
		want  bool
	}{
		"none may":                       {gang.HoldRules{}, old, nil, false},
		"the first":                      {gang.HoldRules{Most: 1}, old, nil, true},
		"behind one":                     {gang.HoldRules{Most: 1}, young, []gang.Hold{hold(old)}, false},
		"behind one of two":              {gang.HoldRules{Most: 2}, young, []gang.Hold{hold(old)}, true},
		"before one":                     {gang.HoldRules{Most: 1}, old, []gang.Hold{hold(young)}, true},
		"again":                          {gang.HoldRules{Most: 1}, old, []gang.Hold{hold(old)}, true},
		"again, and was older":           {gang.HoldRules{Most: 1}, old, []gang.Hold{hold(ranked(0, 1, "old"))}, true},
		"behind one without a promise":   {gang.HoldRules{Most: 1}, young, []gang.Hold{{Rank: old}}, true},
		"by priority, the urgent one":    {gang.HoldRules{Most: 1}, urgent, []gang.Hold{hold(old)}, true},
		"by priority, behind the urgent": {gang.HoldRules{Most: 1}, old, []gang.Hold{hold(urgent)}, false},
		"by age, the urgent one":         {byAge, urgent, []gang.Hold{hold(old)}, false},
		"by age, the older one":          {byAge, old, []gang.Hold{hold(urgent)}, true},
	} {
		if got := c.rules.MayHold(c.unit, c.holds); got != c.want {
			t.Errorf("%s: may hold %t, want %t", name, got, c.want)
		}
	}
	overtaken := gang.Hold{Rank: ranked(0, 50, "promised, and overtaken"), Start: at(1), Overtaken: true}
	all := []gang.Hold{hold(old), {Rank: ranked(0, 40, "overtaken")}, overtaken, hold(urgent), hold(young)}
	for most, want := range map[int][]string{
		0: {"young", "old", "urgent"}, 1: {"young", "old"}, 2: {"young"}, 3: {}, 9: {},
	} {
		names := []string{}
		for _, h := range (gang.HoldRules{Most: most}).Excess(all) {
			names = append(names, h.Rank.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("of %d that may hold, %v end, want %v", most, names, want)
		}
	}
}

// TestTheEarliestStartIsTheFirstTimeThatFits compares with a search that asks about each time.
func TestTheEarliestStartIsTheFirstTimeThatFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 12).Draw(rt, "times")
		from := rapid.IntRange(0, 22).Draw(rt, "fits from")
		times, asked := []time.Time{}, 0
		for _, s := range seconds {
			times = append(times, at(s))
		}
		early := rapid.IntRange(-1, from).Draw(rt, "known to fit not before")
		first, where, ok := gang.EarliestStart(times, at(early), func(when time.Time) (time.Time, bool) {
			if asked++; when.Before(at(early)) {
				rt.Fatalf("asked about %v", when)
			}
			return when, !when.Before(at(from))
		})
		slices.Sort(seconds)
		i := slices.IndexFunc(seconds, func(s int) bool { return s >= from })
		if ok != (i >= 0) || ok && (!first.Equal(at(seconds[i])) || !where.Equal(first)) {
			rt.Fatalf("of %v from %d: got %v %v %t", seconds, from, first, where, ok)
		}
		if asked > 6 || early == from && asked > 1 {
			rt.Fatalf("asked %d times about %d times", asked, len(times))
		}
	})
}

// job is a pod of a schedule: it asks for slots of one node, declares how long it runs, and runs at most so long.
type job struct {
	rank           gang.Rank
	arrives, slots int
	declared, runs int // declared 0: nothing
	node           int // -1 before it starts
	started, ends  int
}

// declaredEnd is when it ends by what it declares; zero for unknown.
func (j *job) declaredEnd(start int) time.Time {
	if j.declared == 0 {
		return time.Time{}
	}
	return at(start + j.declared)
}

// schedule is a small cluster of nodes with equal slots, in which the held unit asks for slots of several nodes.
type schedule struct {
	rules gang.HoldRules
	slots []int // by node
	jobs  []*job
	held  []int // slots of each member
	rank  gang.Rank
	now   int
	hold  gang.Hold
	where []int // nodes of the members; nil without a hold
}

// free returns the slots of each node at a time, with all gone that have ended by their declared times.
func (s *schedule) free(when time.Time) []int {
	free := slices.Clone(s.slots)
	for _, j := range s.jobs {
		if j.node < 0 || s.now >= j.ends {
			continue
		}
		if end := j.declaredEnd(j.started); end.IsZero() || end.After(when) {
			free[j.node] -= j.slots
		}
	}
	return free
}

// place returns a node for each member, the biggest member first; nil where they do not fit.
func (s *schedule) place(free []int) (nodes []int) {
	var try func(i int) bool
	try = func(i int) bool {
		if i == len(s.held) {
			return true
		}
		for n := range free {
			if free[n] >= s.held[i] {
				free[n] -= s.held[i]
				nodes = append(nodes, n)
				if try(i + 1) {
					return true
				}
				nodes = nodes[:i]
				free[n] += s.held[i]
			}
		}
		return false
	}
	if !try(0) {
		return nil
	}
	return nodes
}

// plan starts the held unit, or makes it hold room. It reports whether it started.
func (s *schedule) plan() bool {
	if s.place(s.free(at(s.now))) != nil {
		return true
	}
	var times []time.Time
	for _, j := range s.jobs {
		if end := j.declaredEnd(j.started); j.node >= 0 && s.now < j.ends && !end.IsZero() {
			times = append(times, end)
		}
	}
	start, where, ok := gang.EarliestStart(times, time.Time{}, func(when time.Time) ([]int, bool) {
		nodes := s.place(s.free(when))
		return nodes, nodes != nil
	})
	if s.hold, s.where = (gang.Hold{}), nil; ok {
		s.hold, s.where = gang.Hold{Rank: s.rank, Start: start, Nodes: map[string]string{}}, where
		for i, n := range where {
			s.hold.Nodes[fmt.Sprint(i)] = fmt.Sprint(n)
		}
	}
	return false
}

// start starts a job where it fits, beside what is held unless that yields to it.
func (s *schedule) start(j *job) {
	user := gang.HoldUser{Rank: j.rank, Priority: j.rank.Priority, Ends: j.declaredEnd(s.now)}
	yields := s.where == nil || s.rules.Yields(s.hold, user)
	for n := range s.slots {
		now := s.free(at(s.now - 1000))[n] // nothing ends
		if now >= j.slots && (yields || s.leavesRoom(j, n, now)) {
			j.node, j.started, j.ends = n, s.now, s.now+j.runs
			return
		}
	}
}

// leavesRoom reports whether a job that starts on a node leaves the held members there their slots.
func (s *schedule) leavesRoom(j *job, node, free int) bool {
	slots, nominated := map[string]int{}, []string(nil)
	for uid, n := range s.hold.Nodes {
		if n == fmt.Sprint(node) {
			nominated = append(nominated, uid)
			slots[uid] = s.held[uid[0]-'0']
		}
	}
	sum := func(uids []string) (n int) {
		for _, uid := range uids {
			n += slots[uid]
		}
		return n
	}
	moments, ok := s.rules.Moments([]gang.Hold{s.hold}, j.rank.Name, nominated)
	for _, m := range moments {
		if s.free(m.Start)[node] < j.slots+sum(m.Pods) {
			return false
		}
	}
	return ok || free >= j.slots+sum(nominated)
}

// run plays the schedule second by second, and returns when the held unit started, and each promise with its time.
func (s *schedule) run(until int) (started int, promises map[int]time.Time) {
	promises = map[int]time.Time{}
	for s.now = 0; s.now <= until; s.now++ {
		if s.now >= 2 { // jobs that run already come first
			if s.plan() {
				return s.now, promises
			}
			if s.where != nil {
				promises[s.now] = s.hold.Start
			}
		}
		for _, j := range s.jobs {
			if j.node < 0 && j.arrives <= s.now {
				s.start(j)
			}
		}
	}
	return -1, promises
}

func drawSchedule(rt *rapid.T) *schedule {
	s := &schedule{
		rules: gang.HoldRules{Most: 1, Backfill: rapid.Bool().Draw(rt, "backfill")},
		rank:  ranked(5, 1, "held"),
	}
	for range rapid.IntRange(1, 3).Draw(rt, "nodes") {
		s.slots = append(s.slots, rapid.IntRange(1, 4).Draw(rt, "slots"))
	}
	for range rapid.IntRange(1, 3).Draw(rt, "members") {
		s.held = append(s.held, rapid.IntRange(1, 4).Draw(rt, "member"))
	}
	slices.SortFunc(s.held, func(a, b int) int { return cmp.Compare(b, a) })
	for i := range rapid.IntRange(1, 10).Draw(rt, "jobs") {
		declared := rapid.IntRange(0, 12).Draw(rt, "declared")
		runs := rapid.IntRange(1, 12).Draw(rt, "runs")
		if declared > 0 {
			runs = min(runs, declared) // the declared times are kept
		}
		s.jobs = append(s.jobs, &job{
			rank: ranked(5, 10+i, fmt.Sprint("j", i)), node: -1, slots: rapid.IntRange(1, 4).Draw(rt, "asks"),
			arrives: rapid.IntRange(0, 12).Draw(rt, "arrives"), declared: declared, runs: runs,
		})
	}
	return s
}

// TestAPromiseIsKept: where no pod outlives its declared time, and none before the held unit comes, it starts no later
// than the first promise, and no promise moves back. Without a promise each schedule is played as well.
func TestAPromiseIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		started, promises := s.run(200)
		var last time.Time
		for now := range 201 {
			promise, ok := promises[now]
			if !ok {
				continue
			}
			if !last.IsZero() && promise.After(last) {
				rt.Fatalf("the promise %v became %v at %d", last, promise, now)
			}
			last = promise
		}
		if !last.IsZero() && (started < 0 || at(started).After(last)) {
			rt.Fatalf("promised %v, and it started at %d", last, started)
		}
	})
}

// TestBackfillIsAllThatThePromiseAllows: a pod that ends one second later than the start would delay it, in a schedule
// where each slot counts.
func TestBackfillIsAllThatThePromiseAllows(t *testing.T) {
	t.Parallel()
	for declared, starts := range map[int]bool{7: true, 8: true, 9: false, 0: false} {
		s := &schedule{
			rules: gang.HoldRules{Most: 1, Backfill: true}, slots: []int{2}, held: []int{2},
			rank: ranked(5, 1, "held"),
			jobs: []*job{
				{rank: ranked(5, 10, "runs"), node: -1, slots: 1, declared: 10, runs: 10},
				{
					rank: ranked(5, 11, "asks"), node: -1, slots: 1, arrives: 2, declared: declared,
					runs: max(declared, 1),
				},
			},
		}
		started, _ := s.run(50)
		if asks := s.jobs[1]; started != 10 || (asks.node >= 0) != starts {
			t.Errorf("of %d seconds: it was started: %t, want %t; the held unit started at %d, want 10", declared,
				asks.node >= 0, starts, started)
		}
	}
}

// TestWhatAHeldUnitLeavesIsFree: of four slots, two are in use until 10, and the held unit starts there then. What it
// does not ask for is free, however long another pod runs.
func TestWhatAHeldUnitLeavesIsFree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held, asks       int
		backfill, starts bool
	}{
		"it leaves enough":                {3, 1, true, true},
		"it leaves none":                  {4, 1, true, false},
		"it leaves one, and asked is two": {3, 2, true, false},
		"without backfill":                {3, 1, false, false},
	} {
		s := &schedule{
			rules: gang.HoldRules{Most: 1, Backfill: c.backfill}, slots: []int{4}, held: []int{c.held},
			rank: ranked(5, 1, "held"),
			jobs: []*job{
				{rank: ranked(5, 10, "runs"), node: -1, slots: 2, declared: 10, runs: 10},
				{rank: ranked(5, 11, "asks"), node: -1, slots: c.asks, arrives: 2, runs: 100},
			},
		}
		started, _ := s.run(50)
		if got := s.jobs[1].node >= 0; started != 10 || got != c.starts {
			t.Errorf("%s: it was started: %t, want %t; the held unit started at %d, want 10", name,
				got, c.starts, started)
		}
	}
}

// TestMomentsOfANode: the times at which the nominated pods of a node start, if all have one.
func TestMomentsOfANode(t *testing.T) {
	t.Parallel()
	holds := []gang.Hold{
		{
			Rank: ranked(5, 1, "late"), Start: at(20), Nodes: map[string]string{"l": "n"},
			Over: map[string][]string{"n": {"a", "b"}, "o": {"c"}},
		},
		{
			Rank: ranked(5, 2, "soon"), Start: at(10), Nodes: map[string]string{"s0": "n", "s1": "n"},
			Over: map[string][]string{"n": {"e"}},
		},
		{Rank: ranked(5, 3, "none"), Overtaken: true, Nodes: map[string]string{"o": "n"}},
	}
	soon, both := gang.Moment{Start: at(10), Pods: []string{"s1", "s0"}, Over: []string{"e"}},
		gang.Moment{Start: at(20), Pods: []string{"s1", "s0", "l"}, Over: []string{"a", "b", "e"}}
	yes, no := gang.HoldRules{Backfill: true}, gang.HoldRules{}
	for name, c := range map[string]struct {
		rules     gang.HoldRules
		unit      string
		nominated []string
		want      []gang.Moment
	}{
		"one after the other":      {yes, "x", []string{"l", "s1", "s0"}, []gang.Moment{soon, both}},
		"without backfill":         {no, "x", []string{"s1", "s0"}, nil},
		"one of the unit itself":   {yes, "soon", []string{"l", "s1"}, nil},
		"one without a promise":    {yes, "x", []string{"s1", "o"}, nil},
		"one that awaits victims":  {yes, "x", []string{"v", "s1"}, nil},
		"a node that no pod holds": {yes, "x", nil, nil},
		"the later one alone": {
			yes, "x", []string{"l"}, []gang.Moment{{Start: at(20), Pods: []string{"l"}, Over: []string{"a", "b"}}},
		},
	} {
		got, ok := c.rules.Moments(holds, c.unit, c.nominated)
		if !reflect.DeepEqual(got, c.want) || ok != (c.want != nil) {
			t.Errorf("%s: got %+v %t, want %+v", name, got, ok, c.want)
		}
	}
}

// TestPublishedHolds: those of pods are read until they are replaced, those of gangs while the gang keeps its nodes.
func TestPublishedHolds(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t, 2, gang.Failure{Outlook: gang.Reserved})
	holdFor := func(name string) gang.Hold { return gang.Hold{Rank: gang.Rank{Name: name}} }
	names := func() (names []string) {
		for _, h := range s.Holds() {
			names = append(names, h.Unit())
		}
		return names
	}
	s.PublishHolds([]gang.Hold{holdFor("pod/ns/p"), holdFor("ns/g"), holdFor("ns/gone"), holdFor("pod/g")})
	if got := fmt.Sprint(names()); got != "[pod/ns/p gang/ns/g]" {
		t.Errorf("held are %s", got)
	}
	s.Remove("b")
	if got := fmt.Sprint(names()); got != "[pod/ns/p]" {
		t.Errorf("the gang lacks a member, and held are %s", got)
	}
	if got := holdFor("pod/g").Unit(); got != "gang/pod/g" {
		t.Errorf("gang g of namespace pod is %s", got)
	}
}

// TestGangReservedSaysWhichRuleKeepsTheNodes.
func TestGangReservedSaysWhichRuleKeepsTheNodes(t *testing.T) {
	t.Parallel()
	r := gang.Refusal{Code: why.GangReserved, Gang: "ns/g", Have: 1, Need: 2}
	overtaken := r.String()
	r.Start = time.Unix(0, 0)
	for text, want := range map[string]string{
		overtaken:  "are kept for it: pods behind it have overtaken it as often as maxOvertakes allows",
		r.String(): "are kept for it until 1970-01-01T00:00:00Z, when it starts by the declared run times",
	} {
		if !strings.HasSuffix(text, want) {
			t.Errorf("%q, want it to end with %q", text, want)
		}
	}
}
