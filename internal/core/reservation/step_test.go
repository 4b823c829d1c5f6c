package reservation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/reservation"
)

var early = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// refs names pods by their UIDs.
func refs(uids ...string) (all []reservation.Reference) {
	for _, uid := range uids {
		all = append(all, reservation.Reference{Namespace: "d", Name: uid, UID: uid})
	}
	return all
}

// named are pods as the API server has them: with a suffix, *b has a node, *e has ended as well.
func named(pods ...string) (all []reservation.Named) {
	for _, p := range pods {
		n := reservation.Named{Reference: refs(p[:1])[0]}
		n.HasNode, n.Ended = len(p) > 1, len(p) > 1 && p[1] == 'e'
		all = append(all, n)
	}
	return all
}

func TestStep(t *testing.T) {
	t.Parallel()
	const (
		pending   = reservation.Pending
		waiting   = reservation.Waiting
		available = reservation.Available
		succeeded = reservation.Succeeded
		failed    = reservation.Failed
	)
	hour := early.Add(time.Hour)
	late := early.Add(7 * time.Second)
	soon := early.Add(time.Second)
	type (
		state   = reservation.State
		world   = reservation.World
		status  = reservation.Status
		actions = reservation.Actions
	)
	once := func(phase reservation.Phase, owners ...string) state {
		return state{Phase: phase, Node: "n", Once: true, Owners: refs(owners...)}
	}
	expiring := func(s state, at time.Time) state {
		s.Expires = at
		return s
	}
	for name, c := range map[string]struct {
		state
		world
		status status
		do     actions
	}{
		"new": {state{}, world{}, status{Phase: pending}, actions{Write: true}},
		"new, and it will expire": {
			state{Expires: hour}, world{}, status{Phase: pending}, actions{Write: true, Again: hour},
		},
		"placed": {state{Phase: pending, Node: "n"}, world{}, status{Phase: available}, actions{Write: true}},
		"used by one of several": {
			state{Phase: available, Node: "n"},
			world{Users: refs("a")},
			status{Phase: available, Owners: refs("a")},
			actions{Write: true},
		},
		"no user is left of several": {
			state{Phase: available, Node: "n", Owners: refs("a")},
			world{},
			status{Phase: available},
			actions{Write: true},
		},
		"used by the one": {
			once(available, "a"),
			world{Users: refs("a")},
			status{Phase: succeeded, Owners: refs("a")},
			actions{Write: true, End: true},
		},
		"the announced pod is gone or elsewhere": {
			once(available, "a"),
			world{Announcement: reservation.Spent},
			status{Phase: succeeded, Owners: refs("a")},
			actions{Write: true},
		},
		"used before it expires": {
			expiring(once(available, "a"), early),
			world{Users: refs("a")},
			status{Phase: succeeded, Owners: refs("a")},
			actions{Write: true, End: true, Again: early},
		},
		"expires now": {
			state{Phase: available, Node: "n", Expires: early},
			world{},
			status{Phase: failed, Cause: "expired at 2026-01-02T03:04:05Z"},
			actions{Write: true, End: true, Again: early},
		},
		"expires in a nanosecond": {
			state{Phase: pending, Expires: early.Add(1)},
			world{},
			status{Phase: pending},
			actions{Write: true, Again: early.Add(1)},
		},
		"its node goes": {
			state{Phase: available, Node: "n"},
			world{NodeGone: true},
			status{Phase: failed, Cause: "node n was deleted"},
			actions{Write: true, End: true},
		},
		"another node goes before it has one": {
			state{Phase: pending}, world{NodeGone: true}, status{Phase: pending}, actions{Write: true},
		},

		"waits for pods that run": {
			once(waiting, "a", "b"),
			world{Users: refs("b"), Named: named("ab")},
			status{Phase: waiting, Owners: refs("a", "b")},
			actions{Write: true, Adopt: refs("a")},
		},
		"a pod that it waits for is not the one that uses it": {
			once(waiting, "a"),
			world{Users: refs("a"), Announcement: reservation.Spent},
			status{Phase: waiting, Owners: refs("a")},
			actions{Write: true},
		},
		"one of the pods that it waits for has ended": {
			once(waiting, "a", "b"),
			world{Named: named("ae", "bb")},
			status{Phase: waiting, Owners: refs("b")},
			actions{Write: true, Adopt: refs("b")},
		},
		"the pods that it waits for have ended or are gone": {
			once(waiting, "a", "b"), world{Named: named("ae")}, status{Phase: available}, actions{Write: true},
		},
		"it waits, and its node goes": {
			once(waiting, "a"),
			world{Users: refs("a"), NodeGone: true},
			status{Phase: failed, Cause: "node n was deleted", Owners: refs("a")},
			actions{Write: true, End: true},
		},
		"it waits, and expires": {
			expiring(once(waiting, "a"), early),
			world{Named: named("ab")},
			status{Phase: failed, Cause: "expired at 2026-01-02T03:04:05Z"},
			actions{Write: true, End: true, Again: early, Adopt: refs("a")},
		},

		"a pod is announced": {
			once(available, "a"), world{}, status{Phase: available, Owners: refs("a")}, actions{Write: true},
		},
		"void, while a Binding may arrive": {
			once(available, "a"),
			world{Announcement: reservation.Void, LateUntil: late},
			status{Phase: available, Owners: refs("a")},
			actions{Write: true, Again: late},
		},
		"void, while a Binding may arrive after it expires": {
			expiring(once(available, "a"), soon),
			world{Announcement: reservation.Void, LateUntil: late},
			status{Phase: available, Owners: refs("a")},
			actions{Write: true, Again: soon},
		},
		"void, and withdrawn": {
			once(available, "a"),
			world{Announcement: reservation.Void, Named: named("a"), LateUntil: early},
			status{Phase: available},
			actions{Write: true},
		},
		"void, and the pod has a node": {
			once(available, "a"),
			world{Announcement: reservation.Void, Named: named("ab")},
			status{Phase: available, Owners: refs("a")},
			actions{Write: true, Again: soon},
		},
		"void, and the pod is gone": {
			once(available, "a"),
			world{Announcement: reservation.Void},
			status{Phase: available, Owners: refs("a")},
			actions{Write: true, Again: soon},
		},

		"it ended, and is kept for ever": {state{Phase: failed, Ended: early}, world{}, status{}, actions{}},
		"it ended a moment ago": {
			state{Phase: succeeded, Ended: early}, world{KeepEnded: time.Hour}, status{}, actions{Again: hour},
		},
		"it ended long ago": {
			state{Phase: failed, Ended: early.Add(-time.Hour)},
			world{KeepEnded: time.Hour},
			status{},
			actions{Delete: true},
		},

		"of a running pod": {state{Running: true, Node: "n", Once: true}, world{}, status{}, actions{}},
		"of a running pod, announced": {
			state{Running: true, Owners: refs("a")}, world{Announcement: reservation.Spent}, status{}, actions{},
		},
		"of a running pod, void": {
			state{Running: true, Owners: refs("a")},
			world{Announcement: reservation.Void, Named: named("a")},
			status{},
			actions{Withdraw: true},
		},
		"of a running pod, void, while a Binding may arrive": {
			state{Running: true, Owners: refs("a")},
			world{Announcement: reservation.Void, LateUntil: late},
			status{},
			actions{Again: late},
		},
	} {
		c.Now = early
		got, do := reservation.Step(&c.state, &c.world)
		if diff := cmp.Diff([]any{c.status, c.do}, []any{got, do}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !c.NeedsNamed(&c.world) {
			c.Named = nil
			again, also := reservation.Step(&c.state, &c.world)
			if cmp.Diff([]any{got, do}, []any{again, also}) != "" {
				t.Errorf("%s: depends on the pods that it names, which are not read", name)
			}
		}
	}
}

func TestWhenNamedPodsAreRead(t *testing.T) {
	t.Parallel()
	once := reservation.State{Once: true}
	void := reservation.World{Announcement: reservation.Void}
	for name, c := range map[string]struct {
		state reservation.State
		world reservation.World
		want  bool
	}{
		"waiting":           {reservation.State{Phase: reservation.Waiting}, reservation.World{}, true},
		"void":              {once, void, true},
		"void, for several": {reservation.State{}, void, false},
		"void, and too soon": {
			once, reservation.World{Announcement: reservation.Void, LateUntil: early.Add(1)}, false,
		},
		"void, with a user": {
			once, reservation.World{Announcement: reservation.Void, Users: refs("a")}, false,
		},
		"void, and it ended":     {reservation.State{Once: true, Phase: reservation.Failed}, void, false},
		"void, of a running pod": {reservation.State{Running: true}, void, true},
		"announced":              {once, reservation.World{}, false},
	} {
		c.world.Now = early
		if got := c.state.NeedsNamed(&c.world); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestACourseOfSteps: over random courses, a reservation that has ended never changes, it expires in time, no pod that
// is gone is waited for, no announcement is withdrawn while its pod may be bound, and a step that is repeated writes
// the same.
func TestACourseOfSteps(t *testing.T) {
	t.Parallel()
	ends, withdrawn := map[reservation.Phase]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 30 {
			s := reservation.State{Once: random.IntN(2) == 0}
			if random.IntN(2) == 0 {
				s.Expires = early.Add(time.Duration(5+random.IntN(20)) * time.Second)
			}
			for second := range 30 {
				w := drawStepWorld(random, &s, early.Add(time.Duration(second)*time.Second))
				if checkReservation(t, &s, w) {
					withdrawn++
				}
				if s.Phase.IsFinal() && s.Ended.Equal(w.Now) {
					ends[s.Phase]++
				}
			}
		}
	})
	if !testing.Short() && (ends[reservation.Failed] < 100 || ends[reservation.Succeeded] < 100 || withdrawn < 100) {
		t.Errorf("%v ended, %d announcements were withdrawn: the test proves little", ends, withdrawn)
	}
}

// drawStepWorld lets others change a reservation, and returns what a step sees.
func drawStepWorld(random *rand.Rand, s *reservation.State, now time.Time) *reservation.World {
	w := &reservation.World{
		Now: now, NodeGone: random.IntN(20) == 0, KeepEnded: time.Duration(random.IntN(8)) * time.Second,
		LateUntil: early.Add(time.Duration(random.IntN(10)) * time.Second),
	}
	switch {
	case s.Node == "" && !s.Phase.IsFinal() && random.IntN(3) == 0:
		if s.Node, s.Phase = "n", reservation.Available; random.IntN(2) == 0 {
			s.Phase, s.Owners = reservation.Waiting, refs("a", "b")
		}
	case s.Phase == reservation.Available && s.Once && len(s.Owners) == 0 && random.IntN(3) == 0:
		s.Owners = refs("c")
	}
	for _, o := range s.Owners {
		switch random.IntN(5) {
		case 0:
			w.Named = append(w.Named, reservation.Named{Reference: o, HasNode: true, Ended: true})
		case 1:
			w.Named = append(w.Named, reservation.Named{Reference: o, HasNode: true})
		case 2:
			w.Named = append(w.Named, reservation.Named{Reference: o})
		case 3:
			if s.Phase == reservation.Waiting || random.IntN(3) == 0 {
				w.Users = append(w.Users, o)
			}
		}
	}
	if s.Once && len(s.Owners) > 0 && s.Phase != reservation.Waiting && len(w.Users) == 0 {
		all := []reservation.Announcement{0, reservation.Void, reservation.Void, reservation.Spent}
		w.Announcement = all[random.IntN(len(all))]
	}
	return w
}

// checkReservation takes a step, and reports whether an announcement was withdrawn.
func checkReservation(t *rapid.T, s *reservation.State, w *reservation.World) (withdrawn bool) {
	was := *s
	status, do := reservation.Step(s, w)
	fail := func(what string) {
		t.Fatalf("%s: %+v in %+v becomes %+v, %+v", what, was, w, status, do)
	}
	if was.Phase.IsFinal() {
		over := w.KeepEnded > 0 && !w.Now.Before(was.Ended.Add(w.KeepEnded))
		if do.Write || do.End || len(do.Adopt) > 0 || do.Delete != over {
			fail("it had ended")
		}
		return false
	}
	if do.End && !status.Phase.IsFinal() || do.Withdraw || do.Delete || !do.Write {
		fail("it goes on")
	}
	if !was.Expires.IsZero() && !w.Now.Before(was.Expires) && !status.Phase.IsFinal() {
		fail("it does not expire")
	}
	if !status.Phase.IsFinal() && !was.Expires.IsZero() && (do.Again.IsZero() || do.Again.After(was.Expires)) {
		fail("it is not looked at when it expires")
	}
	exists := func(uid string) bool {
		return slices.ContainsFunc(w.Named, func(n reservation.Named) bool { return n.UID == uid && !n.Ended }) ||
			slices.ContainsFunc(w.Users, func(u reservation.Reference) bool { return u.UID == uid })
	}
	for _, o := range status.Owners {
		if status.Phase == reservation.Waiting && !exists(o.UID) {
			fail(fmt.Sprintf("it waits for %s", o.UID))
		}
	}
	if was.Phase == reservation.Waiting && status.Phase == reservation.Available &&
		slices.ContainsFunc(was.Owners, func(o reservation.Reference) bool { return exists(o.UID) }) {
		fail("it is available while pods run on its room")
	}
	withdrawn = w.Announcement == reservation.Void && was.Phase != reservation.Waiting && len(status.Owners) == 0
	for _, o := range was.Owners {
		bound := !slices.ContainsFunc(w.Named, func(n reservation.Named) bool { return n.UID == o.UID && !n.HasNode })
		if withdrawn && (bound || w.Now.Before(w.LateUntil)) {
			fail("the announcement is withdrawn")
		}
	}
	s.Phase, s.Owners = status.Phase, status.Owners
	if s.Phase.IsFinal() {
		s.Ended = w.Now
	} else if again, also := reservation.Step(s, w); was.Phase != reservation.Waiting && !withdrawn &&
		(cmp.Diff(status, again) != "" || also.End != do.End) {
		fail(fmt.Sprintf("and then %+v, %+v", again, also))
	}
	return withdrawn
}
