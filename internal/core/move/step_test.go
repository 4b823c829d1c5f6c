package move_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/move"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	ttl    = 5 * time.Minute
	source = "n0"
)

// cluster is a small API server with the other programs that act on a job. Its events happen at fixed times, so that a
// run with a process that is killed can be compared with one without.
type cluster struct {
	job move.Job
	now time.Time

	pod, next *move.Pod
	place     *move.Place
	placedAt  time.Time // of the creation of the reservation
	memory    time.Duration

	script
	goneAt, boundAt time.Time
	failure         *move.Failure
	evictions       int
	evictAt         time.Time                   // of an eviction without an answer
	requestedAt     time.Time                   // of the request for an eviction
	see             func(*cluster, *move.World) // what other jobs change; nil for a job that is alone
	finished        bool
	removed         bool
	problems        []string
}

// script is what the other programs do, by times since the start.
type script struct {
	direct, pending, statefulSet bool
	// late: nothing happens from the start of the job until its time is over.
	late bool
	// target is the node of the reservation; "" for none.
	target string
	// scheduledAfter is how long the scheduler takes, bindAfter and readyAfter how long the new pod takes; 0: for ever.
	scheduledAfter, graceful, bindAfter, readyAfter time.Duration
	// refusedUntil is when checks pass, tooMany until when the Eviction API answers 429.
	refusedUntil, tooMany, pauseUntil time.Duration
	// Times at which a user does something; 0: never.
	stopAt, podDeletedAt, placeDeletedAt time.Duration
	refusal                              move.Refusal
	// unanswered is how long an eviction takes that has no answer; 0: it has one.
	unanswered time.Duration
	// requests: other programs are requested to evict the pod, which do so after answered and give up after givenUp.
	requests          bool
	answered, givenUp time.Duration
}

func newCluster(s script) *cluster {
	c := &cluster{script: s, now: start, job: move.Job{
		Direct: s.direct, PodUID: "old", Source: source, Created: start.Add(-time.Hour), Started: start, TTL: ttl,
		Passed: true,
	}}
	c.pod = &move.Pod{Reference: move.Reference{Namespace: "a", Name: "p", UID: "old"}, Node: source, Ready: true}
	if s.pending {
		c.pod.Node, c.job.Source = "", ""
	}
	if s.late {
		c.now = start.Add(ttl)
	}
	c.tick(0)
	return c
}

// tick lets the other programs act.
func (c *cluster) tick(d time.Duration) {
	c.now = c.now.Add(d)
	after := func(since time.Time, d time.Duration) bool { return d > 0 && !c.now.Before(since.Add(d)) }
	c.job.Paused = c.now.Before(start.Add(c.pauseUntil))
	c.job.Stop = c.job.Stop || after(start, c.stopAt)
	if after(start, c.podDeletedAt) && c.goneAt.IsZero() {
		c.remove()
	}
	if !c.evictAt.IsZero() && !c.now.Before(c.evictAt) && c.goneAt.IsZero() {
		c.evictions++
		c.remove()
	}
	if !c.requestedAt.IsZero() && after(c.requestedAt, c.answered) && c.goneAt.IsZero() {
		c.evictions++
		c.remove()
	}
	if after(start, c.placeDeletedAt) {
		c.place = nil
	}
	if p := c.place; p != nil && !p.Used {
		if !p.Expired && after(c.placedAt, ttl+time.Second) {
			p.Expired, p.Available = true, false
		}
		if !p.Expired && c.target != "" && after(c.placedAt, c.scheduledAfter) {
			p.Available, p.Node = true, c.target
		}
		if p.Available && c.pending && after(c.placedAt, c.bindAfter) {
			p.Used, p.Available, c.pod.Node = true, false, p.Node
		}
	}
	if !c.goneAt.IsZero() && after(c.goneAt, c.graceful) && c.pod != nil && c.pod.UID == c.job.PodUID {
		if c.pod = nil; c.statefulSet {
			c.pod = &move.Pod{Reference: move.Reference{Namespace: "a", Name: "p", UID: "new"}}
		}
	}
	gone := c.pod == nil || c.pod.UID != c.job.PodUID
	if p := c.place; gone && p != nil && p.Available && after(c.goneAt, c.bindAfter) && c.next == nil {
		p.Used, p.Available, c.boundAt = true, false, c.now
		c.next = &move.Pod{Reference: move.Reference{Namespace: "a", Name: "q", UID: "new"}, Node: p.Node}
	}
	if c.next != nil && after(c.boundAt, c.readyAfter) {
		c.next.Ready = true
	}
}

