package evict_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
)

// TestRollouts: when a workload's pods are being replaced, or not any more, by its kind.
func TestRollouts(t *testing.T) {
	t.Parallel()
	set := func(partition, updated int, change ...func(w *evict.Workload)) func(w *evict.Workload) {
		return func(w *evict.Workload) {
			w.Kind, w.Partition, w.Updated = evict.StatefulSet, partition, updated
			w.CurrentRevision, w.UpdateRevision = "a", "b"
			for _, f := range change {
				f(w)
			}
		}
	}
	clones := func(updated int, change ...func(w *evict.Workload)) func(w *evict.Workload) {
		return func(w *evict.Workload) {
			w.Kind, w.Updated = evict.CloneSet, updated
			for _, f := range change {
				f(w)
			}
		}
	}
	paused := func(w *evict.Workload) { w.PausedUpdate = true }
	const rollout = "RolloutInProgress: workload Deployment default/web: "
	tests := map[string]struct {
		change func(w *evict.Workload)
		parked bool
		want   string
	}{
		"a generation that is not observed, of any kind": {
			change: func(w *evict.Workload) { w.Kind, w.Generation, w.Observed = evict.ReplicaSet, 3, 2 },
			want:   rollout + "generation 3 is not observed, the last one is 2",
		},
		"a Deployment with old pods beside enough new ones": {
			change: func(w *evict.Workload) { w.Updated, w.StatusReplicas, w.Replicas = 9, 10, 9 },
			want: rollout + "9 of 10 replicas are updated" +
				"ScalingDown: workload Deployment default/web: 10 replicas, 9 desired",
		},
		"a Deployment that does not progress": {
			change: func(w *evict.Workload) { w.Stalled = true }, want: rollout + "the rollout does not progress",
		},
		"a StatefulSet at rest": {change: set(0, 10, func(w *evict.Workload) { w.UpdateRevision = "a" })},
		"a StatefulSet at rest that says nothing of updated replicas": {
			change: set(0, 0, func(w *evict.Workload) { w.UpdateRevision = "a" }),
		},
		"a StatefulSet with old pods above the partition": {
			change: set(7, 2), parked: true, want: rollout + "2 of 3 replicas are updated",
		},
		"a StatefulSet that stopped at its partition": {
			change: set(7, 3), want: rollout + "the update has stopped at partition 7",
		},
		"a StatefulSet that stopped at its partition, where that is allowed": {change: set(7, 3), parked: true},
		"a StatefulSet that stopped, where that is allowed, with a pod that is not ready": {
			change: set(7, 3, func(w *evict.Workload) { w.Ready = 9 }), parked: true,
			want: rollout + "the update has stopped at partition 7",
		},
		"a partition above all replicas, where that is allowed": {change: set(11, 0), parked: true},
		"an Advanced StatefulSet that is paused with old pods left, where a stop is allowed": {
			change: set(7, 3, paused), parked: true,
			want: rollout + "the update is paused with 3 of 10 replicas updated",
		},
		"a CloneSet with fewer updated pods than expected": {
			change: clones(3, func(w *evict.Workload) { w.ExpectedUpdated, w.Partition = pointer(4), 9 }),
			want:   rollout + "3 of 4 replicas are updated",
		},
		"a CloneSet with as many updated pods as expected": {
			change: clones(4, func(w *evict.Workload) { w.ExpectedUpdated = pointer(4) }),
		},
		"a CloneSet that does not say what it expects": {
			change: clones(3, func(w *evict.Workload) { w.Partition = 6 }),
			want:   rollout + "3 of 4 replicas are updated",
		},
		"a CloneSet at its partition that does not say what it expects": {
			change: clones(4, func(w *evict.Workload) { w.Partition = 6 }),
		},
		"a CloneSet that is paused with old pods left": {
			change: clones(4, paused, func(w *evict.Workload) { w.ExpectedUpdated = pointer(4) }),
			want:   rollout + "the update is paused with 4 of 10 replicas updated",
		},
		"a CloneSet that is paused when all pods are updated": {change: clones(10, paused)},
		"a kind with other replicas than its scale says": {
			change: func(w *evict.Workload) { w.Kind, w.StatusReplicas = evict.Scaled, 9 },
			want:   rollout + "9 replicas exist, 10 are desired",
		},
		"a kind with as many replicas as its scale says": {
			change: func(w *evict.Workload) { w.Kind, w.Updated = evict.Scaled, 0 },
		},
		"more replicas than desired": {
			change: func(w *evict.Workload) { w.Kind, w.StatusReplicas = evict.ReplicaSet, 11 },
			want:   "ScalingDown: workload Deployment default/web: 11 replicas, 10 desired",
		},
		"a pod that the spec wants deleted": {
			change: func(w *evict.Workload) { w.Leaving = []string{"p4", "gone"} },
			want:   "ScalingDown: workload Deployment default/web: 11 replicas, 10 desired",
		},
		"only pods that do not exist are to be deleted": {
			change: func(w *evict.Workload) { w.Leaving = []string{"gone"} },
		},
	}
	for name, test := range tests {
		s := web(10)
		workload(test.change)(s)
		got := s.Check(limits(evict.Policy{AllowParkedPartition: test.parked}), "p0", now)
		text := ""
		for _, r := range got {
			text += r.String()
		}
		if text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, text, test.want)
		}
	}
}

