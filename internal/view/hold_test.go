package view

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/gang"
)

var noonOfHold = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestHoldText(t *testing.T) {
	t.Parallel()
	nodes := map[string]string{"u1": "n1", "u0": "n0", "u2": "n1"}
	promised := gang.Hold{Rank: gang.Rank{Name: "ml/g"}, Start: noonOfHold.Add(time.Hour), Nodes: nodes}
	const until = "n0, n1 until it starts, at the latest at 13:00 by declared run times; others that may use them: " +
		"pods before it in the queue"
	for name, c := range map[string]struct {
		hold  gang.Hold
		rules gang.HoldRules
		want  string
	}{
		"with backfill": {
			promised,
			gang.HoldRules{Backfill: true, Below: math.MinInt32},
			until + ", pods that end by then or leave it enough",
		},
		"without backfill": {promised, gang.HoldRules{Below: math.MinInt32}, until},
		"evicts at no loss": {
			promised, gang.HoldRules{Below: 0}, until + ", pods that it may evict at no loss",
		},
		"overtaken": {
			gang.Hold{Nodes: nodes},
			gang.HoldRules{Backfill: true, Below: math.MinInt32},
			"n0, n1 until it starts, at an unknown time: others overtook it as often as maxOvertakes allows; " +
				"others that may use them: pods before it in the queue",
		},
	} {
		if got := HoldOf(c.hold, c.rules).Text(noonOfHold); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestHeldBackText(t *testing.T) {
	t.Parallel()
	promised := gang.Hold{Rank: gang.Rank{Name: "ml/g"}, Start: noonOfHold.Add(time.Hour)}
	backfill := gang.HoldRules{Backfill: true}
	later := noonOfHold.Add(2 * time.Hour)
	for name, c := range map[string]struct {
		hold  gang.Hold
		rules gang.HoldRules
		ends  time.Time
		want  string
	}{
		"declares nothing": {
			promised, backfill,
			time.Time{},
			"node n is held for gang/ml/g until about 13:00; this one declares no run time",
		},
		"ends later": {
			promised, backfill, later, "node n is held for gang/ml/g until about 13:00; this one would end at 14:00",
		},
		"no backfill": {
			promised, gang.HoldRules{}, later, "node n is held for gang/ml/g until about 13:00; backfill is disabled",
		},
		"no promise": {
			gang.Hold{Rank: promised.Rank}, backfill, later, "node n is held for gang/ml/g, whose start is not known",
		},
	} {
		if got := HeldBackBy(c.hold, c.rules, "n", c.ends).Text(noonOfHold); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestAForecastHidesWhatNodesAreHeldFor: the name alone, in namespaces that the caller may not read.
func TestAForecastHidesWhatNodesAreHeldFor(t *testing.T) {
	t.Parallel()
	held := func(name string) WaitingUnit {
		return WaitingUnit{Name: "pod/open/a", Pods: []string{"open/a"}, HeldBack: &HeldBack{Node: "n", For: name}}
	}
	f := &Forecast{Queue: []WaitingUnit{held("gang/secret/g"), held("gang/open/g")}}
	got := f.For(func(namespace string) bool { return namespace == "open" })
	if diff := cmp.Diff([]WaitingUnit{held(""), held("gang/open/g")}, got.Queue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const want = "node n is held for a gang or pod that you may not read, whose start is not known"
	if text := got.Queue[0].HeldBack.Text(noonOfHold); text != want || f.Queue[0].HeldBack.For == "" {
		t.Errorf("%q, and the forecast of others has %v", text, f.Queue[0].HeldBack)
	}
}
