package diag

import (
	"slices"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
)

func TestDecisionsRememberTheBestScores(t *testing.T) {
	scores := []fwk.NodePluginScores{
		{Name: "a", TotalScore: 10},
		{Name: "b", TotalScore: 30, Scores: []fwk.PluginScore{{Name: "x", Score: 30}}},
		{Name: "c", TotalScore: 20},
		{Name: "d", TotalScore: 5},
		{Name: "e", TotalScore: 30},
	}
	var got []string
	for _, s := range best(scores, 3) {
		got = append(got, s.Node)
	}
	if want := []string{"b", "e", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
