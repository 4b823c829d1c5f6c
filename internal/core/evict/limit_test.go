package evict_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
)

// TestEachCapAtItsBoundary: with a limit of n and m others, a pod is refused if m ≥ n; 0 does not limit. The pod's own
// job is not one of the others.
func TestEachCapAtItsBoundary(t *testing.T) {
	t.Parallel()
	tests := map[evict.Code]struct {
		settings func(n int) evict.Policy
		job      func(j *move.Job)
	}{
		evict.CapGlobal: {settings: func(n int) evict.Policy { return evict.Policy{MaxMigratingGlobally: n} }},
		evict.CapNode: {
			settings: func(n int) evict.Policy { return evict.Policy{MaxMigratingPerNode: n} },
			job:      func(j *move.Job) { j.Source = "n-p0" },
		},
		evict.CapNamespace: {settings: func(n int) evict.Policy {
			return evict.Policy{MaxMigratingPerNamespace: n}
		}},
		evict.CapDomain: {
			settings: func(n int) evict.Policy {
				if n == 0 {
					return evict.Policy{}
				}
				return evict.Policy{DomainLimits: []evict.DomainLimit{{"zone", n}}}
			},
			job: func(j *move.Job) { j.Source = "n-p1" },
		},
	}
	const replicas = 100
	for code, test := range tests {
		for n := range 5 {
			for m := range 6 {
				s, change := web(replicas), test.job
				if change == nil {
					change = func(*move.Job) {}
				}
				for i := range m {
					other(fmt.Sprint(i), change)(s)
				}
				s.SetJob(job("own", "p0", change))
				want := ""
				if n > 0 && m >= n {
					want = string(code)
				}
				policy := test.settings(n)
				if got := codes(s.Check(&policy, "p0", now)); got != want {
					t.Errorf("limit %d, %d others: got %q, want %q", n, m, got, want)
				}
			}
		}
	}
}

// TestTheLimitsOfAWorkloadAtTheirBoundaries: with so many of ten replicas that are not ready, terminate, migrate or do
// not exist, each counted once whatever it is.
func TestTheLimitsOfAWorkloadAtTheirBoundaries(t *testing.T) {
	t.Parallel()
	states := map[string]func(s *evict.State, name string){
		"not ready": func(s *evict.State, name string) {
			s.SetPod(pod(name, func(p *evict.Pod) { p.Ready = false }))
		},
		"terminating": func(s *evict.State, name string) {
			s.SetPod(pod(name, func(p *evict.Pod) { p.Terminating = true }))
		},
		"migrating": func(s *evict.State, name string) { s.SetJob(job("j-"+name, name)) },
		"gone":      func(s *evict.State, name string) { s.DeletePod(name) },
		"not ready, terminating and migrating": func(s *evict.State, name string) {
			s.SetPod(pod(name, func(p *evict.Pod) { p.Ready, p.Terminating = false, true }))
			s.SetJob(job("j-"+name, name))
		},
		"evicted, and the replacement is not ready": func(s *evict.State, name string) {
			s.DeletePod(name)
			s.SetJob(job("j-"+name, name, func(j *move.Job) { evictAt(j, ago(time.Second)) }))
			s.SetPod(pod(name+"-new", func(p *evict.Pod) { p.Ready = false }))
		},
	}
	for state, put := range states {
		for limit := 1; limit <= 4; limit++ {
			for n := range 6 {
				s := web(10)
				for i := range n {
					put(s, fmt.Sprintf("p%d", i+1))
				}
				p := limits(evict.Policy{
					MaxUnavailablePerWorkload: evict.IntOrPercent{Number: limit}, WorkloadWindow: noWindow,
					SkipEvictionGates: []string{"MaxMigratingPerWorkload"},
				})
				want := ""
				if n >= limit {
					want = "WorkloadUnavailable"
				}
				if got := codes(s.Check(p, "p0", now)); got != want {
					t.Errorf("limit %d, %d %s: got %q, want %q", limit, n, state, got, want)
				}
			}
		}
	}
}

