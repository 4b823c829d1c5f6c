package move_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/move"
)

// evictedAt is the status of a job whose pod was evicted some seconds after the start.
func evictedAt(seconds int) move.Status {
	return move.Status{Phase: move.Running, Conditions: []move.Condition{{
		Type: move.Eviction, Reason: move.EvictComplete, True: true,
		Probed: start.Add(time.Duration(seconds) * time.Second),
	}}}
}

func newPod(uid, node string, created int) *move.User {
	return &move.User{
		Pod:     move.Pod{Reference: move.Reference{Namespace: "a", Name: uid, UID: uid}, Node: node},
		Created: start.Add(time.Duration(created) * time.Second),
	}
}

// TestWhenRoomsOfOthersMatter has a case for each condition.
func TestWhenRoomsOfOthersMatter(t *testing.T) {
	t.Parallel()
	old := &move.Pod{Reference: move.Reference{UID: "old"}, Node: source}
	gone, asked, renamed := *old, *old, *old
	gone.Terminating, asked.Asked, renamed.UID = true, true, "other"
	used := move.Place{Used: true}
	for name, c := range map[string]struct {
		pod       *move.Pod
		place     move.Place
		successor *move.Pod
		status    move.Status
		source    string
		want      bool
	}{
		"evicted, and the room is empty":           {status: evictedAt(1), source: source, want: true},
		"the pod is being deleted":                 {pod: &gone, status: evictedAt(1), source: source, want: true},
		"another program is asked to delete it":    {pod: &asked, status: evictedAt(1), source: source, want: true},
		"another pod has its name":                 {pod: &renamed, status: evictedAt(1), source: source, want: true},
		"the pod still runs":                       {pod: old, status: evictedAt(1), source: source},
		"it has its successor":                     {successor: old, status: evictedAt(1), source: source},
		"another client has deleted the pod":       {source: source},
		"evicted, and the room is used":            {place: used, status: evictedAt(1), source: source},
		"the room is used before the eviction":     {pod: old, place: used, source: source, want: true},
		"the room of a pending pod is used":        {pod: old, place: used},
		"the room is free, and the pod still runs": {pod: old, source: source},
	} {
		w := &move.World{Pod: c.pod, Place: &c.place, Successor: c.successor}
		j := &move.Job{PodUID: "old", Source: c.source, Status: c.status}
		if got := w.NeedsNeighbors(j); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestExchangeOfNeighbors is about job a, whose pod left n0, and job b.
func TestExchangeOfNeighbors(t *testing.T) {
	t.Parallel()
	ended := evictedAt(2)
	ended.Phase, ended.Pod = move.Succeeded, move.Reference{Namespace: "a", Name: "x", UID: "x"}
	knows := evictedAt(2)
	knows.Pod = ended.Pod
	failed, lost := evictedAt(0), evictedAt(0)
	failed.Phase, lost.Pod = move.Failed, move.Reference{Namespace: "a", Name: "w", UID: "w"}
	running := &move.Pod{Reference: move.Reference{UID: "old-b"}, Node: source}
	x := newPod("x", "n2", 3)
	for name, c := range map[string]struct {
		b        move.Neighbor
		released []move.Room
		want     string
	}{
		"b is evicted later and has a pod": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: evictedAt(2)}, HasRoom: true, User: x}, nil, "",
		},
		"the pod of b still runs, and another one is in its room": {
			move.Neighbor{
				Job: &move.Job{PodUID: "old-b", Status: evictedAt(2)}, Old: running, HasRoom: true, User: x,
			}, nil, "x",
		},
		"b knows the pod as its own": {
			move.Neighbor{
				Job: &move.Job{PodUID: "old-b", Status: knows}, Old: running, HasRoom: true, User: x, Known: x,
			}, nil, "",
		},
		"b has ended with the pod, which is gone": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: ended}, HasRoom: true, User: x}, nil, "",
		},
		"b has ended without a pod, and one is in its room": {
			move.Neighbor{
				Job:     &move.Job{PodUID: "old-b", Status: move.Status{Phase: move.Failed}},
				HasRoom: true, User: x,
			}, nil, "x",
		},
		"b was evicted first, and has ended without a pod": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: failed}, HasRoom: true},
			[]move.Room{{Job: "c", User: x}},
			"x",
		},
		"b was evicted first, and the pod that it knows is gone": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: lost}, HasRoom: true},
			[]move.Room{{Job: "c", User: x}},
			"x",
		},
		"b has no room, and a pod is in one that it released": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: evictedAt(2)}},
			[]move.Room{{Job: "b", User: x}},
			"x",
		},
		"b has released its room, and knows the pod that is in it": {
			move.Neighbor{Job: &move.Job{PodUID: "old-b", Status: knows}, Known: x},
			[]move.Room{{Job: "b", User: x}},
			"",
		},
	} {
		a := &move.Job{UID: "a", PodUID: "old-a", Source: source, Status: evictedAt(1)}
		c.b.UID = "b"
		neighbors := []move.Neighbor{{Job: a, HasRoom: true}, c.b}
		for range 2 {
			w := &move.World{Now: start, Place: &move.Place{Available: true}}
			w.Exchange(a, neighbors, c.released)
			got := ""
			if w.Successor != nil {
				got = w.Successor.UID
			}
			if got != c.want || w.Claimed {
				t.Errorf("%s: the successor of a is %q, claimed %t, want %q", name, got, w.Claimed, c.want)
			}
			slices.Reverse(neighbors)
		}
	}
}

