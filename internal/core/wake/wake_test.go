package wake_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/wake"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestWhichEventsCount(t *testing.T) {
	t.Parallel()
	for event, want := range map[wake.Event]bool{
		wake.Other: true, wake.PodCame: false, wake.PodBound: false, wake.PodChanged: true, wake.PodLeft: true,
		wake.MemberLeft: true,
	} {
		if got := event.Counts(); got != want {
			t.Errorf("event %d counts: %t, want %t", event, got, want)
		}
	}
}

func TestAfterAnEvent(t *testing.T) {
	t.Parallel()
	siblings, amounts := wake.Refusal{BySiblings: true}, wake.Refusal{ByAmounts: true}
	for name, c := range map[string]struct {
		wake.Refusal
		event wake.Event
		want  wake.Answer
	}{
		"nothing is known, and a node came":             {wake.Refusal{}, wake.Other, wake.Ask},
		"nothing is known, and a pod left":              {wake.Refusal{}, wake.PodLeft, wake.Ask},
		"it waits for siblings, and a node came":        {siblings, wake.Other, wake.Ask},
		"it waits for siblings, and a pod came":         {siblings, wake.PodCame, wake.Ask},
		"it waits for siblings, and a pod was bound":    {siblings, wake.PodBound, wake.Sleep},
		"it waits for siblings, and a pod changed":      {siblings, wake.PodChanged, wake.Sleep},
		"it waits for siblings, and a pod left":         {siblings, wake.PodLeft, wake.Sleep},
		"it waits for siblings, and a member left":      {siblings, wake.MemberLeft, wake.Sleep},
		"it lacks amounts, and a pod left":              {amounts, wake.PodLeft, wake.Compare},
		"it lacks amounts, and a member of a gang left": {amounts, wake.MemberLeft, wake.Ask},
		"it lacks amounts, and a pod asks for less":     {amounts, wake.PodChanged, wake.Ask},
		"it lacks amounts, and a pod was bound":         {amounts, wake.PodBound, wake.Ask},
		"it lacks amounts, and a node came":             {amounts, wake.Other, wake.Ask},
		"it waits for siblings on full nodes, and one left": {
			wake.Refusal{BySiblings: true, ByAmounts: true}, wake.PodLeft, wake.Sleep,
		},
	} {
		if got := c.After(c.event); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestRoomThatAPodLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		room wake.Room
		want wake.Answer
	}{
		"too little":                 {wake.Room{}, wake.Sleep},
		"enough":                     {wake.Room{Fits: true}, wake.Ask},
		"the pod is nominated to it": {wake.Room{Nominated: true}, wake.Ask},
		"the plugin cannot say":      {wake.Room{Unknown: true}, wake.Ask},
	} {
		if got := c.room.Answer(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// unit is pods that are evicted together, by the node of each: gangs have several.
type unit struct {
	priority, cpus int
	nodes          []int
}

// fits reports whether a pod fits on a node, or would once pods of lower priority are evicted, each with its unit.
func fits(capacity []int, units []unit, priority, cpus, node int) bool {
	free := capacity[node]
	for _, u := range units {
		for _, n := range u.nodes {
			if n == node && u.priority >= priority {
				free -= u.cpus
			}
		}
	}
	return free >= cpus
}

// TestNoPodThatFitsSleeps: in random clusters in which a pod fits nowhere, also not by preemption, a pod or a whole
// gang leaves. Where the refused pod fits then, it is asked about; and it sleeps where it does not, unless a gang left.
func TestNoPodThatFitsSleeps(t *testing.T) {
	t.Parallel()
	asleep, awake := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 100 {
			capacity := make([]int, 1+random.IntN(4))
			for i := range capacity {
				capacity[i] = 2 + random.IntN(6)
			}
			var units []unit
			for range 1 + random.IntN(6) {
				u := unit{priority: random.IntN(3), cpus: 1 + random.IntN(3)}
				for range 1 + random.IntN(2) {
					u.nodes = append(u.nodes, random.IntN(len(capacity)))
				}
				units = append(units, u)
			}
			priority, cpus := random.IntN(3), 1+random.IntN(6)
			anywhere := func(all []unit) (fit bool) {
				for node := range capacity {
					fit = fit || fits(capacity, all, priority, cpus, node)
				}
				return fit
			}
			if anywhere(units) {
				continue
			}
			event, gone := wake.PodLeft, units[0]
			if len(gone.nodes) > 1 {
				event = wake.MemberLeft
			}
			answer := wake.Refusal{ByAmounts: true}.After(event)
			if answer == wake.Compare {
				node := gone.nodes[0]
				answer = wake.Room{Fits: fits(capacity, units[1:], priority, cpus, node)}.Answer()
			}
			switch fit := anywhere(units[1:]); {
			case fit && answer == wake.Sleep:
				t.Fatalf("%+v left %v with %+v: a pod of priority %d with %d CPUs fits, and sleeps", gone, capacity,
					units[1:], priority, cpus)
			case !fit && answer != wake.Sleep && event == wake.PodLeft:
				t.Fatalf("%+v left %v: a pod that does not fit is asked about", gone, capacity)
			case fit:
				awake++
			default:
				asleep++
			}
		}
	})
	if awake < 100 || asleep < 100 {
		t.Errorf("%d fit and %d do not: the test proves little", awake, asleep)
	}
}
