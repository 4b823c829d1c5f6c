package reservation_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/reservation"
)

func TestTheOrderOfRunningPodsToTakeOver(t *testing.T) {
	t.Parallel()
	app := reservation.Owner{Selector: labelled("app", "a")}
	spec := &reservation.Spec{Owners: []reservation.Owner{app}, Allocatable: amount.List{"cpu": 4, "memory": 8}}
	pod := func(name, label string, priority, cpu, memory int64) reservation.Occupant {
		return reservation.Occupant{Pod: &reservation.Pod{
			UID: name, Namespace: "ns", Name: name, Labels: map[string]string{"app": label},
			Request: amount.List{"cpu": cpu, "memory": memory},
		}, Priority: priority}
	}
	a := reservation.NewAccount()
	a.Record("used", "other", nil)
	pods := []reservation.Occupant{
		pod("last", "a", -1, 4, 8), pod("small", "a", 0, 1, 1), pod("foreign", "b", 9, 4, 8), pod("used", "a", 9, 4, 8),
		pod("covers", "a", 0, 8, 8), pod("half", "a", 0, 2, 8), pod("equal", "a", 0, 4, 8), pod("first", "a", 1, 1, 1),
	}
	pods[2].Offered, pods[3].Offered, pods[6].Offered = true, true, true
	offered := *spec
	offered.FromOffered = true
	want := []string{"first", "covers", "equal", "half", "small", "last"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		given := slices.Clone(pods)
		names := func(s *reservation.Spec) (got []string) {
			for _, o := range a.Occupants(s, pods) {
				got = append(got, o.Name)
			}
			return got
		}
		if diff := cmp.Diff(want, names(spec)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"foreign", "equal"}, names(&offered)); diff != "" {
			t.Fatalf("pods that are offered to any owner (-want +got):\n%s", diff)
		}
		if !slices.Equal(given, pods) {
			t.Fatal("the pods that were given have another order now")
		}
	}
}

// TestAWaitingReservationKeepsWhatRunningPodsLeave: also one for one pod, and no further pod uses it.
func TestAWaitingReservationKeepsWhatRunningPodsLeave(t *testing.T) {
	t.Parallel()
	a := reservation.NewAccount()
	spec := reservation.Spec{
		UID: "r", Node: "n", Once: true, Waiting: true, Allocatable: amount.List{"cpu": 4},
		Owners: []reservation.Owner{{Selector: labelled("app", "a")}},
	}
	a.Put(&spec)
	next := &reservation.Pod{UID: "next", Labels: map[string]string{"app": "a"}}
	a.Record("old", "r", amount.List{"cpu": 3})
	if left := a.Left("r")["cpu"]; left != 1 || len(a.Matching(next)) > 0 || a.Use("next", "r", nil) == nil {
		t.Errorf("%d CPUs are left, want 1; matches %v", left, a.Matching(next))
	}
	a.Release("old")
	if left := a.Left("r")["cpu"]; left != 4 || a.Use("next", "r", nil) == nil {
		t.Errorf("the pod has ended: %d CPUs are left, want 4, for no pod before the phase says so", left)
	}
	available := spec
	available.Waiting = false
	if a.Put(&available); len(a.Matching(next)) != 1 || a.Use("next", "r", nil) != nil {
		t.Error("an owner cannot use the reservation that has become available")
	}
}