// TestNoPodIsEvictedInARollout: D3. Whatever else is so, a visible rollout or scale-down refuses, with all gates
// skipped and all flags set.
func TestNoPodIsEvictedInARollout(t *testing.T) {
	t.Parallel()
	p := limits(evict.Policy{
		SkipEvictionGates: evict.Gates(), AllowParkedPartition: true, AllowUnknownOwners: true,
		MinPodAge: -1,
	})
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int { return rapid.IntRange(0, 4).Draw(t, name) }
		w := evict.Workload{
			Key: webKey, Kind: evict.Kind(rapid.IntRange(1, 5).Draw(t, "kind")), Replicas: n("replicas"),
			StatusReplicas: n("status"), Updated: n("updated"), Ready: n("ready"), Generation: int64(n("generation")),
			Observed: int64(n("observed")), Stalled: rapid.Bool().Draw(t, "stalled"), Partition: n("partition"),
			CurrentRevision: fmt.Sprint(n("current") / 3), UpdateRevision: fmt.Sprint(n("update") / 3),
		}
		s := web(4)
		s.SetWorkload(w)
		refused := codes(s.Check(p, "p0", now))
		differ := w.CurrentRevision != w.UpdateRevision
		rollout := w.Generation != w.Observed || w.StatusReplicas > w.Replicas ||
			w.Kind == evict.Deployment && (w.Updated < w.Replicas || w.Updated < w.StatusReplicas || w.Stalled) ||
			w.Kind == evict.StatefulSet && differ && (w.Updated < w.Replicas-w.Partition || w.Ready < w.Replicas) ||
			w.Kind == evict.CloneSet && w.Updated < w.Replicas-w.Partition ||
			w.Kind == evict.Scaled && w.StatusReplicas != w.Replicas
		none := w.Replicas == 0 // the limit of evictions per workload is none
		if (rollout || none) == (refused == "") {
			t.Errorf("%+v: got %q, a rollout or scale-down is visible: %v", w, refused, rollout)
		}
	})
}

// members puts n members of a gang that hold resources: g0, g1….
func members(s *evict.State, id string, n int) {
	for i := range n {
		s.SetPod(pod(fmt.Sprintf("%s%d", id, i), func(p *evict.Pod) { p.Gang, p.Workload = "default/"+id, "Job "+id }))
	}
	s.SetWorkload(evict.Workload{Key: "Job " + id, Kind: evict.Unknown, Batch: true})
}

// whole allows a gang to be moved as a whole, as far as the limits of its workload are concerned.
var whole = evict.Policy{
	MaxMigratingPerWorkload: share("100%"), MaxUnavailablePerWorkload: share("100%"), SkipExpectedNumber: true,
	AllowUnknownOwners: true,
}