func (c *cluster) remove() {
	if c.goneAt = c.now; c.pod != nil {
		c.pod.Terminating = true
	}
}

func (c *cluster) refused() *move.Refusal {
	if c.now.Before(start.Add(c.refusedUntil)) {
		return &c.refusal
	}
	return nil
}

// kill is when a process is killed.
type kill struct {
	write int  // after which write; -1: never
	acts  bool // The action takes effect, and its result is lost.
}

// step lets a process take one step.
func (c *cluster) step(killed bool, k kill) (move.Action, bool) {
	w := &move.World{
		Now: c.now, Refused: c.refused(), Failure: c.failure, Memory: c.memory, Place: c.place, Successor: c.next,
	}
	if c.pod != nil {
		pod := *c.pod
		w.Pod = &pod
	}
	if w.Requested = !c.requestedAt.IsZero(); w.Requested && c.pod != nil && c.pod.UID == c.job.PodUID {
		w.Pod.Asked = c.givenUp == 0 || c.now.Before(c.requestedAt.Add(c.givenUp))
		if !w.Pod.Asked && w.Failure == nil {
			w.Failure = &move.Failure{Action: move.Evict, Text: "NoFurtherResponder", Final: true}
		}
	}
	if c.see != nil {
		c.see(c, w)
	}
	status, do := move.Step(&c.job, w)
	changed := !reflect.DeepEqual(status, c.job.Status)
	c.job.Status, c.failure = status, nil
	if !killed || k.acts {
		c.act(do)
	}
	if killed {
		c.failure = nil
	}
	return do, changed
}

func (c *cluster) act(do move.Action) {
	switch do {
	case move.Reserve:
		if c.place == nil {
			c.place, c.placedAt = &move.Place{Name: "r"}, c.now
		}
	case move.Evict:
		p := c.place
		if !c.direct && (p == nil || !p.Available || p.Node == source || p.Node == "") {
			c.problems = append(c.problems, fmt.Sprintf("evicted without a place on another node: %+v", p))
		}
		if c.refused() != nil {
			c.problems = append(c.problems, "evicted while a check refuses")
		}
		if !c.job.Status.EvictedAt().Equal(c.now) {
			c.problems = append(c.problems, "evicted without a record of the time")
		}
		if c.now.Before(start.Add(c.tooMany)) {
			c.failure = &move.Failure{Action: move.Evict, Text: "429"}
		} else if c.unanswered > 0 {
			c.failure = &move.Failure{Action: move.Evict, Text: "timeout", Unknown: true}
			if c.evictAt.IsZero() {
				c.evictAt = c.now.Add(c.unanswered)
			}
		} else if c.requests {
			if c.requestedAt.IsZero() {
				c.requestedAt = c.now
			}
		} else if c.pod != nil && c.pod.UID == c.job.PodUID && !c.pod.Terminating {
			c.evictions++
			c.remove()
		}
	case move.Withdraw:
		c.requestedAt = time.Time{}
	case move.Release:
		c.place = nil
	case move.Finish:
		if !c.requestedAt.IsZero() {
			c.problems = append(c.problems, "the job ended and left its request")
		}
		c.finished = true
	case move.Remove:
		c.removed = true
	}
}

// run runs a job for a time, or until it has ended.
func (c *cluster) run(d time.Duration, k kill) *cluster {
	writes := 0
	for end := c.now.Add(d); c.now.Before(end) && !c.finished; c.tick(time.Second) {
		for range 20 {
			do, changed := c.step(writes == k.write, k)
			if writes++; !changed && do == move.Wait || do == move.Finish || do == move.Remove {
				break
			}
		}
	}
	return c
}