// TestReplicasAtTheLimit: a workload that the limits would let lose all of its replicas is refused for good.
func TestReplicasAtTheLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		replicas int
		limit    string
		want     string
	}{
		{1, "", "ExpectedReplicas"},
		{2, "", ""},
		{3, "", ""},
		{4, "", ""},
		{10, "", ""},
		{11, "", ""},
		{2, "2", "ExpectedReplicas"},
		{3, "2", ""},
		{2, "50%", ""},
		{2, "100%", "ExpectedReplicas"},
		{4, "5", "ExpectedReplicas"},
		{5, "5", "ExpectedReplicas"},
		{6, "5", ""},
	} {
		for _, s := range []evict.Policy{
			{MaxMigratingPerWorkload: share(test.limit)}, {MaxUnavailablePerWorkload: share(test.limit)},
		} {
			if got := codes(web(test.replicas).Check(limits(s), "p0", now)); got != test.want {
				t.Errorf("limit %q of %d replicas: got %q, want %q", test.limit, test.replicas, got, test.want)
			}
			s.SkipExpectedNumber = true
			if got := codes(web(test.replicas).Check(limits(s), "p0", now)); got != "" {
				t.Errorf("limit %q of %d replicas with the check skipped: got %q", test.limit, test.replicas, got)
			}
		}
	}
}

// TestTheBucketIsExact compares with a bucket that is filled step by step.
func TestTheBucketIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		interval, burst := rapid.IntRange(1, 7).Draw(t, "interval"), rapid.IntRange(1, 4).Draw(t, "burst")
		var at []time.Time
		milli, clock := burst*interval, 0 // of tokens, in parts of an interval
		for range rapid.IntRange(0, 20).Draw(t, "evictions") {
			wait := rapid.IntRange(0, 12).Draw(t, "wait")
			clock += wait
			milli = min(milli+wait, burst*interval)
			until := evict.NextToken(at, time.Duration(interval)*time.Second, burst)
			moment := now.Add(time.Duration(clock) * time.Second)
			if allowed, want := !until.After(moment), milli >= interval; allowed != want {
				t.Fatalf("after %v at %d: got %v, want %v", at, clock, allowed, want)
			} else if allowed {
				milli -= interval
				at = append(at, moment)
			}
		}
	})
}

// TestTheBackoffDoublesAfterFailures: the pause is ownerBackoff after moves that succeeded and the first that failed,
// twice as long after each further one that failed, 4 hours at most, and none after a day without a move.
func TestTheBackoffDoublesAfterFailures(t *testing.T) {
	t.Parallel()
	const failed, succeeded = move.Failed, move.Succeeded
	for name, test := range map[string]struct {
		backoff time.Duration
		phase   move.Phase
		minutes []int
	}{
		"moves that failed":    {5 * time.Minute, failed, []int{0, 5, 10, 20, 40, 80, 160, 240, 240}},
		"moves that succeeded": {5 * time.Minute, succeeded, []int{0, 5, 5, 5, 5, 5}},
		"a shorter pause":      {time.Minute, failed, []int{0, 1, 2, 4, 8, 16}},
		"no pause":             {unlimited, failed, []int{0, 0, 0, 0}},
		"a pause that is longer than its own bound": {5 * time.Hour, failed, []int{0, 300, 300}},
	} {
		p := limits(evict.Policy{
			WorkloadWindow: noWindow, EvictInterval: time.Millisecond, EvictBurst: 9, OwnerBackoff: test.backoff,
		})
		s, last := web(10), now
		for n, minutes := range test.minutes {
			at := last.Add(time.Duration(minutes) * time.Minute)
			if got := codes(s.Check(p, "p0", at.Add(-time.Second))); got != "OwnerBackoff" && minutes > 0 {
				t.Errorf("%s: a second before move %d: got %q, want OwnerBackoff", name, n+1, got)
			}
			if got := codes(s.Check(p, "p0", at)); got != "" {
				t.Errorf("%s: move %d, %d minutes after the last: got %q", name, n+1, minutes, got)
			}
			for _, half := range []string{"a", "b"} { // two jobs are one move
				s.SetJob(job(fmt.Sprint(n, half), "gone", func(j *move.Job) {
					j.Created, j.Started = at, at
					evictAt(j, at)
					end(j, test.phase, at)
				}))
			}
			last = at
		}
		if got := codes(s.Check(p, "p0", last.Add(24*time.Hour))); got != "" {
			t.Errorf("%s: after a day: got %q", name, got)
		}
	}
}

