package evict_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const webKey = "Deployment default/web"

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func pointer[T any](v T) *T { return &v }

// unlimited and noWindow are for limits what a limit and a window of zero are for a configuration.
const unlimited = -1

var noWindow = &evict.Window{}

// limits returns a policy that has the defaults of the configuration where a field is zero.
func limits(p evict.Policy) *evict.Policy {
	p.EvictInterval = cmp.Or(p.EvictInterval, 100*time.Millisecond)
	p.EvictBurst = cmp.Or(p.EvictBurst, 1)
	p.MaxMigratingPerNode = cmp.Or(p.MaxMigratingPerNode, 2)
	p.MinPodAge = cmp.Or(p.MinPodAge, 5*time.Minute)
	p.ReturnWindow = cmp.Or(p.ReturnWindow, 30*time.Minute)
	p.OwnerBackoff = cmp.Or(p.OwnerBackoff, 5*time.Minute)
	switch p.WorkloadWindow {
	case nil:
		p.WorkloadWindow = &evict.Window{Duration: 5 * time.Minute}
	case noWindow:
		p.WorkloadWindow = nil
	}
	return &p
}

// share is a number or a percentage.
func share(text string) (i evict.IntOrPercent) {
	text, i.Percent = strings.CutSuffix(text, "%")
	i.Number, _ = strconv.Atoi(text) // "" is the zero value
	return i
}