func usual() script {
	return script{
		target: "n1", scheduledAfter: 2 * time.Second, graceful: 3 * time.Second, bindAfter: 5 * time.Second,
		readyAfter: 4 * time.Second,
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	with := func(change func(*script)) script {
		s := usual()
		change(&s)
		return s
	}
	retryable := move.Refusal{Code: "CapNode", Text: "2 of 2"}
	tests := map[string]struct {
		script
		phase           move.Phase
		reason, message string
		stage           string
		evictions       int
		evictAt         time.Time // of an eviction without an answer
		keeps           bool      // the reservation
	}{
		"a pod moves to its place": {
			script: usual(), phase: move.Succeeded, stage: "Complete", evictions: 1, keeps: true,
		},
		"a pod of a StatefulSet comes back with its name": {
			script: with(func(s *script) { s.statefulSet = true }), phase: move.Succeeded, stage: "Complete",
			evictions: 1, keeps: true,
		},
		"a pod without a reservation is evicted": {
			script: script{direct: true, graceful: time.Second}, phase: move.Succeeded, stage: "Complete", evictions: 1,
		},
		"a pending pod gets its place": {
			script: with(func(s *script) { s.pending = true }), phase: move.Succeeded, stage: "Complete", keeps: true,
		},
		"a pending pod without reservation is refused": {
			script: script{pending: true, direct: true}, phase: move.Failed, reason: "ForbiddenMigratePod",
			message: "the pod is on no node: it cannot be evicted without a reservation",
		},
		"no node has room": {
			script: with(func(s *script) { s.target = "" }), phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: the reservation has no node yet",
			stage:   "ReservationCreated",
		},
		"the place is on the node of the pod": {
			script: with(func(s *script) { s.target = source }), phase: move.Failed, reason: "ForbiddenMigratePod",
			message: "the reservation is on the node of the pod", stage: "ReservationCreated",
		},
		"the pod is deleted before it has a place": {
			script: with(func(s *script) { s.podDeletedAt = time.Second }), phase: move.Failed, reason: "MissingPod",
			message: "the pod does not exist any more, or is being deleted", stage: "ReservationCreated",
		},
		"the reservation is deleted before the eviction": {
			script: with(func(s *script) { s.placeDeletedAt, s.scheduledAfter = time.Second, 0 }), phase: move.Failed,
			reason: "MissingReservation", message: "the reservation was deleted", stage: "ReservationCreated",
		},
		"a check refuses for some time": {
			script: with(func(s *script) { s.refusal, s.refusedUntil = retryable, time.Minute }),
			phase:  move.Succeeded, stage: "Complete", evictions: 1, keeps: true,
		},
		"a check refuses for good": {
			script: with(func(s *script) {
				s.refusal, s.refusedUntil = move.Refusal{Code: "BarePod", Text: "no owner", Final: true}, time.Minute
			}),
			phase: move.Failed, reason: "ForbiddenMigratePod", message: "no owner",
			stage: "ReservationScheduled",
		},
		"a check refuses until the time is over": {
			script: with(func(s *script) { s.refusal, s.refusedUntil = retryable, time.Hour }),
			phase:  move.Failed, reason: "Timeout", message: "the job did not end within 5m0s: 2 of 2",
			stage: "ReservationScheduled",
		},
		"a direct eviction is refused until the time is over": {
			script: script{direct: true, refusal: retryable, refusedUntil: time.Hour}, phase: move.Failed,
			reason: "Timeout", message: "the job did not end within 5m0s: 2 of 2",
		},
		"the Eviction API refuses for some time": {
			script: with(func(s *script) { s.tooMany = time.Minute }), phase: move.Succeeded, stage: "Complete",
			evictions: 1, keeps: true,
		},
		"the Eviction API refuses until the time is over": {
			script: script{direct: true, tooMany: time.Hour}, phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: 429", stage: "Eviction",
		},
		"no pod uses the reservation": {
			script: with(func(s *script) { s.bindAfter = 0 }), phase: move.Failed, reason: "Timeout", evictions: 1,
			message: "the job did not end within 5m0s: no pod uses the reservation yet",
			stage:   "PodBoundReservation", keeps: true,
		},
		"the new pod is not Ready": {
			script: with(func(s *script) { s.readyAfter = 0 }), phase: move.Failed, reason: "Timeout", evictions: 1,
			message: "the job did not end within 5m0s: the new pod is not Ready yet",
			stage:   "BoundPodReady", keeps: true,
		},
		"a paused job takes no step, and its time does not run": {
			script: with(func(s *script) { s.pauseUntil = 10 * time.Minute }), phase: move.Succeeded, stage: "Complete",
			evictions: 1, keeps: true,
		},
		"a user stops a job before the eviction": {
			script: with(func(s *script) { s.stopAt, s.scheduledAfter = time.Minute, 0 }), phase: move.Aborted,
			message: "a user stopped the job", stage: "ReservationCreated",
		},
		"a user stops a job after the eviction": {
			script: with(func(s *script) { s.stopAt, s.graceful = 10*time.Second, time.Minute }), phase: move.Aborted,
			message: "a user stopped the job", stage: "Eviction", evictions: 1, keeps: true,
		},
		"an eviction without an answer takes effect after a user stops the job": {
			script: with(func(s *script) { s.stopAt, s.unanswered = 4*time.Second, 30*time.Second }),
			phase:  move.Aborted, message: "a user stopped the job", stage: "Eviction", evictions: 1, keeps: true,
		},
		"no eviction has an answer or takes effect": {
			script: with(func(s *script) { s.unanswered = 10 * time.Hour }), phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: no answer to the eviction, and the pod still runs",
			stage:   "Eviction",
		},
		"the pod does not end": {
			script: with(func(s *script) { s.graceful = 10 * time.Hour }), phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: the pod is asked to end, and still exists",
			stage:   "Eviction", evictions: 1, keeps: true,
		},
		"a direct eviction that starts late": {
			script: script{direct: true, late: true}, phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: the eviction has not begun",
		},
		"a move that starts late": {
			script: script{late: true}, phase: move.Failed, reason: "Timeout",
			message: "the job did not end within 5m0s: the reservation does not exist yet",
		},
		"other programs evict the pod on request": {
			script: with(func(s *script) { s.requests, s.answered = true, time.Minute }),
			phase:  move.Succeeded, stage: "Complete", evictions: 1, keeps: true,
		},
		"no program answers the request": {
			script: with(func(s *script) { s.requests = true }), phase: move.Failed, reason: "Timeout",
			stage:   "Eviction",
			message: "the job did not end within 5m0s: the request for the eviction is withdrawn",
		},
		"all programs give the request up": {
			script: with(func(s *script) { s.requests, s.givenUp = true, time.Minute }), phase: move.Failed,
			reason: "FailedEvict", message: "NoFurtherResponder", stage: "Eviction",
		},
		"a user stops a job that has requested the eviction": {
			script: with(func(s *script) { s.requests, s.stopAt = true, time.Minute }), phase: move.Aborted,
			message: "a user stopped the job", stage: "Eviction",
		},
		"a pod is evicted just before its request is withdrawn": {
			script: with(func(s *script) {
				s.requests, s.stopAt, s.answered = true, time.Minute, 58*time.Second
			}),
			phase: move.Aborted, message: "a user stopped the job", stage: "Eviction", evictions: 1, keeps: true,
		},
		"another client deletes the pod when the place is kept": {
			script: with(func(s *script) {
				s.podDeletedAt, s.refusedUntil, s.refusal = time.Minute, time.Hour, retryable
			}),
			phase: move.Succeeded, stage: "Complete", keeps: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(test.script)
			c.memory = time.Hour
			c.run(20*time.Minute, kill{write: -1})
			s := c.job.Status
			got := []any{
				s.Phase, s.Reason, s.Message, s.Stage, c.evictions, c.place != nil, len(c.problems), c.finished,
			}
			want := []any{
				test.phase, test.reason, test.message, test.stage, test.evictions, test.keeps, 0, true,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Step (-want +got):\n%s\n%+v\n%v", diff, s, c.problems)
			}
			for range 1000 { // every 10 s, for longer than limits need the job
				c.tick(10 * time.Second)
				c.step(false, kill{})
			}
			if !c.removed || c.place != nil {
				t.Errorf("the job is not removed, or its reservation %v is left", c.place)
			}
		})
	}
}