// TestJobsThatWaitForTheirTurnAreOneMove: four jobs that were created at once ran one after another with a pause of
// minutes between them. A job that is created after the last one ended waits for the pause.
func TestJobsThatWaitForTheirTurnAreOneMove(t *testing.T) {
	t.Parallel()
	p, s := limits(evict.Policy{WorkloadWindow: noWindow, EvictInterval: time.Millisecond}), web(30)
	at := now
	for i := range 4 {
		waiting := job(fmt.Sprint("j", i), fmt.Sprint("p", i), func(j *move.Job) {
			j.Created, j.Started = now, time.Time{}
		})
		s.SetJob(waiting)
		if got := codes(s.Check(p, waiting.PodUID, at)); got != "" {
			t.Errorf("job %d, %v after its creation: got %q", i, at.Sub(now), got)
		}
		s.SetJob(job(waiting.UID, waiting.PodUID, func(j *move.Job) {
			j.Created, j.Started = now, at
			evictAt(j, at)
			end(j, move.Succeeded, at.Add(time.Minute))
		}))
		at = at.Add(2 * time.Minute)
	}
	s.SetJob(job("late", "p5", func(j *move.Job) {
		j.Created, j.Started = at, time.Time{}
	}))
	if got := s.Check(p, "p5", at); codes(got) != "OwnerBackoff" || got[0].Have != 1 {
		t.Errorf("a job that was created later: got %v, want OwnerBackoff of one move", got)
	}
	if got := codes(s.CheckMove(p, evict.Move{PodUID: "p6", Round: at}, at)); got != "OwnerBackoff" {
		t.Errorf("a pod without a job: got %q, want OwnerBackoff", got)
	}
}

// TestJobsAtTheSameTimeAreOneMove: while one runs, the others of the workload may start; after them the pause is that
// of one move.
func TestJobsAtTheSameTimeAreOneMove(t *testing.T) {
	t.Parallel()
	p, s := limits(evict.Policy{WorkloadWindow: noWindow}), web(30)
	s.SetJob(job("a", "p1", evicted(10*time.Second), func(j *move.Job) {
		j.Created, j.Started = ago(40*time.Second), ago(30*time.Second)
	}))
	s.SetJob(job("b", "p2", func(j *move.Job) { j.Started = ago(20 * time.Second) }))
	if got := codes(s.Check(p, "p0", now)); got != "" {
		t.Errorf("while a job runs: got %q", got)
	}
	s.SetJob(job("b", "p2", evicted(5*time.Second), func(j *move.Job) {
		j.Created, j.Started = ago(20*time.Second), ago(20*time.Second)
	}))
	if got := s.Check(p, "p0", now); codes(got) != "OwnerBackoff" || got[0].Have != 1 {
		t.Errorf("after both: got %v, want OwnerBackoff of one move", got)
	}
	if got := codes(s.Check(p, "p0", now.Add(5*time.Minute-5*time.Second))); got != "" {
		t.Errorf("five minutes after both: got %q", got)
	}
}

// TestNodesToAvoid: the pod's own, those that pods of the workload leave, and left within the window.
func TestNodesToAvoid(t *testing.T) {
	t.Parallel()
	s := web(10)
	s.SetJob(job("a", "p1", evicted(29*time.Minute)))
	s.SetJob(job("b", "p2", evicted(30*time.Minute)))
	s.SetJob(job("c", "p3"))
	s.SetJob(job("d", "p4", func(j *move.Job) { j.Status.Phase = move.Failed }))
	got := s.Avoid(limits(evict.Policy{}), "p0", now)
	if want := []string{"n-p0", "n-p1", "n-p3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := s.Avoid(&evict.Policy{}, "p0", now); !slices.Equal(got, []string{"n-p0"}) {
		t.Errorf("without a return window: got %v, want the pod's own node alone", got)
	}
}