// pod is a pod of default/web that serves on a node of its own.
func pod(name string, change ...func(*evict.Pod)) evict.Pod {
	p := evict.Pod{
		UID: name, Namespace: "default", Name: name, Node: "n-" + name, Workload: webKey, Created: ago(time.Hour),
		Ready: true,
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func deployment(replicas int) evict.Workload {
	return evict.Workload{
		Key: webKey, Kind: evict.Deployment, Replicas: replicas, StatusReplicas: replicas, Updated: replicas,
		Ready: replicas,
	}
}

// web is a Deployment of so many pods that serve: p0, p1….
func web(replicas int) *evict.State {
	s := evict.NewState()
	s.SetNamespace("default", nil)
	s.SetWorkload(deployment(replicas))
	for i := range replicas {
		p := pod(fmt.Sprintf("p%d", i))
		s.SetNode(p.Node, map[string]string{"zone": "a"})
		s.SetPod(p)
	}
	return s
}

// job is a started job of a pod of default/web.
func job(uid, podUID string, change ...func(*move.Job)) move.Job {
	j := move.Job{
		UID: uid, Name: uid, PodUID: podUID, Namespace: "default", Workload: webKey, Source: "n-" + podUID,
		Created: ago(time.Minute), Started: ago(time.Minute),
	}
	for _, f := range change {
		f(&j)
	}
	return j
}

// evicted is a job that succeeded and evicted its pod so long ago.
func evicted(d time.Duration) func(*move.Job) {
	return func(j *move.Job) {
		j.Created, j.Started = ago(d), ago(d)
		evictAt(j, ago(d))
		end(j, move.Succeeded, ago(d))
	}
}

// evictAt makes a job one that has evicted its pod, at that time as the limits count it.
func evictAt(j *move.Job, at time.Time) {
	j.Status.Conditions = []move.Condition{{
		Type: move.Eviction, True: true, Reason: move.EvictComplete, Probed: at.Add(1 - time.Second),
	}}
}

// end ends a job.
func end(j *move.Job, phase move.Phase, at time.Time) {
	j.Status.Phase = phase
	j.Status.Conditions = append(slices.Clone(j.Status.Conditions), move.Condition{Type: move.Ended, Changed: at})
}

func codes(refused []evict.Refusal) string {
	var all []string
	for _, r := range refused {
		all = append(all, string(r.Code))
	}
	return strings.Join(all, " ")
}

// single refuses p0 of ten replicas with exactly one code.
type single struct {
	code     evict.Code
	settings evict.Policy
	change   func(s *evict.State)
	move     evict.Move
	text     string // of the refusal, without the code
}

func changed(f func(p *evict.Pod)) func(*evict.State) {
	return func(s *evict.State) { s.SetPod(pod("p0", f)) }
}

func workload(f func(w *evict.Workload)) func(*evict.State) {
	return func(s *evict.State) {
		w := deployment(10)
		f(&w)
		s.SetWorkload(w)
	}
}

// other is a job of another workload's pod, so that only the limits of nodes, namespaces and the cluster see it.
func other(uid string, change ...func(*move.Job)) func(*evict.State) {
	return func(s *evict.State) {
		j := job(uid, "x-"+uid, change...)
		j.Workload = "Deployment default/other"
		s.SetJob(j)
	}
}

func gangOf(b gang.Bond, others int) func(*evict.State) {
	return func(s *evict.State) {
		s.SetGang("default/g", b)
		for i := range others + 1 {
			s.SetPod(pod(fmt.Sprintf("p%d", i), func(p *evict.Pod) { p.Gang = "default/g" }))
		}
	}
}

var singles = map[string]single{
	"a source that is not synced": {
		code: evict.LookupFailed, change: func(s *evict.State) { s.SetFault("Pods", "the cache is not synced") },
		text: "cannot decide: Pods: the cache is not synced",
	},
	"an owner that is not known": {
		code: evict.LookupFailed, change: func(s *evict.State) { s.DeleteWorkload(webKey) },
		text: "cannot decide: owner Deployment default/web is not known",
	},
	"a pod that is not known": {
		code: evict.LookupFailed, change: func(s *evict.State) { s.DeletePod("p0") },
		text: "cannot decide: the pod is not known",
	},
	"a gang that is not known": {
		code: evict.LookupFailed, change: changed(func(p *evict.Pod) { p.Gang = "default/g" }),
		text: "cannot decide: gang default/g is not known",
	},
	"a node that is not known": {
		code: evict.LookupFailed, settings: evict.Policy{DomainLimits: []evict.DomainLimit{{"zone", 1}}},
		change: func(s *evict.State) { s.DeleteNode("n-p0") }, text: "cannot decide: node n-p0 is not known",
	},
	"a namespace that is excluded": {
		code: evict.NamespaceNotInCanary, settings: evict.Policy{Exclude: []string{"default"}},
		text: "namespace default is not among those whose pods may be evicted",
	},
	"a pod of a DaemonSet": {
		code: evict.Protected, change: changed(func(p *evict.Pod) { p.Fixed = "it is of a DaemonSet" }),
		text: "the pod is never evicted: it is of a DaemonSet",
	},
	"a pod that costs too much, in spite of its annotation": {
		code: evict.Protected, change: changed(func(p *evict.Pod) {
			p.EvictionCost, p.Evictable = evict.NeverEvict, true
		}), text: "the pod is never evicted: its eviction-cost is 2147483647",
	},
	"a pod that has succeeded": {
		code: evict.Protected, change: changed(func(p *evict.Pod) { p.Succeeded = true }),
		text: "the pod is never evicted: it has succeeded",
	},
	"a bare pod": {
		code: evict.BarePod, change: changed(func(p *evict.Pod) { p.Workload = "" }),
		text: "the pod has no controller that would replace it",
	},
	"a failed bare pod": {
		code: evict.BarePod, change: changed(func(p *evict.Pod) { p.Workload, p.Failed = "", true }),
		text: "the pod has no controller that would replace it",
	},
	"an owner whose replicas cannot be read": {
		code: evict.UnknownOwner, change: workload(func(w *evict.Workload) { w.Kind = evict.Unknown }),
		text: "the replicas of the owner Deployment default/web cannot be read",
	},
	"a priority of the system": {
		code: evict.SystemCritical, change: changed(func(p *evict.Pod) { p.Priority = 2_000_000_000 }),
		text: "priority 2000000000 is system critical; must be below 2000000000",
	},
	"a priority at the threshold": {
		code: evict.PriorityThreshold, settings: evict.Policy{PriorityThreshold: pointer[int32](7)},
		change: changed(func(p *evict.Pod) { p.Priority = 7 }), text: "priority 7 is at or above the threshold 7",
	},
	"labels that are not selected": {
		code: evict.LabelSelector, settings: evict.Policy{LabelSelector: func(l map[string]string) bool {
			return l["a"] == "b"
		}}, text: "the labels of the pod do not match labelSelector",
	},
	"a volume on the node": {
		code: evict.LocalStorage, change: changed(func(p *evict.Pod) { p.LocalVolume = "v" }),
		text: "volume v is on the node and would be lost",
	},
	"a claimed volume": {
		code: evict.PVC, settings: evict.Policy{IgnorePVCPods: true},
		change: changed(func(p *evict.Pod) { p.ClaimedVolume = "c" }),
		text:   "the pod uses the PersistentVolumeClaim c, and ignorePvcPods is set",
	},
	"too few replicas": {
		code: evict.ExpectedReplicas, settings: evict.Policy{
			MaxMigratingPerWorkload: share("10"), SkipEvictionGates: nil,
		},
		text: "workload Deployment default/web has 10 replicas; must have more than 10",
	},
	"three jobs of the pod that failed": {
		code: evict.GaveUp, change: func(s *evict.State) {
			for i := range 3 {
				s.SetJob(job(fmt.Sprint(i), "p0", func(j *move.Job) {
					end(j, move.Failed, ago(time.Duration(40-i)*time.Minute))
				}))
			}
		}, text: "3 jobs of the pod failed; at most 3 may, until 2026-11-26T12:22:00Z",
	},
	"a pause of everything": {
		code: evict.Paused, settings: evict.Policy{Paused: true}, text: "evictions are paused",
	},
	"a young pod": {
		code: evict.MinAge, change: changed(func(p *evict.Pod) { p.Created = ago(299 * time.Second) }),
		text: "the pod is 299 s old; must be 300 s old, until 2026-11-26T12:00:01Z",
	},
	"a rollout": {
		code: evict.RolloutInProgress, change: workload(func(w *evict.Workload) { w.Updated = 9 }),
		text: "workload Deployment default/web: 9 of 10 replicas are updated",
	},
	"a StatefulSet that updates on delete": {
		code: evict.EvictionWouldUpgrade, change: workload(func(w *evict.Workload) {
			w.Kind, w.OnDelete, w.CurrentRevision, w.UpdateRevision = evict.StatefulSet, true, "a", "b"
		}),
		text: "workload Deployment default/web updates on delete and has a new revision: " +
			"the replacement would be the new version",
	},
	"an autoscaler that scales down": {
		code: evict.ScalingDown, change: func(s *evict.State) {
			s.SetScaler("default/h", evict.Scaler{Workload: webKey, Current: 10, Desired: 9})
		}, text: "workload Deployment default/web: 10 replicas, 9 desired",
	},
	"a gang that would lose its minimum": {
		code: evict.GangMinimum, change: gangOf(gang.Bond{Least: 4}, 3),
		text: "gang default/g would keep 3 members of a minimum of 4",
	},
	"a pod that terminates": {
		code: evict.AlreadyEvicting, change: changed(func(p *evict.Pod) { p.Terminating = true }),
		text: "pod default/p0 has 1 of 0 pods that may terminate or migrate at a time",
	},
	"a pod with a job that waits, when another one is proposed": {
		code: evict.AlreadyEvicting, move: evict.Move{Round: ago(time.Second)}, change: func(s *evict.State) {
			s.SetJob(job("a", "p0", func(j *move.Job) { j.Started = time.Time{} }))
		}, text: "pod default/p0 has 1 of 0 pods that may terminate or migrate at a time",
	},
	"a workload of which enough pods migrate": {
		code: evict.AlreadyEvicting, settings: evict.Policy{
			MaxUnavailablePerWorkload: share("5"), WorkloadWindow: noWindow,
		},
		change: func(s *evict.State) {
			s.SetJob(job("a", "p1"))
			s.SetJob(job("b", "p2"))
			for i := range 8 { // another job of a pod has failed
				s.SetJob(job(fmt.Sprint(i), "p1", func(j *move.Job) { j.Status.Phase = move.Failed }))
			}
		}, text: "workload Deployment default/web has 2 of 2 pods that may terminate or migrate at a time",
	},
	"a workload of which enough pods are not ready": {
		code: evict.WorkloadUnavailable, change: func(s *evict.State) {
			for _, name := range []string{"p1", "p2"} {
				s.SetPod(pod(name, func(p *evict.Pod) { p.Ready = false }))
			}
		}, text: "workload Deployment default/web has 2 unavailable replicas; at most 2 may be",
	},
	"a workload of which enough pods do not exist": {
		code: evict.WorkloadUnavailable, change: func(s *evict.State) {
			s.DeletePod("p1")
			s.DeletePod("p2")
		}, text: "workload Deployment default/web has 2 unavailable replicas; at most 2 may be",
	},
	"a workload of which enough pods are not ready beside all that it should have": {
		code: evict.WorkloadUnavailable, change: func(s *evict.State) {
			for _, name := range []string{"new-1", "new-2"} {
				s.SetPod(pod(name, func(p *evict.Pod) { p.Ready = false }))
			}
		}, text: "workload Deployment default/web has 2 unavailable replicas; at most 2 may be",
	},
	"a budget of zero": {
		code: evict.PDBViolation, change: changed(func(p *evict.Pod) { p.Budgets = []*gang.Budget{{Name: "b"}} }),
		text: "PodDisruptionBudget: b allows 0 disruptions, of which evictions in flight use 0",
	},
	"two budgets": {
		code:   evict.PDBViolation,
		change: changed(func(p *evict.Pod) { p.Budgets = []*gang.Budget{{Allowed: 9}, {Allowed: 9}} }),
		text:   "PodDisruptionBudget: the pod is counted by several; the Eviction API refuses that",
	},
	"a window of a workload that is used": {
		code: evict.CapWorkload, change: func(s *evict.State) {
			s.SetJob(job("a", "x", evicted(50*time.Minute)))
			s.SetJob(job("b", "y", evicted(40*time.Minute)))
			s.SetJob(job("c", "z"))
			s.DeleteJob("c")
		}, settings: evict.Policy{WorkloadWindow: &evict.Window{Duration: time.Hour}},
		text: "workload Deployment default/web: 2 of 2 evictions in the window are used, until 2026-11-26T12:10:00Z",
	},
	"a window of a workload that a started job will use": {
		code: evict.CapWorkload, settings: evict.Policy{
			WorkloadWindow: &evict.Window{Duration: time.Hour, MaxMigrating: share("1")},
		}, change: func(s *evict.State) { s.SetJob(job("a", "p1")) },
		text: "workload Deployment default/web: 1 of 1 evictions in the window are used",
	},
	"a window of a namespace in which two are evicted at once": {
		code: evict.CapNamespace, settings: evict.Policy{
			NamespaceWindow: &evict.Window{Duration: time.Hour, MaxMigrating: share("10"), Burst: 2},
		}, change: func(s *evict.State) {
			other("a", evicted(time.Minute))(s)
			other("b", evicted(time.Minute))(s)
		}, text: "namespace default: 2 of 10 migrations are used, until 2026-11-26T12:05:00Z",
	},
	"a node from which enough pods migrate": {
		code: evict.CapNode, settings: evict.Policy{MaxMigratingPerNode: 1},
		change: other("a", func(j *move.Job) { j.Source = "n-p0" }), text: "node n-p0: 1 of 1 migrations are used",
	},
	"a node to which enough pods migrate": {
		code: evict.CapNode, settings: evict.Policy{MaxMigratingPerTargetNode: 1},
		change: other("a", func(j *move.Job) { j.Status.Node = "b" }), move: evict.Move{Target: "b"},
		text: "node b: 1 of 1 migrations are used",
	},
	"a node of which enough pods were proposed in the round": {
		code: evict.CapNode, settings: evict.Policy{MaxPerRoundAndNode: pointer(1)},
		move:   evict.Move{Round: ago(time.Hour)},
		change: other("a", func(j *move.Job) { j.Source, j.Started = "n-p0", time.Time{} }),
		text:   "node n-p0 in this round: 1 of 1 migrations are used",
	},
	"a namespace from which enough pods migrate": {
		code: evict.CapNamespace, settings: evict.Policy{MaxMigratingPerNamespace: 1}, change: other("a"),
		text: "namespace default: 1 of 1 migrations are used",
	},
	"a window of a namespace that is used": {
		code: evict.CapNamespace, settings: evict.Policy{
			NamespaceWindow: &evict.Window{Duration: time.Hour, MaxMigrating: share("1")},
		}, change: other("a", evicted(time.Minute)),
		text: "namespace default: 1 of 1 migrations are used, until 2026-11-26T12:59:00Z",
	},
	"a zone from which enough pods migrate": {
		code: evict.CapDomain, settings: evict.Policy{DomainLimits: []evict.DomainLimit{{"zone", 1}}},
		change: other("a", func(j *move.Job) { j.Source = "n-p1" }), text: "domain zone=a: 1 of 1 migrations are used",
	},
	"a cluster in which enough pods migrate": {
		code: evict.CapGlobal, settings: evict.Policy{MaxMigratingGlobally: 1},
		change: other("a", func(j *move.Job) { j.Namespace = "b" }), text: "cluster: 1 of 1 migrations are used",
	},
	"a round in which enough pods were proposed": {
		code: evict.CapGlobal, settings: evict.Policy{MaxPerRound: pointer(0)},
		move: evict.Move{Round: ago(time.Hour)},
		text: "cluster in this round: 0 of 0 migrations are used",
	},
	"a node that a pod of the workload was moved away from": {
		code: evict.ReturnWindow, move: evict.Move{Target: "n-p1", Job: "own"}, change: func(s *evict.State) {
			s.SetJob(job("a", "p1", evicted(29*time.Minute)))
			s.SetJob(job("own", "p0"))
		}, text: "pods of the workload were moved away from node n-p1",
	},
	"a workload that moved a moment ago": {
		code: evict.OwnerBackoff, change: func(s *evict.State) { s.SetJob(job("a", "x", evicted(time.Minute))) },
		text: "pods of workload Deployment default/web were moved 1 times within 24 h; one more must wait, " +
			"until 2026-11-26T12:04:00Z",
	},
	"a bucket without token": {
		code: evict.RateLimited, settings: evict.Policy{EvictInterval: time.Minute},
		change: other("a", evicted(10*time.Second)),
		text:   "the rate of evictions is used up, until 2026-11-26T12:00:50Z",
	},
}

// TestEachRefusalHasItsOwnCode: D13. Nothing refuses p0 of ten replicas, and each change refuses it with one code.
func TestEachRefusalHasItsOwnCode(t *testing.T) {
	t.Parallel()
	if got := web(10).Check(limits(evict.Policy{}), "p0", now); len(got) > 0 {
		t.Fatalf("a pod that serves: got %v, want no refusal", got)
	}
	tested := map[evict.Code]bool{evict.NodeFit: true} // the scheduler is asked elsewhere
	for name, test := range singles {
		tested[test.code] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, m := web(10), test.move
			if test.change != nil {
				test.change(s)
			}
			m.PodUID = "p0"
			got := s.CheckMove(limits(test.settings), m, now)
			if len(got) != 1 || got[0].String() != string(test.code)+": "+test.text {
				t.Errorf("got  %v\nwant [%s: %s]", got, test.code, test.text)
			}
		})
	}
	for _, c := range evict.Codes() {
		if !tested[c] || c.Remedy() == "" {
			t.Errorf("code %s: tested %v, remedy %q; want both", c, tested[c], c.Remedy())
		}
	}
}

