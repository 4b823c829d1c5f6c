package diag

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
	"github.com/tenon-project/tenon/internal/view"
)

// The first two rows of seed 003's table.
func seedDecision() view.Decision {
	row := func(node string, total int64, load, balanced, fit int64) view.Score {
		return view.Score{Node: node, Total: total, Plugins: []view.PluginScore{
			{Name: "TaintToleration", Score: 100},
			{Name: "PodTopologySpread", Score: 200},
			{Name: "Reservation"},
			{Name: "NodeNUMAResource"},
			{Name: "ImageLocality"},
			{Name: "InterPodAffinity"},
			{Name: "NodeAffinity"},
			{Name: "LoadAwareScheduling", Score: load},
			{Name: "NodeResourcesBalancedAllocation", Score: balanced},
			{Name: "NodeResourcesFit", Score: fit},
		}}
	}
	return view.Decision{
		Pod: "default/curlimage-545745d8f8-rngp7",
		Scores: []view.Score{
			row("cn-hangzhou.10.0.4.50", 574, 85, 96, 93), row("cn-hangzhou.10.0.4.51", 577, 87, 96, 94),
		},
	}
}

const seedTable = `| # | Pod | Node | Score | ImageLocality | InterPodAffinity | LoadAwareScheduling | NodeAffinity | NodeNUMAResource | NodeResourcesBalancedAllocation | NodeResourcesFit | PodTopologySpread | Reservation | TaintToleration |
| --- | --- | --- | ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:| ---:|
| 0 | default/curlimage-545745d8f8-rngp7 | cn-hangzhou.10.0.4.51 | 577 | 0 | 0 | 87 | 0 | 0 | 96 | 94 | 200 | 0 | 100 |
| 1 | default/curlimage-545745d8f8-rngp7 | cn-hangzhou.10.0.4.50 | 574 | 0 | 0 | 85 | 0 | 0 | 96 | 93 | 200 | 0 | 100 |
`

func TestScoreTableOfTheSeed(t *testing.T) {
	t.Parallel()
	d := seedDecision()
	if diff := cmp.Diff(seedTable, ScoreTable(d, 100)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for i := range d.Scores { // the framework leaves out plugins that skip the pod
		d.Scores[i].Plugins = slices.DeleteFunc(d.Scores[i].Plugins,
			func(p view.PluginScore) bool { return p.Score == 0 })
	}
	silent := []string{
		"Reservation", "NodeNUMAResource", "ImageLocality", "InterPodAffinity", "NodeAffinity",
		"TaintToleration",
	}
	if diff := cmp.Diff(seedTable, ScoreTable(d, 100, silent...)); diff != "" {
		t.Errorf("table with silent plugins (-want +got):\n%s", diff)
	}
	if d.Scores[0].Node != "cn-hangzhou.10.0.4.50" {
		t.Error("the caller's slice was sorted in place")
	}
}

func TestTheRingKeepsTheLastDecisionsNewestFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3*DecisionsKept).Draw(t, "decisions")
		r := &Ring{}
		var all []string
		for i := range n {
			name := fmt.Sprintf("ns/p%d", i)
			r.Add(view.Decision{Pod: name, UID: name})
			all = append(all, name)
		}
		slices.Reverse(all)
		want := all[:min(n, DecisionsKept)]
		got := []string{}
		for _, d := range r.List("") {
			got = append(got, d.Pod)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("after %d decisions: got %v, want %v", n, got, want)
		}
		if n > 0 {
			if _, ok := r.Last(all[0], all[0]); !ok {
				t.Fatalf("the newest decision %s is not found", all[0])
			}
		}
		if n > DecisionsKept {
			if _, ok := r.Last("ns/p0", "ns/p0"); ok {
				t.Fatal("the oldest decision is still there")
			}
		}
	})
}