// world is a cluster whose pods are evicted whenever the State allows it.
type world struct {
	pods     map[string]evict.Pod
	jobs     map[string]move.Job
	replicas map[string]int
	budgets  map[string]*gang.Budget
}

// state is made from the objects, as after a restart.
func (w *world) state(reverse bool) *evict.State {
	s := evict.NewState()
	for key, n := range w.replicas {
		s.SetWorkload(evict.Workload{
			Key: key, Kind: evict.Deployment, Replicas: n, StatusReplicas: n, Updated: n, Ready: n,
		})
	}
	var puts []func()
	for _, p := range w.pods {
		puts = append(puts, func() { s.SetPod(p) })
		s.SetNode(p.Node, nil)
	}
	for _, j := range w.jobs {
		puts = append(puts, func() { s.SetJob(j) })
	}
	if reverse {
		slices.Reverse(puts)
	}
	for _, put := range puts {
		put()
	}
	for _, node := range []string{"n0", "n1", "n2"} {
		s.SetNode(node, map[string]string{"zone": node[:1]})
	}
	return s
}

// unavailable counts replicas that do not serve or are in a started job.
func (w *world) unavailable(key string) int {
	serving := 0
	for uid, p := range w.pods {
		moves := false
		for _, j := range w.jobs {
			moves = moves || j.PodUID == uid && j.IsRunning()
		}
		if p.Workload == key && p.Ready && !p.Terminating && !moves {
			serving++
		}
	}
	return w.replicas[key] - serving
}

// TestNoLimitIsExceeded: D1, D2, D8. Pods are evicted at random times whenever they may be; caches are made anew from
// the objects before each question. At every moment the concurrent jobs, the unavailable replicas and the evictions
// that a budget has in flight are within the limits, and so are the evictions of every interval.
func TestNoLimitIsExceeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := func(name string) int { return rapid.IntRange(1, 4).Draw(t, name) }
		perNode, perSpace, global, perZone := limit("node"), limit("namespace"), limit("global"), limit("zone")
		perWorkload, unavailable := limit("workload"), limit("unavailable")
		window, burst := limit("window"), limit("burst")
		p := limits(evict.Policy{
			MaxMigratingPerNode: perNode, MaxMigratingPerNamespace: perSpace, MaxMigratingGlobally: global,
			DomainLimits:              []evict.DomainLimit{{"zone", perZone}},
			MaxMigratingPerWorkload:   evict.IntOrPercent{Number: perWorkload},
			MaxUnavailablePerWorkload: evict.IntOrPercent{Number: unavailable},
			WorkloadWindow: &evict.Window{
				Duration: 20 * time.Minute, MaxMigrating: evict.IntOrPercent{Number: window},
			},
			NamespaceWindow: &evict.Window{Duration: 30 * time.Minute, MaxMigrating: share("5"), Burst: 2},
			EvictInterval:   3 * time.Minute, EvictBurst: burst, SkipExpectedNumber: true,
		})
		w := &world{
			pods: map[string]evict.Pod{}, jobs: map[string]move.Job{}, replicas: map[string]int{},
			budgets: map[string]*gang.Budget{},
		}
		for i := range 12 {
			key := evict.Key("default", "Deployment", fmt.Sprint("w", i%3))
			if w.budgets[key] == nil {
				w.budgets[key] = &gang.Budget{}
			}
			uid := fmt.Sprint("p", i)
			w.pods[uid] = evict.Pod{
				UID: uid, Name: uid, Namespace: "default", Node: fmt.Sprint("n", i%2), Workload: key,
				Created: ago(time.Hour), Ready: rapid.IntRange(0, 9).Draw(t, "ready") > 0,
				Budgets: []*gang.Budget{w.budgets[key]},
			}
			w.replicas[key]++
		}
		least := map[string]int{}
		for key := range w.budgets {
			least[key] = rapid.IntRange(0, 4).Draw(t, "minAvailable")
		}
		clock, next := now, 100
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			for _, uid := range slices.Sorted(maps.Keys(w.jobs)) {
				j := w.jobs[uid]
				if j.IsRunning() && rapid.Bool().Draw(t, "ends") { // a replacement serves
					end(&j, move.Succeeded, clock)
					w.jobs[uid] = j
					p := w.pods[j.PodUID]
					delete(w.pods, j.PodUID)
					next++
					p.UID, p.Terminating, p.Ready = fmt.Sprint("p", next), false, true
					p.Created = clock.Add(-time.Hour)
					w.pods[p.UID] = p
				}
			}
			for key, b := range w.budgets { // as the disruption controller counts
				healthy := 0
				for _, pod := range w.pods {
					if pod.Workload == key && pod.Ready && !pod.Terminating {
						healthy++
					}
				}
				b.Allowed = healthy - least[key]
				// The controller may not have seen the evictions: those in flight count as healthy.
				for _, pod := range w.pods {
					if pod.Workload == key && pod.Ready && pod.Terminating {
						b.Allowed++
					}
				}
			}
			all := slices.Sorted(maps.Keys(w.pods))
			uid := rapid.SampledFrom(all).Draw(t, "pod")
			refused := w.state(false).Check(p, uid, clock)
			if again := w.state(true).Check(p, uid, clock); !cmp.Equal(refused, again) {
				t.Fatalf("the order of events counts:\n%v\n%v", refused, again)
			}
			mustBeUsed(t, w.state(false).Uses(p, clock), refused, w.jobs["j-"+uid].UID != "")
			if len(refused) > 0 {
				continue
			}
			pod := w.pods[uid]
			pod.Terminating = true
			w.pods[uid] = pod
			j := move.Job{
				UID: "j-" + uid, Name: uid, PodUID: uid, Namespace: pod.Namespace, Workload: pod.Workload,
				Source: pod.Node, Created: clock, Started: clock,
			}
			evictAt(&j, clock)
			w.jobs[j.UID] = j
			w.mustBeWithin(t, clock, pod, map[string]int{
				"node": perNode, "namespace": perSpace, "global": global, "zone": perZone, "workload": perWorkload,
				"unavailable": unavailable, "window": window, "burst": burst,
			}, least)
		}
	})
}