// TestTheTimeOfAJobRunsFromItsStart: while a job waits for its turn it loses nothing of its TTL, and a pause before the
// start does not make it longer.
func TestTheTimeOfAJobRunsFromItsStart(t *testing.T) {
	t.Parallel()
	pause := func(from, to time.Duration) move.Status {
		return move.Status{Conditions: []move.Condition{{
			Type: move.Paused, Probed: start.Add(from), Changed: start.Add(to),
		}}}
	}
	const hour = time.Hour
	for name, test := range map[string]struct {
		job  move.Job
		want time.Duration // after the creation; 0 is never
	}{
		"a job that waits":                    {move.Job{TTL: ttl}, 24 * hour},
		"a job that waits, with more time":    {move.Job{TTL: 48 * hour}, 48 * hour},
		"a job that waits, without TTL":       {move.Job{}, 0},
		"a job that has started":              {move.Job{TTL: ttl, Started: start.Add(hour)}, hour + ttl},
		"a job that has started, without TTL": {move.Job{Started: start.Add(hour)}, 0},
		"a job that waits and was paused":     {move.Job{TTL: ttl, Status: pause(hour, 2*hour)}, 25 * hour},
		"a job that was paused before it began": {
			move.Job{TTL: ttl, Started: start.Add(3 * hour), Status: pause(hour, 2*hour)}, 3*hour + ttl,
		},
		"a job that was paused when it began": {
			move.Job{TTL: ttl, Started: start.Add(hour), Status: pause(0, 2*hour)}, 2*hour + ttl,
		},
	} {
		test.job.Created = start
		want := time.Time{}
		if test.want > 0 {
			want = start.Add(test.want)
		}
		if got := test.job.Deadline(start.Add(5 * hour)); !got.Equal(want) {
			t.Errorf("%s: got the deadline %v, want %v", name, got, want)
		}
	}
}

