package evict_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// free limits nothing that two jobs could share.
var free = evict.Policy{
	MaxMigratingPerNode: unlimited, MaxMigratingPerWorkload: share("50%"), MaxUnavailablePerWorkload: share("50%"),
	EvictBurst:     1000,
	WorkloadWindow: noWindow,
}

// waiting puts jobs for pods, with the names of the pods, the first one the oldest.
func waiting(s *evict.State, uids ...string) []move.Job {
	for i, uid := range uids {
		s.SetJob(move.Job{
			UID: "j-" + uid, Name: uid, PodUID: uid, Created: ago(time.Hour).Add(time.Duration(i) * time.Second),
		})
	}
	return s.Waiting()
}

func names(jobs []move.Job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.Name)
	}
	return all
}

// fleet is three workloads a, b, c of four pods each: a0, a1….
func fleet() *evict.State {
	s := evict.NewState()
	for _, w := range []string{"a", "b", "c"} {
		key := "Deployment default/" + w
		s.SetWorkload(evict.Workload{
			Key: key, Kind: evict.Deployment, Replicas: 4, StatusReplicas: 4, Updated: 4, Ready: 4,
		})
		for i := range 4 {
			s.SetPod(pod(fmt.Sprint(w, i), func(p *evict.Pod) { p.Workload = key }))
		}
	}
	return s
}

// TestTheOrderOfArbitration: each rule alone, on jobs that are listed the other way round.
func TestTheOrderOfArbitration(t *testing.T) {
	t.Parallel()
	change := func(s *evict.State, uid string, f func(p *evict.Pod)) {
		p, _ := s.Pod(uid)
		f(&p)
		s.SetPod(p)
	}
	tests := map[string]struct {
		put  func(s *evict.State)
		jobs []string
		want []string
	}{
		"the older one first": {jobs: []string{"b0", "a0"}, want: []string{"b0", "a0"}},
		"a workload that migrates first": {
			put: func(s *evict.State) {
				s.SetJob(job("x", "a3", func(j *move.Job) { j.Workload = "Deployment default/a" }))
			},
			jobs: []string{"b0", "a0"}, want: []string{"a0", "b0"},
		},
		"the lower priority first": {
			put:  func(s *evict.State) { change(s, "b0", func(p *evict.Pod) { p.Priority = 1 }) },
			jobs: []string{"b0", "a0"}, want: []string{"a0", "b0"},
		},
		"the lower class first": {
			put: func(s *evict.State) {
				change(s, "a0", func(p *evict.Pod) { p.QoS = qos.LSE })
				change(s, "b0", func(p *evict.Pod) { p.QoS = qos.LSR })
				change(s, "c0", func(p *evict.Pod) { p.QoS = qos.BE })
			},
			jobs: []string{"b0", "a0", "a1", "c0"}, want: []string{"c0", "a1", "b0", "a0"},
		},
		"the lower eviction cost first": {
			put:  func(s *evict.State) { change(s, "a0", func(p *evict.Pod) { p.EvictionCost = -1 }) },
			jobs: []string{"b0", "a0"}, want: []string{"a0", "b0"},
		},
		"the lower deletion cost first": {
			put:  func(s *evict.State) { change(s, "a0", func(p *evict.Pod) { p.DeletionCost = -1 }) },
			jobs: []string{"b0", "a0"}, want: []string{"a0", "b0"},
		},
		"workloads of equal rank alternate": {
			jobs: []string{"a0", "a1", "b0", "b1", "c0"}, want: []string{"a0", "b0", "c0", "a1", "b1"},
		},
		"a lower rank is not spread before a higher one": {
			put:  func(s *evict.State) { change(s, "b0", func(p *evict.Pod) { p.Priority = 1 }) },
			jobs: []string{"b0", "a0", "a1"}, want: []string{"a0", "a1", "b0"},
		},
	}
	for name, test := range tests {
		s := fleet()
		if test.put != nil {
			test.put(s)
		}
		passed, refused := s.Arbitrate(limits(free), waiting(s, test.jobs...), now)
		if got := names(passed); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v; refused %v", name, got, test.want, refused)
		}
	}
}