// mustBeWithin counts after an eviction.
func (w *world) mustBeWithin(t *rapid.T, clock time.Time, pod evict.Pod, limits, least map[string]int) {
	t.Helper()
	have := map[string]int{"unavailable": w.unavailable(pod.Workload)}
	for _, j := range w.jobs {
		if j.IsRunning() {
			have["global"]++
			have["zone"]++ // all nodes are in one
			have["namespace"]++
			if j.Source == pod.Node {
				have["node"]++
			}
			if j.Workload == pod.Workload {
				have["workload"]++
			}
		}
		if j.Workload == pod.Workload && clock.Sub(j.LastEviction()) < 20*time.Minute {
			have["window"]++
		}
		for _, length := range []int{1, 2, 3, 6} { // of the rate of one in three minutes
			if clock.Sub(j.LastEviction()) < time.Duration(length)*3*time.Minute {
				have[fmt.Sprint("rate ", length)]++
			}
		}
		if clock.Sub(j.LastEviction()) < 30*time.Minute {
			have["namespace window"]++
		}
		if j.LastEviction().Equal(clock) {
			have["at once"]++
		}
	}
	limits["namespace window"], limits["at once"] = 5, 2
	for _, length := range []int{1, 2, 3, 6} {
		limits[fmt.Sprint("rate ", length)] = limits["burst"] + length - 1
	}
	for name, limit := range limits {
		if have[name] > limit {
			t.Fatalf("%s: %d, want at most %d", name, have[name], limit)
		}
	}
	healthy := 0
	for _, p := range w.pods {
		if p.Workload == pod.Workload && p.Ready && !p.Terminating {
			healthy++
		}
	}
	if healthy < least[pod.Workload] && pod.Ready {
		t.Fatalf("%s: %d pods are healthy, want at least %d", pod.Workload, healthy, least[pod.Workload])
	}
}