// TestGangsKeepTheirMinimum: members that a gang can spare may go; else all of its gang group leave, or none.
func TestGangsKeepTheirMinimum(t *testing.T) {
	t.Parallel()
	p := limits(whole)
	tests := map[string]struct {
		put  func(s *evict.State)
		want string
	}{
		"five of four": {put: func(s *evict.State) {
			members(s, "g", 5)
			s.SetGang("default/g", gang.Bond{Least: 4})
		}},
		"four of four": {put: func(s *evict.State) {
			members(s, "g", 4)
			s.SetGang("default/g", gang.Bond{Least: 4})
		}, want: "GangMinimum"},
		"five of four that are evicted together": {put: func(s *evict.State) {
			members(s, "g", 5)
			s.SetGang("default/g", gang.Bond{Least: 4, Whole: true})
		}, want: "GangMinimum"},
		"pods that say that they are a gang and are none": {put: func(s *evict.State) {
			members(s, "g", 4)
			s.SetGang("default/g", gang.Bond{Least: 4, Plain: true})
		}},
		"five of four, one leaves": {put: func(s *evict.State) {
			members(s, "g", 5)
			s.SetGang("default/g", gang.Bond{Least: 4})
			s.SetJob(job("j", "g1", func(j *move.Job) { j.Workload = "Job g" }))
		}, want: "GangMinimum"},
		"four of four of which the others leave": {put: func(s *evict.State) {
			members(s, "g", 4)
			s.SetGang("default/g", gang.Bond{Least: 4})
			for _, uid := range []string{"g1", "g2", "g3"} {
				s.SetJob(job("j"+uid, uid, func(j *move.Job) { j.Workload = "Job g" }))
			}
		}},
		"a gang that leaves while another one of its group does not": {put: func(s *evict.State) {
			members(s, "g", 1)
			members(s, "h", 1)
			s.SetGang("default/g", gang.Bond{Least: 1, Group: "x"})
			s.SetGang("default/h", gang.Bond{Least: 1, Group: "x"})
		}, want: "GangMinimum"},
		"the last of a move whose first member is replaced": {put: func(s *evict.State) {
			members(s, "g", 2)
			s.SetGang("default/g", gang.Bond{Least: 2})
			ofGang := func(j *move.Job) { j.Gang, j.Workload = "default/g", "Job g" }
			s.SetJob(job("a", "g1", evicted(30*time.Second), ofGang))
			s.SetJob(job("b", "g0", ofGang))
			s.DeletePod("g1")
			s.SetPod(pod("new", func(p *evict.Pod) {
				p.Gang, p.Workload, p.Created = "default/g", "Job g", ago(20*time.Second)
			}))
		}},
		"the last of a move whose first member was replaced within the second": {put: func(s *evict.State) {
			members(s, "g", 2)
			s.SetGang("default/g", gang.Bond{Least: 2})
			ofGang := func(j *move.Job) { j.Gang, j.Workload = "default/g", "Job g" }
			s.SetJob(job("a", "g1", evicted(30*time.Second), ofGang, func(j *move.Job) {
				evictAt(j, ago(30*time.Second).Add(time.Second-1)) // as objects have it
			}))
			s.SetJob(job("b", "g0", ofGang))
			s.DeletePod("g1")
			s.SetPod(pod("new", func(p *evict.Pod) {
				p.Gang, p.Workload, p.Created = "default/g", "Job g", ago(30*time.Second)
			}))
		}},
	}
	for name, test := range tests {
		s := web(10)
		test.put(s)
		if got := codes(s.Check(p, "g0", now)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestUnits: what must move with a pod.
func TestUnits(t *testing.T) {
	t.Parallel()
	s := web(2)
	members(s, "g", 3)
	members(s, "h", 2)
	s.SetGang("default/g", gang.Bond{Least: 3, Group: "x"})
	s.SetGang("default/h", gang.Bond{Least: 1, Group: "x"})
	s.SetPod(pod("g9", func(p *evict.Pod) { p.Gang, p.Node = "default/g", "" }))
	all := []string{"g0", "g1", "g2", "h0", "h1"}
	inMove := func(j *move.Job) { j.Gang, j.Workload = "default/g", "Job g" }
	s.SetJob(job("a", "gone", evicted(30*time.Second), inMove)) // its pod was a member, which g8 replaces
	s.SetJob(job("b", "g1", inMove))
	s.SetPod(pod("g8", func(p *evict.Pod) {
		p.Gang, p.Workload, p.Created = "default/g", "Job g", ago(20*time.Second)
	}))
	for uid, want := range map[string][]string{"p0": {"p0"}, "h0": {"h0"}, "g1": all, "unknown": {"unknown"}} {
		if got := s.Unit(uid); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", uid, got, want)
		}
	}
}
