package gang_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// waiting is a State with a gang of two of priority 1 whose plan has failed, and one of its members.
func waiting(t *testing.T, maxOvertakes int, f gang.Failure) (s *gang.State, uid string) {
	t.Helper()
	s = gang.New(gang.Settings{})
	s.LimitOvertakes(maxOvertakes)
	for _, uid := range []string{"a", "b"} {
		s.Put(gang.Pod{
			UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 2}, Priority: 1,
			Created: time.Unix(10, 0),
		})
	}
	plan, _ := s.Begin("a")
	f.UID = "b"
	s.Conclude(plan.Members, nil, f, time.Unix(20, 0))
	return s, "a"
}

// TestTheCauseOfAFailedPlanMayBeDescribedLater: of the member that the plan names, and of no other pod.
func TestTheCauseOfAFailedPlanMayBeDescribedLater(t *testing.T) {
	t.Parallel()
	first := why.Finding{Reason: why.Reason{Code: why.TaintToleration}}
	whole := why.Finding{Reason: why.Reason{Code: why.InsufficientCPU}, Detail: "of all filters"}
	for uid, want := range map[string]why.Finding{"b": whole, "a": first, "unknown": first} {
		s, other := waiting(t, 2, gang.Failure{Cause: first})
		s.Describe(uid, whole)
		if got := s.Why(other); got.Cause != want || got.Pod != "ns/b" {
			t.Errorf("%s is described: the others name %s for %v, want %v", uid, got.Pod, got.Cause, want)
		}
	}
}