// TestWhatLiftsARefusal: a flag, a gate, the annotation, or the time.
func TestWhatLiftsARefusal(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(test *single){
		"a bare pod":                             func(test *single) { test.settings.EvictAllBarePods = true },
		"a failed bare pod":                      func(test *single) { test.settings.EvictFailedBarePods = true },
		"an owner whose replicas cannot be read": func(test *single) { test.settings.AllowUnknownOwners = true },
		"a priority of the system":               func(test *single) { test.settings.EvictSystemCriticalPods = true },
		"a volume on the node":                   func(test *single) { test.settings.EvictLocalStoragePods = true },
		"too few replicas":                       func(test *single) { test.settings.SkipExpectedNumber = true },
		"a claimed volume":                       func(test *single) { test.settings.IgnorePVCPods = false },
		"three jobs of the pod that failed": func(test *single) {
			fail := test.change
			test.change = func(s *evict.State) {
				fail(s)
				s.DeleteJob("1")
			}
		},
	} {
		test := singles[name]
		change(&test)
		s := web(10)
		if test.change != nil {
			test.change(s)
		}
		test.move.PodUID = "p0"
		if got := s.CheckMove(limits(test.settings), test.move, now); len(got) > 0 {
			t.Errorf("%s: got %v after the flag, want no refusal", name, got)
		}
	}
	gates := map[evict.Code]string{
		evict.NamespaceNotInCanary: "Namespaces", evict.BarePod: "BarePods", evict.SystemCritical: "SystemCritical",
		evict.PriorityThreshold: "PriorityThreshold", evict.LabelSelector: "LabelSelector",
		evict.LocalStorage: "LocalStorage", evict.PVC: "PVC",
		evict.ExpectedReplicas: "ExpectedReplicas", evict.AlreadyEvicting: "MaxMigratingPerWorkload",
		evict.WorkloadUnavailable: "MaxUnavailablePerWorkload", evict.CapNode: "MaxMigratingPerNode",
		evict.CapNamespace: "MaxMigratingPerNamespace", evict.CapGlobal: "MaxMigratingGlobally",
	}
	predicates := []evict.Code{
		evict.BarePod, evict.SystemCritical, evict.PriorityThreshold, evict.LabelSelector, evict.LocalStorage,
		evict.PVC,
	}
	for name, test := range singles {
		check := func(settings evict.Policy, evictable bool) string {
			s := web(10)
			if test.change != nil {
				test.change(s)
			}
			if p, known := s.Pod("p0"); known {
				p.Evictable = p.Evictable || evictable
				s.SetPod(p)
			}
			m := test.move
			m.PodUID = "p0"
			return codes(s.CheckMove(limits(settings), m, now))
		}
		want := string(test.code)
		if slices.Contains(predicates, test.code) {
			want = ""
		}
		if got := check(test.settings, true); got != want {
			t.Errorf("%s: got %q with the annotation, want %q", name, got, want)
		}
		for _, gate := range evict.Gates() {
			settings := test.settings
			settings.SkipEvictionGates = append(slices.Clone(settings.SkipEvictionGates), gate)
			want := string(test.code)
			if gates[test.code] == gate {
				want = ""
			}
			if got := check(settings, false); got != want {
				t.Errorf("%s: got %q with the gate %s skipped, want %q", name, got, gate, want)
			}
		}
	}
}