// TestWhatPassesIsCompleteAndNothingChanges: what passes says where its pod is, as the job's object is to say when the
// pod is gone; the State is as before.
func TestWhatPassesIsCompleteAndNothingChanges(t *testing.T) {
	t.Parallel()
	s := fleet()
	before := waiting(s, "a0", "a1", "a2")
	passed, refused := s.Arbitrate(limits(free), before, now)
	want := []move.Job{
		{
			UID: "j-a0", Name: "a0", PodUID: "a0", Namespace: "default", Workload: "Deployment default/a",
			Source:  "n-a0",
			Created: ago(time.Hour), Started: now,
		},
		{
			UID: "j-a1", Name: "a1", PodUID: "a1", Namespace: "default", Workload: "Deployment default/a",
			Source:  "n-a1",
			Created: ago(time.Hour).Add(time.Second), Started: now,
		},
	}
	if diff := gocmp.Diff(want, passed); diff != "" {
		t.Errorf("passed (-want +got):\n%s", diff)
	}
	wantRefused := map[string]evict.Refusal{
		"j-a2": {Code: evict.AlreadyEvicting, Subject: "workload Deployment default/a", Have: 2, Limit: 2},
	}
	if diff := gocmp.Diff(wantRefused, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(before, s.Waiting()); diff != "" {
		t.Errorf("the State has changed (-before +after):\n%s", diff)
	}
	if got := codes(s.Check(limits(free), "a2", now)); got != "" {
		t.Errorf("after arbitration: got %q, want no refusal", got)
	}
}

// TestTwoJobsOfAPod: one passes, and it does not hold up its gang.
func TestTwoJobsOfAPod(t *testing.T) {
	t.Parallel()
	s := fleet()
	members(s, "g", 2)
	s.SetGang("default/g", gang.Bond{Least: 2})
	waiting(s, "g0", "g1")
	s.SetJob(move.Job{UID: "twin", Name: "twin", PodUID: "g0", Created: ago(time.Minute)})
	settings := whole
	settings.MaxMigratingPerNode, settings.WorkloadWindow = unlimited, noWindow
	passed, refused := s.Arbitrate(limits(settings), s.Waiting(), now)
	if got := names(passed); !slices.Equal(got, []string{"g0", "g1"}) || refused["twin"].Code != evict.AlreadyEvicting {
		t.Errorf("passed %v, refused %v; want g0 and g1 passed, twin refused with AlreadyEvicting", got, refused)
	}
}

// TestGangsPassWholeOrNotAtAll: with limits of the workload, the node and a budget at the number of members and below.
func TestGangsPassWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	const n = 4
	settings := func(change func(s *evict.Policy)) evict.Policy {
		s := whole
		s.MaxMigratingPerNode, s.WorkloadWindow = unlimited, noWindow
		if change != nil {
			change(&s)
		}
		return s
	}
	tests := map[string]struct {
		settings evict.Policy
		bond     gang.Bond
		without  string // the member without a job
		young    string // the member that is refused for itself
		allowed  int    // by the budget
		want     int
		code     evict.Code // of the others
	}{
		"all limits allow it": {
			settings: settings(nil), bond: gang.Bond{Least: n}, allowed: n, want: n,
		},
		"a member has no job": {
			settings: settings(nil), bond: gang.Bond{Least: n}, allowed: n, without: "g2", code: evict.GangMinimum,
		},
		"a member is refused": {
			settings: settings(nil), bond: gang.Bond{Least: n}, allowed: n, young: "g2", code: evict.MinAge,
		},
		"a budget allows one too few": {
			settings: settings(nil), bond: gang.Bond{Least: n}, allowed: n - 1, code: evict.PDBViolation,
		},
		"the minimum can be kept": {
			settings: settings(nil), bond: gang.Bond{Least: n - 1}, allowed: n, want: 1, code: evict.GangMinimum,
		},
		"it is evicted together": {
			settings: settings(nil), bond: gang.Bond{Least: n - 1, Whole: true}, allowed: n, want: n,
		},
		"its pods are scheduled alone": {
			settings: settings(nil), bond: gang.Bond{Plain: true}, allowed: 3, want: 3, code: evict.PDBViolation,
		},
		"the cluster allows one too few": {
			settings: settings(func(s *evict.Policy) { s.MaxMigratingGlobally = n - 1 }),
			bond:     gang.Bond{Least: n}, allowed: n, code: evict.CapGlobal,
		},
		"the cluster allows as many": {
			settings: settings(func(s *evict.Policy) { s.MaxMigratingGlobally = n }),
			bond:     gang.Bond{Least: n}, allowed: n, want: n,
		},
		"the workload allows one too few": {
			settings: settings(func(s *evict.Policy) { s.MaxMigratingPerWorkload = share(fmt.Sprint(n - 1)) }),
			bond:     gang.Bond{Least: n}, allowed: n, code: evict.AlreadyEvicting,
		},
	}
	for name, test := range tests {
		s := fleet()
		members(s, "g", n)
		budget := &gang.Budget{Allowed: test.allowed}
		var uids []string
		for i := range n {
			uid := fmt.Sprint("g", i)
			p, _ := s.Pod(uid)
			p.Budgets = []*gang.Budget{budget}
			if uid == test.young {
				p.Created = now
			}
			s.SetPod(p)
			if uid != test.without {
				uids = append(uids, uid)
			}
		}
		s.SetGang("default/g", test.bond)
		passed, refused := s.Arbitrate(limits(test.settings), waiting(s, uids...), now)
		if len(passed) != test.want {
			t.Errorf("%s: passed %v, want %d; refused %v", name, names(passed), test.want, refused)
		}
		for uid, r := range refused {
			if r.Code != test.code {
				t.Errorf("%s: %s refused with %s, want %s", name, uid, r.Code, test.code)
			}
		}
	}
}