// TestAllMembersOfAGangThatLacksRoomAreUnschedulable: an autoscaler that saw only the member that does not fit would
// put it where the others need room. Behind a member that no node helps, the others wait for the gang.
func TestAllMembersOfAGangThatLacksRoomAreUnschedulable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code, cause why.Code
		want        string
	}{
		"a sibling lacks room":           {why.GangSiblingFailed, why.InsufficientCPU, "Unschedulable"},
		"the time is over, no room":      {why.GangTimeout, why.InsufficientMemory, "Unschedulable"},
		"a sibling's quota is exceeded":  {why.GangSiblingFailed, why.QuotaExceeded, "WaitingForGang"},
		"a sibling is held by a gate":    {why.GangSiblingFailed, why.SchedulingGate, "WaitingForGang"},
		"a sibling's request is invalid": {why.GangReserved, why.BadAnnotation, "WaitingForGang"},
		"members are missing":            {why.GangNotReady, why.None, "WaitingForGang"},
		"the gang's setting is invalid":  {why.BadAnnotation, why.None, "BadRequest"},
		"pods are evicted":               {why.GangPreempting, why.None, "Unschedulable"},
	} {
		r := gang.Refusal{Code: c.code, Cause: why.Finding{Reason: why.Reason{Code: c.cause}}}
		if got := r.Condition(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestNodesAreKeptForMembers: of the gang, and for no pod that is not known.
func TestNodesAreKeptForMembers(t *testing.T) {
	t.Parallel()
	for outlook, want := range map[gang.Outlook]bool{gang.Short: false, gang.Reserved: true, gang.Promised: true} {
		s, uid := waiting(t, 2, gang.Failure{Outlook: outlook})
		if got := s.IsReserved(uid); got != want || s.IsReserved("unknown") {
			t.Errorf("%v: nodes are kept: %t, for an unknown pod: %t", outlook, got, s.IsReserved("unknown"))
		}
	}
}

func TestWhoOvertakesAGang(t *testing.T) {
	t.Parallel()
	plain := func(priority int32, created int64, name string) gang.Rank {
		return gang.New(gang.Settings{}).RankOf("", priority, time.Unix(created, 0), name)
	}
	for name, c := range map[string]struct {
		rank gang.Rank
		want bool
	}{
		"a lower priority":                       {plain(0, 5, "ns/p"), true},
		"a higher one":                           {plain(2, 15, "ns/p"), false},
		"younger":                                {plain(1, 11, "ns/p"), true},
		"older":                                  {plain(1, 9, "ns/p"), false},
		"of the same age, and behind it by name": {plain(1, 10, "ns/a"), true},
		"of the same age, and before it by name": {
			gang.Rank{Priority: 1, Turn: gang.Turn{Created: time.Unix(10, 0)}, Name: "ns/a"}, false,
		},
		"a gang that lacks some of its minimum": {
			gang.Rank{Priority: 1, Turn: gang.Turn{Degraded: true, Created: time.Unix(15, 0)}, Name: "ns/x"}, false,
		},
	} {
		s, uid := waiting(t, 2, gang.Failure{Outlook: gang.Short})
		first, second := s.Overtake(c.rank), s.Overtake(c.rank)
		if got := s.Overtaken(uid, false); got != c.want || len(first.Opened) > 0 ||
			slices.Equal(second.Opened, []string{"ns/g"}) != c.want {
			t.Errorf("%s: overtaken %t, opened %v and %v, want %t", name, got, first.Opened, second.Opened, c.want)
		}
		if own := s.RankOf(uid, 9, time.Unix(99, 0), "ns/a"); own.Before(c.rank) != c.want ||
			c.rank.Before(own) == c.want {
			t.Errorf("%s: %+v is before %+v: %t", name, own, c.rank, own.Before(c.rank))
		}
	}
}

func TestWhatAFailedPlanMakesOfAReservation(t *testing.T) {
	t.Parallel()
	behind := gang.Rank{Name: "ns/p"}
	for name, c := range map[string]struct {
		most int
		f    gang.Failure
		code why.Code
		due  bool // after two overtakes
	}{
		"too little room":                  {2, gang.Failure{Outlook: gang.Short}, why.GangSiblingFailed, true},
		"another reason":                   {2, gang.Failure{}, why.GangSiblingFailed, false},
		"others are evicted for it":        {2, gang.Failure{Preempts: true}, why.GangPreempting, false},
		"it does not fit in any case":      {2, gang.Failure{Outlook: gang.Hopeless}, why.GangSiblingFailed, false},
		"nodes are kept":                   {2, gang.Failure{Outlook: gang.Reserved}, why.GangReserved, true},
		"no gang is to have a reservation": {0, gang.Failure{Outlook: gang.Short}, why.GangSiblingFailed, false},
	} {
		s, uid := waiting(t, c.most, c.f)
		if now := s.Overtaken(uid, true); now != (c.code == why.GangReserved) {
			t.Errorf("%s: after the first failure it is to have a reservation: %t", name, now)
		}
		s.Overtake(behind)
		s.Overtake(behind)
		if s.Overtaken(uid, false) != c.due || s.Overtaken(uid, true) != c.due || s.Why(uid).Code != c.code ||
			s.Reserves("ns/g") != (c.code == why.GangReserved) {
			t.Errorf("%s: overtaken %t, reserves %t, waits by %v", name, s.Overtaken(uid, false), s.Reserves("ns/g"),
				s.Why(uid).Code)
		}
		s.Remove("b")
		if s.Overtaken(uid, false) || s.Reserves("ns/g") {
			t.Errorf("%s: it lacks a member, and nodes are kept or to be kept for it", name)
		}
	}
	for name, before := range map[string]gang.Outlook{"it lacks room": gang.Short, "nodes are kept": gang.Reserved} {
		s, uid := waiting(t, 1, gang.Failure{Outlook: before})
		s.Overtake(behind)
		code := s.Why(uid).Code
		plan, _ := s.Begin(uid)
		s.Conclude(plan.Members, nil, gang.Failure{UID: "b", Outlook: gang.Short, Skip: gang.Portion{Choices: 9}},
			time.Unix(30, 0))
		if !s.Overtaken(uid, false) || s.Reserves("ns/g") != (before == gang.Reserved) || s.Why(uid).Code != code {
			t.Errorf("%s, and a portion of its plan has failed: overtaken %t, reserves %t, waits by %v", name,
				s.Overtaken(uid, false), s.Reserves("ns/g"), s.Why(uid).Code)
		}
	}
	fresh := gang.New(gang.Settings{})
	fresh.LimitOvertakes(2)
	fresh.Put(gang.Pod{UID: "a", Gang: "ns/g"})
	if !fresh.Overtaken("a", true) || fresh.Overtaken("a", false) {
		t.Error("no plan has failed since the start: who is nominated was so by a scheduler before, and no other")
	}
}

// TestTheRestOfAnInterruptedGangPrecedesOlderGangs in the queue, so it does where nodes are kept for one of these: what
// is kept yields to it.
func TestTheRestOfAnInterruptedGangPrecedesOlderGangs(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	for i, p := range []gang.Pod{{Gang: "ns/old"}, {Gang: "ns/old"}, {Gang: "ns/new", Node: "n"}, {Gang: "ns/new"}} {
		p.UID, p.Settings, p.Created = fmt.Sprint(i), gang.Settings{Min: 2}, time.Unix(int64(i), 0)
		if p.Node != "" {
			p.Bound = time.Unix(9, 0)
		}
		s.Put(p)
	}
	rank := func(uid string) gang.Rank { return s.RankOf(uid, 0, time.Time{}, "") }
	if old, rest := rank("0"), rank("3"); s.IsOpen("3") || !rest.Before(old) || old.Before(rest) {
		t.Errorf("the rest of an interrupted gang has the rank %+v, not before %+v", rest, old)
	}
	if old, rest := s.Turn("0", time.Time{}), s.Turn("3", time.Time{}); rest.Compare(old) >= 0 {
		t.Errorf("the rest of an interrupted gang has the turn %+v, not before %+v", rest, old)
	}
}

// TestAStartedGangOvertakesTheOnesBeforeIt that lack room: nodes are kept for these then, so they are tried again.
// Members of a NonStrict gang overtake one by one, when they are bound.
func TestAStartedGangOvertakesTheOnesBeforeIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   gang.Mode
		opened []string
	}{{gang.Strict, []string{"ns/h", "ns/g"}}, {gang.NonStrict, nil}} {
		s, waits := waiting(t, 1, gang.Failure{Outlook: gang.Short})
		for _, uid := range []string{"x", "y", "z"} {
			s.Put(gang.Pod{
				UID: uid, Namespace: "ns", Name: uid, Gang: "ns/h", Settings: gang.Settings{Min: 2, Mode: c.mode},
				Created: time.Unix(30, 0),
			})
		}
		s.Begin("x")
		tried, placed := []string{"x", "y", "z"}, []string{"x", "y"}
		opened := s.Conclude(tried, placed, gang.Failure{UID: "z"}, time.Unix(40, 0)).Opened
		slices.Sort(opened)
		slices.Sort(c.opened)
		if !slices.Equal(opened, c.opened) || s.Overtaken(waits, false) != (c.mode == gang.Strict) {
			t.Errorf("mode %v opens %v, want %v; nodes are kept for the gang before it: %t", c.mode, opened, c.opened,
				s.Overtaken(waits, false))
		}
	}
}