// TestAFailedPodIsNotProtected: limits that protect what runs do not refuse a pod that has failed, all others do.
func TestAFailedPodIsNotProtected(t *testing.T) {
	t.Parallel()
	service := []evict.Code{
		evict.UnknownOwner, evict.ExpectedReplicas, evict.RolloutInProgress, evict.ScalingDown, evict.GangMinimum,
		evict.WorkloadUnavailable, evict.PDBViolation, evict.CapWorkload, evict.OwnerBackoff,
	}
	for _, c := range evict.Codes() {
		if got, want := c.ProtectsService(), slices.Contains(service, c); got != want {
			t.Errorf("%s: protects service %v, want %v", c, got, want)
		}
	}
	gone := []string{ // singles whose lookups only those limits need, and pods of the workload that terminate or move
		"an owner that is not known", "a gang that is not known", "a workload of which enough pods migrate",
	}
	for name, test := range singles {
		s, m := web(10), test.move
		if test.change != nil {
			test.change(s)
		}
		p, known := s.Pod("p0")
		if p.Failed = true; known {
			s.SetPod(p)
		}
		m.PodUID = "p0"
		want := string(test.code)
		if slices.Contains(service, test.code) || slices.Contains(gone, name) {
			want = ""
		}
		if got := codes(s.CheckMove(limits(test.settings), m, now)); got != want {
			t.Errorf("%s: got %q for a failed pod, want %q", name, got, want)
		}
	}
}