// TestTheBackoffHoldsForAWholeGang: that all members start at once does not make them one move with the last one.
func TestTheBackoffHoldsForAWholeGang(t *testing.T) {
	t.Parallel()
	s := fleet()
	members(s, "g", 2)
	s.SetGang("default/g", gang.Bond{Least: 2})
	s.SetJob(job("last", "gone", evicted(time.Minute), func(j *move.Job) { j.Workload = "Job g" }))
	settings := whole
	settings.WorkloadWindow = noWindow
	jobs := waiting(s, "g0", "g1")
	for i := range jobs {
		jobs[i].Created = now
	}
	passed, refused := s.Arbitrate(limits(settings), jobs, now)
	if len(passed) > 0 || refused["j-g0"].Code != evict.OwnerBackoff || refused["j-g1"].Code != evict.OwnerBackoff {
		t.Errorf("passed %v, refused %v; want both refused with OwnerBackoff", names(passed), refused)
	}
}

// TestArbitrationAgainstAPlainLoop compares with the rules as they are written: of the jobs that are left, the best is
// tried next. The order of the input does not count.
func TestArbitrationAgainstAPlainLoop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := fleet()
		var uids []string
		for _, w := range []string{"a", "b", "c"} {
			for i := range 4 {
				uid := fmt.Sprint(w, i)
				p, _ := s.Pod(uid)
				p.Priority = rapid.Int32Range(0, 1).Draw(t, "priority")
				p.EvictionCost = rapid.Int32Range(0, 1).Draw(t, "cost")
				p.QoS = rapid.SampledFrom([]qos.Class{qos.BE, qos.LS, qos.LSR}).Draw(t, "class")
				p.Ready = rapid.IntRange(0, 5).Draw(t, "ready") > 0
				s.SetPod(p)
				if rapid.Bool().Draw(t, "job") {
					uids = append(uids, uid)
				}
			}
		}
		if rapid.Bool().Draw(t, "started") {
			s.SetJob(job("x", "b3", func(j *move.Job) { j.Workload = "Deployment default/b" }))
			uids = slices.DeleteFunc(uids, func(uid string) bool { return uid == "b3" })
		}
		settings := free
		settings.MaxMigratingGlobally = rapid.IntRange(1, 6).Draw(t, "global")
		p := limits(settings)
		order := rapid.Permutation(uids).Draw(t, "order")
		all := waiting(s, order...)
		want := plainLoop(s, p, all)
		for range 2 {
			passed, refused := s.Arbitrate(p, slices.Clone(all), now)
			if got := names(passed); !slices.Equal(got, want) || len(passed)+len(refused) != len(all) {
				t.Fatalf("got %v, want %v; refused %v", got, want, refused)
			}
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
	})
}

// plainLoop tries the best job that is left, until none is.
func plainLoop(s *evict.State, p *evict.Policy, left []move.Job) (passed []string) {
	left = slices.Clone(left)
	moving := map[string]bool{}
	if _, started := s.Job("x"); started {
		moving["Deployment default/b"] = true
	}
	rank := func(j move.Job) []int {
		pod, _ := s.Pod(j.PodUID)
		first := 1
		if moving[pod.Workload] {
			first = 0
		}
		return []int{
			first, int(pod.Priority), map[qos.Class]int{qos.BE: 0, qos.LS: 1, qos.LSR: 2}[pod.QoS],
			int(pod.EvictionCost),
		}
	}
	var tried []move.Job
	for len(left) > 0 {
		best := slices.MinFunc(left, func(a, b move.Job) int {
			count := func(j move.Job) (n int) { // of its workload at this rank
				for _, o := range tried {
					if o.Workload == j.Workload && slices.Equal(rank(o), rank(j)) {
						n++
					}
				}
				return n
			}
			return cmp.Or(slices.Compare(rank(a), rank(b)), cmp.Compare(count(a), count(b)),
				a.Created.Compare(b.Created))
		})
		left = slices.DeleteFunc(left, func(j move.Job) bool { return j.UID == best.UID })
		tried = append(tried, best)
		if len(s.Check(p, best.PodUID, now)) > 0 {
			continue
		}
		best.Started = now
		s.SetJob(best)
		defer func() {
			best.Started = time.Time{}
			s.SetJob(best)
		}()
		passed = append(passed, best.Name)
	}
	return passed
}