// TestAPodInARoomIsClaimed: job b, whose pod still runs, has the pod x in its room.
func TestAPodInARoomIsClaimed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting, announced, other bool
		owner                     string
		want                      bool
	}{
		"no job waits for a pod":            {owner: "x"},
		"job a waits for one":               {waiting: true, owner: "x", want: true},
		"job a waits, and the room is free": {waiting: true},
		"a pod is announced":                {announced: true, want: true},
		"a pod is announced for job a":      {other: true},
	} {
		a := &move.Job{UID: "a", PodUID: "old-a", Source: source}
		if c.waiting {
			a.Status = evictedAt(1)
		}
		b := &move.Job{UID: "b", PodUID: "old-b", Source: "n1"}
		w := &move.World{
			Now: start, Pod: &move.Pod{Reference: move.Reference{UID: "old-b"}, Node: "n1"},
			Place: &move.Place{Used: true},
		}
		room := move.Neighbor{Job: b, Old: w.Pod, HasRoom: true, Announced: c.announced}
		if c.owner != "" {
			w.Place.Owners, room.User = []string{c.owner}, newPod(c.owner, "n2", 3)
		}
		w.Exchange(b, []move.Neighbor{{Job: a, HasRoom: true, Announced: c.other}, room}, nil)
		if w.Claimed != c.want || w.Successor != nil {
			t.Errorf("%s: claimed %t, successor %v, want %t and none", name, w.Claimed, w.Successor, c.want)
		}
	}
}

// TestEachPodHasOneJob: of random jobs with equal owners, no two get one pod, none gets a pod that another one knows or
// has caused in its own room, and the order in which jobs are read does not matter.
func TestEachPodHasOneJob(t *testing.T) {
	t.Parallel()
	given, claimed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 30 {
			neighbors, released := drawNeighbors(random)
			needed, has := map[string]string{}, map[string]string{}
			for _, n := range neighbors {
				if n.Known != nil {
					needed[n.Known.UID] = n.UID
				} else if n.User != nil && n.Old == nil && !n.Status.EvictedAt().IsZero() && !n.Status.Phase.IsFinal() {
					needed[n.User.UID] = n.UID
				}
			}
			for _, n := range neighbors {
				if !n.HasRoom || n.Status.Phase.IsFinal() {
					continue
				}
				w := exchanged(n, neighbors, released)
				shuffled := slices.Clone(neighbors)
				random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				o := exchanged(n, shuffled, released)
				if o.Claimed != w.Claimed || !reflect.DeepEqual(o.Successor, w.Successor) {
					t.Fatalf("job %s has %v, claimed %t, and %v, %t in another order", n.UID, w.Successor, w.Claimed,
						o.Successor, o.Claimed)
				}
				if w.Claimed {
					claimed++
				}
				if w.Successor == nil || n.User != nil || n.Known != nil {
					continue
				}
				given++
				uid := w.Successor.UID
				if has[uid] != "" || needed[uid] != "" {
					t.Fatalf("job %s gets %s, which jobs %q and %q have: %+v", n.UID, uid, has[uid], needed[uid],
						neighbors)
				}
				if has[uid] = n.UID; w.Successor.Node == n.Source {
					t.Fatalf("job %s gets %s on the node that its pod left", n.UID, uid)
				}
			}
		}
	})
	if given < 100 || claimed < 100 {
		t.Errorf("%d jobs got a pod, and %d pods were claimed: the test proves little", given, claimed)
	}
}

// exchanged is what a job sees.
func exchanged(n move.Neighbor, neighbors []move.Neighbor, released []move.Room) *move.World {
	w := &move.World{Now: start, Pod: n.Old, Place: &move.Place{Available: n.User == nil, Used: n.User != nil}}
	if n.User != nil {
		w.Place.Owners = []string{n.User.UID}
		w.Successor = &n.User.Pod
	} else if n.Known != nil {
		w.Successor = &n.Known.Pod
	}
	if w.NeedsNeighbors(n.Job) {
		w.Exchange(n.Job, neighbors, released)
	}
	return w
}

func drawNeighbors(random *rand.Rand) (all []move.Neighbor, released []move.Room) {
	pods := 0
	pod := func() *move.User {
		pods++
		return newPod(fmt.Sprint("new-", pods), fmt.Sprint("n", random.IntN(4)), random.IntN(6))
	}
	for i := range 1 + random.IntN(5) {
		j := &move.Job{UID: fmt.Sprint(i), PodUID: fmt.Sprint("old-", i), Source: fmt.Sprint("n", random.IntN(4))}
		n := move.Neighbor{Job: j, HasRoom: random.IntN(5) > 0, Announced: random.IntN(5) == 0}
		if random.IntN(3) > 0 {
			j.Status = evictedAt(random.IntN(4))
		} else {
			n.Old = &move.Pod{Reference: move.Reference{UID: j.PodUID}, Node: j.Source}
		}
		if n.HasRoom && random.IntN(2) == 0 {
			n.User = pod()
		}
		if n.Old == nil && random.IntN(5) == 0 {
			if n.Known = n.User; n.Known == nil {
				n.Known = pod()
			}
			j.Status.Pod = n.Known.Reference
		}
		if random.IntN(6) == 0 {
			j.Status.Phase = move.Failed
		}
		if random.IntN(4) == 0 {
			released = append(released, move.Room{Job: n.UID, User: pod()})
		}
		all = append(all, n)
	}
	return all, released
}