// TestAFailedPodTakesNothingFromItsWorkload: its job, its end and its budget leave the limits to the pods that serve.
func TestAFailedPodTakesNothingFromItsWorkload(t *testing.T) {
	t.Parallel()
	s, budget := web(4), &gang.Budget{Name: "b", Allowed: 1}
	s.SetGang("default/g", gang.Bond{Least: 5})
	for i := range 4 {
		s.SetPod(pod(fmt.Sprintf("p%d", i), func(p *evict.Pod) {
			p.Budgets, p.Gang = []*gang.Budget{budget}, "default/g"
		}))
	}
	for i := range 3 { // all terminate, and a job of each has started or ended
		s.SetPod(pod(fmt.Sprintf("f%d", i), func(p *evict.Pod) {
			p.Failed, p.Ready, p.Terminating = true, false, i > 0
			p.Budgets, p.Gang, p.Node = []*gang.Budget{budget}, "default/g", "n-f"
		}))
		j := s.Propose(fmt.Sprintf("f%d", i), "", ago(time.Minute))
		if i == 2 {
			evictAt(&j, ago(time.Minute))
			end(&j, move.Succeeded, ago(time.Minute))
		}
		s.SetJob(j)
	}
	p := limits(evict.Policy{MaxMigratingPerNode: unlimited})
	for _, name := range []string{"s0", "s1"} {
		s.SetPod(pod(name, func(p *evict.Pod) { p.Succeeded, p.Ready, p.Terminating = true, false, true }))
	}
	s.SetPod(pod("orphan", func(p *evict.Pod) { p.Failed, p.Ready, p.Workload = true, false, "Job default/j" }))
	s.SetWorkload(evict.Workload{Key: "Job default/j", Fault: "its list is not known"})
	if got := codes(s.Check(p, "orphan", now)); got != "" {
		t.Errorf("got %q for a failed pod whose owner cannot be read, want no refusal", got)
	}
	if got := s.Unit("f0"); !slices.Equal(got, []string{"f0"}) {
		t.Errorf("got unit %v, want the failed pod alone", got)
	}
	s.SetGang("default/g", gang.Bond{})
	s.SetGang("default/g", gang.Bond{Least: 1})
	if got := codes(s.Check(p, "p0", now)); got != "" {
		t.Errorf("got %q for a pod that serves, want no refusal", got)
	}
	if got := s.Avoid(p, "p0", now); !slices.Equal(got, []string{"n-p0"}) {
		t.Errorf("got %v to avoid, want the pod's own node alone", got)
	}
	s.SetJob(move.Job{UID: "w", PodUID: "f0"})
	if j, _ := s.Job("w"); j.Workload != "" || j.Gang != "" || j.Source != "n-f" {
		t.Errorf("a waiting job of a failed pod counts for workload %q, gang %q, node %q", j.Workload, j.Gang, j.Source)
	}
}