// TestAJobWaitsForItsTurnADay.
func TestAJobWaitsForItsTurnADay(t *testing.T) {
	t.Parallel()
	pod := &move.Pod{Reference: move.Reference{Namespace: "a", Name: "p", UID: "old"}, Node: source}
	job := &move.Job{PodUID: "old", Created: start, TTL: ttl}
	w := &move.World{Now: start.Add(24*time.Hour - 1), Pod: pod, Refused: &move.Refusal{Code: "CapNode", Text: "wait"}}
	status, _ := move.Step(job, w)
	if status.Phase != move.Pending || status.Message != "wait" {
		t.Errorf("before a day: got %+v, want Pending", status)
	}
	job.Status, w.Now = status, start.Add(24*time.Hour)
	status, _ = move.Step(job, w)
	want := "the job did not start within 24h0m0s: wait"
	if status.Phase != move.Failed || status.Reason != move.Timeout || status.Message != want {
		t.Errorf("after a day: got %+v, want Failed, Timeout, %q", status, want)
	}
}

// TestAPlaceFollowsTheNodesToAvoid: a place that excludes other nodes than the job must avoid now, or that is on one of
// them, is given up for another one, unless the eviction may be under way or the place is not the job's own. A place
// that another pod uses is given up too, unless that pod may count for another job or the time of the job is over.
func TestAPlaceFollowsTheNodesToAvoid(t *testing.T) {
	t.Parallel()
	evicting := move.Condition{Type: move.Eviction, Reason: move.Evicting, Probed: start}
	for name, test := range map[string]struct {
		place  move.Place
		change func(j *move.Job, w *move.World)
		again  bool
	}{
		"a pending one with other nodes": {place: move.Place{Stale: true}, again: true},
		"a pending one":                  {},
		"one on another node":            {place: move.Place{Available: true, Node: "n1", Stale: true}},
		"one on a node to avoid":         {place: move.Place{Available: true, Node: "n1", Barred: true}, again: true},
		"one of a user":                  {place: move.Place{Available: true, Node: "n1", Barred: true, Foreign: true}},
		"one that expired":               {place: move.Place{Stale: true, Expired: true}},
		"one that the pending pod of the job uses": {
			place: move.Place{Used: true, Node: "n1", Stale: true},
			change: func(j *move.Job, w *move.World) {
				j.Source, w.Pod = "", &move.Pod{Reference: w.Pod.Reference}
			},
		},
		"one that another pod uses": {place: move.Place{Used: true, Node: "n1"}, again: true},
		"one that a pod uses which may count for another job": {
			place:  move.Place{Used: true, Node: "n1"},
			change: func(_ *move.Job, w *move.World) { w.Claimed = true },
		},
		"one that another pod uses when the time of the job is over": {
			place:  move.Place{Used: true, Node: "n1"},
			change: func(_ *move.Job, w *move.World) { w.Now = start.Add(ttl) },
		},
		"one of a job whose time is over": {
			place:  move.Place{Stale: true},
			change: func(_ *move.Job, w *move.World) { w.Now = start.Add(ttl) },
		},
		"one of a pod that terminates": {
			place:  move.Place{Available: true, Node: "n1", Barred: true},
			change: func(_ *move.Job, w *move.World) { w.Pod.Terminating = true },
		},
		"one of a pod whose eviction has no answer": {
			place: move.Place{Available: true, Node: "n1", Barred: true},
			change: func(j *move.Job, _ *move.World) {
				j.Status.Conditions = append(j.Status.Conditions, evicting)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &move.Pod{Reference: move.Reference{Namespace: "a", Name: "p", UID: "old"}, Node: source}
			job := &move.Job{PodUID: "old", Source: source, Created: start, Started: start, TTL: ttl, Passed: true}
			job.Status.Conditions = []move.Condition{
				{Type: move.ReservationCreated, True: true},
				{Type: move.ReservationScheduled, True: test.place.Node != ""},
			}
			w := &move.World{Now: start, Pod: p, Place: &test.place, Refused: &move.Refusal{Code: "CapNode"}}
			if test.change != nil {
				test.change(job, w)
			}
			status, do := move.Step(job, w)
			if got := do == move.Release; got != test.again {
				t.Fatalf("got the action %q, want the place given up: %v", do, test.again)
			}
			if !test.again {
				if !status.Find(move.ReservationCreated).True {
					t.Errorf("the job gives up its place without another one: %+v", status)
				}
				return
			}
			if status.Node != "" || status.Find(move.ReservationScheduled).True {
				t.Errorf("the job keeps node %q of the place that it gave up", status.Node)
			}
			job.Status, w.Place = status, nil
			if _, do := move.Step(job, w); do != move.Reserve {
				t.Errorf("got the action %q next, want Reserve", do)
			}
		})
	}
}

