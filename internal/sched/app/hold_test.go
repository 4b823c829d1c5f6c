package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// TestAForecastShowsHolds: the unit that holds a node, and those that would fit there if it did not.
func TestAForecastShowsHolds(t *testing.T) {
	promised := noonOfForecast.Add(time.Hour)
	for name, tt := range map[string]struct {
		rules gang.HoldRules
		start time.Time
		want  map[string]string
	}{
		"with backfill": {gang.HoldRules{Most: 1, Backfill: true}, promised, map[string]string{
			"pod/default/no-end": "node n is held for pod/default/large until about 13:00; " +
				"this one declares no run time",
			"pod/default/late": "node n is held for pod/default/large until about 13:00; this one would end at 14:00",
			"gang/default/g":   "node n is held for pod/default/large until about 13:00; this one would end at 14:00",
		}},
		"without backfill": {gang.HoldRules{Most: 1}, promised, map[string]string{
			"pod/default/no-end": "node n is held for pod/default/large until about 13:00; backfill is disabled",
			"pod/default/late":   "node n is held for pod/default/large until about 13:00; backfill is disabled",
			"pod/default/short":  "node n is held for pod/default/large until about 13:00; backfill is disabled",
			"gang/default/g":     "node n is held for pod/default/large until about 13:00; backfill is disabled",
		}},
		"a hold that has ended": {gang.HoldRules{Most: 1}, time.Time{}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTimed(t, "n")
			large := exclusive("large", "28", age(9))
			a.know(bound("r", "n", list(0, 16), expects("1h"), since(0)), large,
				exclusive("no-end", "4", age(5)), exclusive("late", "4", age(4), expects("2h")),
				exclusive("short", "4", age(3), expects("1h")),
				exclusive("g-0", "2", object.Gang("g", "2"), age(2), expects("2h")),
				exclusive("g-1", "2", object.Gang("g", "2"), age(2), expects("1h")),
				exclusive("too-large", "20", age(1)))
			hold := gang.Hold{
				Rank: a.gangs.RankOf(large), Start: tt.start, Since: noonOfForecast,
				Nodes: map[string]string{string(large.UID): "n"},
			}
			if tt.start.IsZero() {
				hold.Rank.Name = "pod/default/started"
			}
			a.gangs.Read(func(s *gang.State) {
				s.SetHoldRules(tt.rules)
				s.PublishHolds([]gang.Hold{hold})
			})
			info, err := framework.NewPodInfo(large)
			testkit.Check(t, err)
			a.core.SchedulingQueue.Add(t.Context(), large) // the queue has the nominated pod's requests
			a.core.SchedulingQueue.AddNominatedPod(klog.Background(), info,
				&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n"})
			answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
			testkit.Check(t, err)
			got := map[string]string{}
			for _, u := range answer.Forecast.Queue {
				if holds := u.Hold != nil; holds != (u.Name == hold.Unit()) {
					t.Errorf("%s holds nodes: %t", u.Name, holds)
				}
				if u.HeldBack != nil {
					got[u.Name] = u.HeldBack.Text(a.now)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAForecastKnowsWhatAHeldPodLeaves: of 32 CPUs, of which two are always shared. A pod without a declared end that
// the node has room for beside the held one, at its start, starts now. One more does not.
func TestAForecastKnowsWhatAHeldPodLeaves(t *testing.T) {
	a := newTimed(t, "n")
	a.now = time.Now()
	started := func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: a.now} }
	large := exclusive("large", "26", age(9))
	a.know(bound("r", "n", list(0, 16), expects("1h"), started), large, exclusive("left", "4", age(5)),
		exclusive("more", "2", age(4)))
	hold := gang.Hold{
		Rank: a.gangs.RankOf(large), Start: a.now.Add(time.Hour + time.Minute), Since: a.now,
		Nodes: map[string]string{string(large.UID): "n"},
	}
	a.gangs.Read(func(s *gang.State) {
		s.SetHoldRules(gang.HoldRules{Most: 1, Backfill: true})
		s.PublishHolds([]gang.Hold{hold})
	})
	info, err := framework.NewPodInfo(large)
	testkit.Check(t, err)
	a.core.SchedulingQueue.Add(t.Context(), large)
	a.core.SchedulingQueue.AddNominatedPod(klog.Background(), info,
		&fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n"})
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(t, err)
	got := map[string]string{}
	for _, u := range answer.Forecast.Queue {
		got[u.Name] = u.Start.State
		if (u.HeldBack != nil) != (u.Name == "pod/default/more") {
			t.Errorf("%s is held back by %+v", u.Name, u.HeldBack)
		}
	}
	want := map[string]string{
		"pod/default/large": view.StartsAfter, "pod/default/left": view.StartsNow,
		"pod/default/more": view.StartUnknown,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPodsOfOneSecondHaveOneOrder: a forecast has pods and a gang that came in the same second in the order in which
// holds yield to them. If a pod's own name were its rank's, a would be before the gang here and behind it there.
func TestPodsOfOneSecondHaveOneOrder(t *testing.T) {
	a := newTimed(t, "n")
	member, alone := exclusive("m-0", "26", object.Gang("m", "1"), age(9)), exclusive("a", "4", age(9))
	a.know(bound("r", "n", list(0, 16)), member, alone, exclusive("z", "4", age(9)))
	var order []string
	answer, err := a.answer(`{"ask":{"mode":"forecast"}}`)
	testkit.Check(t, err)
	for _, u := range answer.Forecast.Queue {
		order = append(order, u.Name)
	}
	if diff := cmp.Diff([]string{"gang/default/m", "pod/default/a", "pod/default/z"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	hold := gang.Hold{Rank: a.gangs.RankOf(member)}
	if (gang.HoldRules{Most: 1}).Yields(hold, gang.HoldUser{Rank: a.gangs.RankOf(alone)}) {
		t.Error("the gang's hold yields to a pod behind it")
	}
}