// TestTheLastMomentOfARefusal: what is allowed at the limit itself.
func TestTheLastMomentOfARefusal(t *testing.T) {
	t.Parallel()
	s := web(10)
	s.SetPod(pod("p0", func(p *evict.Pod) { p.Created = ago(5 * time.Minute) }))
	if got := codes(s.CheckMove(limits(evict.Policy{}), evict.Move{PodUID: "p0", Target: "b"}, now)); got != "" {
		t.Errorf("got %q for a pod of five minutes", got)
	}
}

// TestWhatIsForgottenDoesNotRefuse: objects that are deleted have no effect any more.
func TestWhatIsForgottenDoesNotRefuse(t *testing.T) {
	t.Parallel()
	s, p := web(10), limits(evict.Policy{EvictInterval: time.Hour, MaxMigratingPerNode: 1})
	s.SetJob(job("a", "p1", evicted(10*time.Second)))
	s.SetJob(job("b", "p2", func(j *move.Job) { j.Source = "n-p0" }))
	s.SetScaler("default/h", evict.Scaler{Workload: webKey, Current: 2, Desired: 1})
	s.SetFault("Pods", "the cache is not synced")
	s.SetGang("default/g", gang.Bond{Least: 9, Group: "x"})
	s.SetFault("Pods", "")
	s.DeleteScaler("default/h")
	s.SetGang("default/g", gang.Bond{})
	s.DeleteJob("a")
	s.DeleteJob("b")
	if got := codes(s.Check(p, "p0", now)); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestAJobThatComesBeforeItsPod says where the pod is once that is known.
func TestAJobThatComesBeforeItsPod(t *testing.T) {
	t.Parallel()
	s := evict.NewState()
	s.SetJob(move.Job{UID: "j", PodUID: "p0"})
	s.SetPod(pod("p0"))
	if got := s.Waiting(); len(got) != 1 || got[0].Workload != webKey || got[0].Source != "n-p0" {
		t.Errorf("got %+v, want the workload and the node of the pod", got)
	}
}

// TestFinalRefusalsComeFirst: a job with one of them fails, whatever else refuses.
func TestFinalRefusalsComeFirst(t *testing.T) {
	t.Parallel()
	want := "Protected LocalStorage Paused MinAge RolloutInProgress"
	s := web(10)
	workload(func(w *evict.Workload) { w.Stalled = true })(s)
	s.SetPod(pod("p0", func(p *evict.Pod) {
		p.Fixed, p.LocalVolume, p.Created = "it is of a DaemonSet", "v", now
	}))
	got := s.Check(limits(evict.Policy{Paused: true}), "p0", now)
	if codes(got) != want {
		t.Errorf("got %q, want %q", codes(got), want)
	}
	for i, r := range got {
		if r.Final() != (i < 2) {
			t.Errorf("%s: final %v, want %v", r, r.Final(), i < 2)
		}
	}
	all := evict.Codes()
	first := slices.IndexFunc(all[1:], func(c evict.Code) bool { return !evict.Refusal{Code: c}.Final() })
	for _, c := range all[1+first:] {
		if (evict.Refusal{Code: c}).Final() {
			t.Errorf("%s is final and comes after refusals that are not", c)
		}
	}
}
