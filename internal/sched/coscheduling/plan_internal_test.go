package coscheduling

import (
	"context"
	"errors"
	"strings"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAPlanWithTheLastAlternativesFollowsOneThatFails where a member has alternatives: one plan with the first ones
// comes before it, and where both fail, the first one says why.
func TestAPlanWithTheLastAlternativesFollowsOneThatFails(t *testing.T) {
	t.Parallel()
	isLater := whatIsWritten(claims.LaterFirst).key
	for name, c := range map[string]struct {
		claim string // of b; a has none
		// unfit are those that do not fit, a and b with the first alternatives, a' and b' with the last ones.
		unfit string
		tried string // in this order
		fails string // is the one that the failure names
		later bool   // the plan that fits has the last alternatives
	}{
		"the first alternatives fit": {claim: "two", tried: "a b"},
		"the last alternatives fit":  {claim: "two", unfit: "b", tried: "a b a' b'", later: true},
		"none fits":                  {claim: "two", unfit: "b a'", tried: "a b a'", fails: "b"},
		"one alternative":            {claim: "one", unfit: "b", tried: "a b", fails: "b"},
		"no claim":                   {unfit: "b", tried: "a b", fails: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tried []string
			p := &oneProfile{claims: openClaims{alternatives: map[string]int{"one": 1, "two": 2}}}
			ev := evictionsIn(p, func(_ context.Context, _ framework.Framework, cs fwk.CycleState,
				pod *framework.QueuedPodInfo,
			) (loop.Result, error) {
				try := pod.Pod.Name
				if _, err := cs.Read(isLater); err == nil {
					try += "'"
				}
				tried = append(tried, try)
				for unfit := range strings.FieldsSeq(c.unfit) {
					if unfit == try {
						return loop.Result{}, errors.New(try)
					}
				}
				return loop.Result{SuggestedHost: "n0"}, nil
			})
			a, b := object.Pod("a", object.Gang("g", "2")), object.Pod("b", object.Gang("g", "2"), using(c.claim))
			m := queued(t, a, b)
			ev.cluster.Gangs.PutPod(a)
			ev.cluster.Gangs.PutPod(b)
			m.plan, _, _ = ev.cluster.Gangs.Begin(a)
			m.laterFirst = true // as after a plan in another domain
			o, fits := ev.planner.planMembers(t.Context(), m, nil)
			if got := strings.Join(tried, " "); got != c.tried {
				t.Errorf("tried %s, want %s", got, c.tried)
			}
			if fits != (c.fails == "") || m.laterFirst != c.later || o.failure.UID != c.fails {
				t.Errorf("it fits: %t, with the last alternatives: %t, the failure names %q, want %+v", fits,
					m.laterFirst, o.failure.UID, c)
			}
			if !fits && (o.cause == nil || o.cause.Error() != c.fails || o.failure.Cause.Detail != c.fails) {
				t.Errorf("the cause is %v, named as %q, want that of %s", o.cause, o.failure.Cause.Detail, c.fails)
			}
		})
	}
}

// TestAMembersOwnCycleHasTheAlternativesOfThePlan: later ones come first where they did in the plan, and nowhere else.
func TestAMembersOwnCycleHasTheAlternativesOfThePlan(t *testing.T) {
	t.Parallel()
	isLater := whatIsWritten(claims.LaterFirst).key
	for _, later := range []bool{false, true} {
		pod := object.Pod("a", object.Gang("g", "1"), using("two"))
		p := &oneProfile{claims: openClaims{alternatives: map[string]int{"two": 2}}}
		r := NewRounds(*evictionsIn(p, nil).cluster)
		m, uid := queued(t, pod), string(pod.UID)
		m.plan, m.laterFirst = &gang.Plan{}, later
		r.current = &groupRound{members: m, pending: map[string]bool{uid: true}}
		r.current.planned = map[string]loop.Result{uid: {SuggestedHost: "n0"}}
		var had bool
		cycle := r.Schedule(func(_ context.Context, _ framework.Framework, cs fwk.CycleState,
			_ *framework.QueuedPodInfo,
		) (loop.Result, error) {
			_, err := cs.Read(isLater)
			had = err == nil
			return loop.Result{SuggestedHost: "n0"}, nil
		})
		if _, err := cycle(t.Context(), p, framework.NewCycleState(), m.pods[uid]); err != nil || had != later {
			t.Errorf("later alternatives come first: %t, want %t; error %v", had, later, err)
		}
	}
}
