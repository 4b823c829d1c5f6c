package move_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/move"
)

func TestExchanged(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	user := func(uid, node string, created int) *move.User {
		return &move.User{Pod: move.Pod{Reference: move.Reference{UID: uid}, Node: node}, Created: at(created)}
	}
	evicted := func(job, source string, seconds int, u *move.User) move.Room {
		return move.Room{Job: job, Source: source, Evicted: at(seconds), User: u}
	}
	known := evicted("a", "n0", 1, nil)
	known.Successor = user("x", "n2", 2)
	for name, test := range map[string]struct {
		rooms []move.Room
		want  string
	}{
		"no other room is used": {[]move.Room{evicted("a", "n0", 1, nil), {Job: "b"}}, ""},
		"the room of a pod that still runs is used": {
			[]move.Room{evicted("a", "n0", 1, nil), {Job: "b", User: user("x", "n2", 2)}}, "a:x",
		},
		"each new pod is in the room of the other": {
			[]move.Room{evicted("a", "n0", 1, user("y", "n1", 3)), evicted("b", "n0", 1, user("x", "n2", 2))}, "",
		},
		"the pod was there before the eviction": {
			[]move.Room{evicted("a", "n0", 3, nil), {Job: "b", User: user("x", "n2", 2)}}, "",
		},
		"the pod is on the node that it had to leave": {
			[]move.Room{evicted("a", "n0", 1, nil), {Job: "b", User: user("x", "n0", 2)}}, "",
		},
		"the pod was there before the eviction, while another job ended with its own": {
			[]move.Room{
				evicted("z", "n0", 1, user("y", "n1", 2)), evicted("a", "n0", 4, nil),
				{Job: "b", User: user("x", "n2", 3)},
			},
			"",
		},
		"the pod was there before the eviction, and another job has the pod that came for it": {
			[]move.Room{
				evicted("z", "n0", 1, user("y", "n1", 5)), evicted("a", "n0", 4, nil),
				{Job: "b", User: user("x", "n2", 2)},
			},
			"a:x",
		},
		"the pod counts already": {[]move.Room{known, {Job: "b", User: user("x", "n2", 2)}}, ""},
		"two wait for one pod": {
			[]move.Room{evicted("c", "n0", 2, nil), evicted("a", "n0", 1, nil), {Job: "b", User: user("x", "n2", 3)}},
			"a:x",
		},
		"a job takes another pod than the first, which is all that is left for a later one": {
			[]move.Room{
				evicted("a", "n0", 1, nil), evicted("b", "n1", 2, nil),
				{Job: "c", User: user("x", "n2", 3)},
				{Job: "d", User: user("y", "n1", 3)},
			},
			"a:y b:x",
		},
	} {
		got := []string{}
		for job, pod := range move.Exchanged(test.rooms) {
			got = append(got, job+":"+pod.UID)
		}
		if slices.Sort(got); strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// mostExchanged tries all assignments of pods to waiting jobs.
func mostExchanged(waiting []move.Room, users []*move.User) (most int) {
	if len(waiting) == 0 {
		return 0
	}
	most = mostExchanged(waiting[1:], users)
	for i, u := range users {
		if u.Node != waiting[0].Source {
			most = max(most, 1+mostExchanged(waiting[1:], slices.Delete(slices.Clone(users), i, i+1)))
		}
	}
	return most
}

// TestAsManyJobsAsPossibleGetAPod compares with all assignments, and no job loses its pod because another one waits.
func TestAsManyJobsAsPossibleGetAPod(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rooms, waiting []move.Room
		var users []*move.User
		node := rapid.SampledFrom([]string{"n0", "n1", "n2"})
		for i := range rapid.IntRange(1, 7).Draw(t, "rooms") {
			r := move.Room{Job: fmt.Sprint(i), Source: node.Draw(t, "source")}
			if rapid.Bool().Draw(t, "waits") {
				r.Evicted = start.Add(time.Duration(i) * time.Second)
				waiting = append(waiting, r)
			} else {
				r.User = &move.User{Created: start.Add(time.Minute)}
				r.User.UID, r.User.Node = fmt.Sprint("new-", i), node.Draw(t, "node")
				users = append(users, r.User)
			}
			rooms = append(rooms, r)
		}
		got, taken := move.Exchanged(rooms), map[string]bool{}
		for _, w := range waiting {
			if p := got[w.Job]; p != nil && (p.Node == w.Source || taken[p.UID]) {
				t.Fatalf("job %s has the pod %+v, of %+v", w.Job, p, rooms)
			} else if p != nil {
				taken[p.UID] = true
			}
		}
		if want := mostExchanged(waiting, users); len(got) != want {
			t.Fatalf("%d jobs have a pod, want %d: %v of %+v", len(got), want, got, rooms)
		}
		if n := len(waiting); n > 0 {
			last := waiting[n-1].Job
			without := slices.DeleteFunc(slices.Clone(rooms), func(r move.Room) bool { return r.Job == last })
			for job := range move.Exchanged(without) {
				if got[job] == nil {
					t.Fatalf("job %s has no pod because job %s waits: %+v", job, last, rooms)
				}
			}
		}
	})
}

