package view_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if diff := cmp.Diff(seedTable, view.ScoreTable(d, 100)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if d.Scores[0].Node != "cn-hangzhou.10.0.4.50" {
		t.Error("the caller's slice was sorted in place")
	}
}
