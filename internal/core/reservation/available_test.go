package reservation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/reservation"
)

// TestAReservationHasNoMoreLeftThanItsNode: two Reservations, the older of 4 CPUs and 8 of memory and the younger of
// 2 CPUs and a GPU, beside what the pods of the node leave.
func TestAReservationHasNoMoreLeftThanItsNode(t *testing.T) {
	t.Parallel()
	type amounts = amount.List
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	none := func(_, _ *reservation.Spec) {}
	for name, c := range map[string]struct {
		change     func(old, young *reservation.Spec)
		uses       int64 // CPUs that a pod uses of the older one
		free       amounts
		old, young amounts
	}{
		"the node has all": {
			none, 0, amounts{"cpu": 6, "memory": 8}, amounts{"cpu": 4, "memory": 8}, amounts{"cpu": 2, "gpu": 1},
		},
		"the younger one lacks room first": {
			none, 0, amounts{"cpu": 5, "memory": 8}, amounts{"cpu": 4, "memory": 8}, amounts{"cpu": 1, "gpu": 1},
		},
		"then the older one": {
			none, 0, amounts{"cpu": 3, "memory": 7}, amounts{"cpu": 3, "memory": 7}, amounts{"gpu": 1},
		},
		"pods request more than the node has": {
			none, 0, amounts{"cpu": -1, "memory": 8}, amounts{"memory": 8}, amounts{"gpu": 1},
		},
		"the node is not known": {none, 0, nil, amounts{"cpu": 4, "memory": 8}, amounts{"cpu": 2, "gpu": 1}},
		"a pod uses a part": {
			none, 3, amounts{"cpu": 2, "memory": 8}, amounts{"cpu": 1, "memory": 8}, amounts{"cpu": 1, "gpu": 1},
		},
		"one of equal age, by name": {
			func(old, young *reservation.Spec) { young.Created = old.Created }, 0,
			amounts{"cpu": 5, "memory": 8},
			amounts{"cpu": 4, "memory": 8},
			amounts{"cpu": 1, "gpu": 1},
		},
		"the older one is on another node": {
			func(old, _ *reservation.Spec) { old.Node = "m" }, 0,
			amounts{"cpu": 2},
			amounts{"cpu": 2, "memory": 8},
			amounts{"cpu": 2, "gpu": 1},
		},
		"a pod runs in the older one": {
			func(old, _ *reservation.Spec) { old.Running = true }, 0,
			amounts{"cpu": 1},
			amounts{"cpu": 4, "memory": 8},
			amounts{"cpu": 1, "gpu": 1},
		},
		"a device": {
			func(_, young *reservation.Spec) { young.Allocatable = amounts{device.GPUPercent: 50} }, 0,
			amounts{device.GPUPercent: 10},
			amounts{"cpu": 4, "memory": 8},
			amounts{device.GPUPercent: 50},
		},
	} {
		old := reservation.Spec{
			UID: "o", Name: "a", Node: "n", Created: day(1), Allocatable: amounts{"cpu": 4, "memory": 8},
		}
		young := reservation.Spec{
			UID: "y", Name: "b", Node: "n", Created: day(2), Allocatable: amounts{"cpu": 2, "gpu": 1},
		}
		c.change(&old, &young)
		a := reservation.NewAccount()
		a.Put(&young)
		a.Put(&old)
		if c.uses > 0 {
			a.Record("p", "o", amounts{"cpu": c.uses})
		}
		for _, a := range []*reservation.Account{a, a.Clone()} {
			got := []amounts{a.Available("o", c.free), a.Available("y", c.free)}
			if diff := cmp.Diff([]amounts{c.old, c.young}, got); diff != "" {
				t.Errorf("%s: available (-want +got):\n%s", name, diff)
			}
		}
	}
	if got := reservation.NewAccount().Available("x", amounts{"cpu": 1}); len(got) > 0 {
		t.Errorf("a Reservation that is not known has %v", got)
	}
}

// TestTheRoomOfANodeIsGivenToItsReservationsOneByOne compares with a node that gives its free CPUs away one by one,
// each to the oldest Reservation that lacks one.
func TestTheRoomOfANodeIsGivenToItsReservationsOneByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := drawn(t)
		a, kept := reservation.NewAccount(), make([]int64, random.IntN(5))
		for i := range kept {
			kept[i] = random.Int64N(4)
		}
		for _, i := range random.Perm(len(kept)) {
			a.Put(&reservation.Spec{
				UID: fmt.Sprint(i), Node: "n", Created: time.Unix(int64(i), 0),
				Allocatable: amount.List{"cpu": kept[i]},
			})
		}
		free := random.Int64N(14) - 2
		want := make([]int64, len(kept))
		for range max(free, 0) {
			for i := range want {
				if want[i] < kept[i] {
					want[i]++
					break
				}
			}
		}
		for i := range kept {
			if got := a.Available(fmt.Sprint(i), amount.List{"cpu": free})["cpu"]; got != want[i] {
				t.Fatalf("%d of %v has %d, want %d: %d are free", i, kept, got, want[i], free)
			}
		}
	})
}