// TestARankNamesWhatStarts: a pod that starts alone, also where its gang has started or its PodGroup makes no gang, or
// the gangs. Gangs of a namespace "pod" remain gangs.
func TestARankNamesWhatStarts(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	s.PutObject(gang.Object{Gang: "ns/plain", Plain: true})
	for i, p := range []gang.Pod{
		{UID: "runs", Gang: "ns/started", Node: "n", Bound: time.Unix(9, 0)},
		{UID: "more", Gang: "ns/started"},
		{UID: "none", Gang: "ns/plain"},
		{UID: "waits", Gang: "ns/g"},
		{UID: "in pod", Gang: "pod/g"},
		{UID: "joint", Gang: "pod/x"},
		{UID: "other", Gang: "pod/y"},
	} {
		p.Settings = gang.Settings{Min: 1, Policy: gang.OnceSatisfied}
		if p.Gang == "pod/x" || p.Gang == "pod/y" {
			p.Settings.Group = []string{"pod/x", "pod/y"}
		}
		p.Created = time.Unix(int64(i), 0)
		s.Put(p)
	}
	for uid, want := range map[string]string{
		"unknown": "pod/ns/p", "none": "pod/ns/p", "more": "pod/ns/p", "waits": "gang/ns/g", "in pod": "gang/pod/g",
		"joint": "gang/pod/x,pod/y",
	} {
		if got := s.RankOf(uid, 0, time.Unix(1, 0), "ns/p").Unit(); got != want {
			t.Errorf("%s: the rank names %s, want %s", uid, got, want)
		}
	}
}