// workload is two or three jobs whose pods have one owner, in a cluster whose scheduler places each new pod in any room
// that is free, also in one that was released a moment ago.
type workload struct {
	jobs   []*cluster
	free   []*move.User // new pods without a room
	users  map[*move.Place]*move.User
	made   map[*cluster][]*move.Place // with nil where there was none
	taken  int
	choose func(most int) int
}

// neighbors returns the jobs, and the rooms that they have released.
func (w *workload) neighbors() (all []move.Neighbor, released []move.Room) {
	for _, c := range w.jobs {
		n := move.Neighbor{
			Job: &c.job, Old: c.pod, HasRoom: c.place != nil, User: w.users[c.place],
		}
		if i := slices.IndexFunc(w.free, func(u *move.User) bool { return u.UID == c.job.Status.Pod.UID }); i >= 0 {
			n.Known = w.free[i]
		}
		all = append(all, n)
		for _, p := range w.made[c] {
			if u := w.users[p]; u != nil && p != c.place {
				released = append(released, move.Room{Job: c.job.PodUID, User: u})
			}
		}
	}
	return all, released
}

// known is the room of a job as the scheduler knows it: what it was when it last placed pods.
func (w *workload) known(c *cluster) *move.Place {
	if made := w.made[c]; len(made) > 0 {
		return made[len(made)-1]
	}
	return nil
}

// left reports whether the pod of a job leaves its node, or has left it.
func (c *cluster) left() bool { return c.pod == nil || c.pod.Terminating }

// see sets what the step of a job sees of the rooms.
func (w *workload) see(c *cluster, world *move.World) {
	world.Successor = nil
	if u := w.users[c.place]; u != nil && c.place != nil {
		world.Successor = &u.Pod
	} else if uid := c.job.Status.Pod.UID; uid != "" {
		world.Successor = &move.Pod{Reference: c.job.Status.Pod, Node: c.job.Status.Node, Ready: true}
	}
	if c.place != nil && !c.job.Status.Phase.IsFinal() && world.NeedsNeighbors(&c.job) {
		place := *c.place
		if world.Place = &place; w.users[c.place] != nil {
			place.Owners = []string{w.users[c.place].UID}
		}
		neighbors, released := w.neighbors()
		world.Exchange(&c.job, neighbors, released)
	}
}

// place lets the scheduler place new pods.
func (w *workload) place() {
	for _, c := range w.jobs {
		if !c.left() || slices.ContainsFunc(w.free, func(u *move.User) bool {
			return u.Name == c.job.PodUID
		}) {
			continue
		}
		w.taken++
		u := &move.User{Created: c.now}
		u.UID, u.Name, u.Ready = fmt.Sprint("new-", w.taken), c.job.PodUID, true
		w.free = append(w.free, u)
	}
	for _, u := range w.free {
		if u.Node != "" || w.choose(2) == 0 {
			continue
		}
		first := w.choose(len(w.jobs) - 1)
		for i := range w.jobs {
			c := w.jobs[(first+i)%len(w.jobs)]
			if p := w.known(c); p != nil && p.Available && !p.Used {
				p.Used, p.Available, u.Node = true, false, p.Node
				w.users[p] = u
				break
			}
		}
	}
	for _, c := range w.jobs {
		if w.known(c) != c.place {
			w.made[c] = append(w.made[c], c.place)
		}
	}
}

// TestJobsOfOneWorkloadEndInRooms: whichever room the new pods get, and whenever a process is killed, each job ends
// with another pod, which is in a room that was held.
func TestJobsOfOneWorkloadEndInRooms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &workload{
			users: map[*move.Place]*move.User{}, made: map[*cluster][]*move.Place{},
			choose: func(most int) int { return rapid.IntRange(0, most).Draw(t, "choice") },
		}
		for i := range 2 + w.choose(1) {
			s := usual()
			s.bindAfter, s.graceful = 0, time.Duration(1+w.choose(8))*time.Second
			s.target = fmt.Sprint("n", i+1)
			s.refusal, s.refusedUntil = move.Refusal{Code: "CapNode"}, time.Duration(w.choose(60))*time.Second
			s.tooMany = time.Duration(w.choose(40)) * time.Second
			c := newCluster(s)
			c.job.UID, c.job.PodUID = fmt.Sprint("old-", i), fmt.Sprint("old-", i)
			c.pod.UID = c.job.PodUID
			c.see = w.see
			w.jobs = append(w.jobs, c)
		}
		for range 300 {
			for _, c := range w.jobs {
				for range 10 {
					killed := w.choose(40) == 0
					do, changed := c.step(killed, kill{acts: w.choose(1) == 0})
					if killed || !changed && do == move.Wait || do == move.Finish || do == move.Remove {
						break
					}
				}
				c.tick(time.Second)
			}
			w.place()
		}
		successors := map[string]bool{}
		for _, c := range w.jobs {
			s := c.job.Status
			placed := slices.ContainsFunc(w.free, func(u *move.User) bool {
				return u.UID == s.Pod.UID && u.Node == s.Node
			})
			if s.Phase != move.Succeeded || !placed || successors[s.Pod.UID] || len(c.problems) > 0 {
				t.Fatalf("%s ends as %+v, %v; its pod has a room: %v", c.job.PodUID, s, c.problems, placed)
			}
			successors[s.Pod.UID] = true
		}
	})
}