func genScript(t *rapid.T) script {
	seconds := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Second
	}
	rare := func(name string) time.Duration {
		if rapid.IntRange(0, 5).Draw(t, name+" happens") > 0 {
			return 0
		}
		return seconds(name, 40)
	}
	s := script{
		target:         rapid.SampledFrom([]string{"n1", "n1", "n1", source, ""}).Draw(t, "target"),
		direct:         rapid.IntRange(0, 5).Draw(t, "direct") == 0,
		pending:        rapid.IntRange(0, 7).Draw(t, "pending") == 0,
		statefulSet:    rapid.Bool().Draw(t, "statefulSet"),
		scheduledAfter: seconds("scheduledAfter", 8), graceful: 1 + seconds("graceful", 8),
		bindAfter: seconds("bindAfter", 8), readyAfter: seconds("readyAfter", 8),
		refusedUntil: rare("refusedUntil"), tooMany: rare("tooMany"), pauseUntil: rare("pauseUntil"),
		stopAt: rare("stopAt"), podDeletedAt: rare("podDeletedAt"), placeDeletedAt: rare("placeDeletedAt"),
		refusal:  move.Refusal{Code: "CapNode", Text: "x", Final: rapid.Bool().Draw(t, "final")},
		requests: rapid.IntRange(0, 3).Draw(t, "requests") == 0, answered: seconds("answered", 8),
		givenUp: rare("givenUp"),
	}
	if s.pending {
		s.direct, s.podDeletedAt = false, 0
	}
	return s
}

// TestNoEvictionWithoutPlace is D4: no pod is evicted before its place is Available on another node, a job that fails
// before has left its pod alone and has no reservation, and one that fails after keeps it until it expires.
func TestNoEvictionWithoutPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(genScript(t))
		c.run(500*time.Second, kill{rapid.IntRange(-1, 20).Draw(t, "kill"), rapid.Bool().Draw(t, "acts")})
		s := c.job.Status
		if len(c.problems) > 0 {
			t.Fatalf("%v\n%+v", c.problems, s)
		}
		if !s.Phase.IsFinal() {
			t.Fatalf("the job did not end: %+v", s)
		}
		if c.evictions == 0 && c.place != nil && !c.place.Used && c.goneAt.IsZero() {
			t.Fatalf("the job ended without an eviction and left its reservation: %+v", s)
		}
		if c.evictions > 1 {
			t.Fatalf("the pod was evicted %d times", c.evictions)
		}
	})
}

// TestStepAfterKill is D12: a job whose process is killed after any write ends as it would have ended.
func TestStepAfterKill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genScript(t)
		// A user who acts while a step is repeated may come before the step or after it.
		s.stopAt, s.podDeletedAt, s.placeDeletedAt = 0, 0, 0
		want := newCluster(s).run(500*time.Second, kill{write: -1})
		acts := rapid.Bool().Draw(t, "acts")
		for write := range 12 {
			got := newCluster(s).run(500*time.Second, kill{write, acts})
			a, b := want.job.Status, got.job.Status
			if a.Phase != b.Phase || a.Reason != b.Reason || a.Pod != b.Pod || want.evictions != got.evictions {
				t.Fatalf("killed after write %d the job ends as\n%+v, want\n%+v", write, b, a)
			}
		}
	})
}
