package diag

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// rankedProfile has a ranking of five nodes, of which four fit.
type rankedProfile struct{ framework.Framework }

func (rankedProfile) ProfileName() string { return "ranked" }

func (rankedProfile) ListPlugins() *schedulerconfig.Plugins {
	return &schedulerconfig.Plugins{Score: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{
		{Name: "Y", Weight: 3}, {Name: "Silent", Weight: 2},
	}}}
}

func (rankedProfile) Proposed(int) (scores []fwk.NodePluginScores, feasible, evaluated int) {
	return []fwk.NodePluginScores{
		{Name: "a", TotalScore: 9, Scores: []fwk.PluginScore{{Name: "Y", Score: 9}}},
		{Name: "b", TotalScore: 6, Scores: []fwk.PluginScore{{Name: "Y", Score: 6}}},
	}, 4, 5
}

func (rankedProfile) Raw(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node string) map[string]int64 {
	return map[string]int64{"Y": int64(len(node)) + 70}
}

// TestADecisionOfARankingCountsTheNodesThatItRanked, where the cycle asked the proposed node alone. For another node
// than the proposed one, which all nodes were asked for, the ranking says nothing.
func TestADecisionOfARankingCountsTheNodesThatItRanked(t *testing.T) {
	t.Parallel()
	raw := int64(71)
	silent := view.PluginScore{Name: "Silent", Weight: 2}
	for chosen, want := range map[string]view.Decision{
		"a": {
			Feasible: 4, Of: 5,
			Scores: []view.Score{
				{Node: "a", Total: 9, Plugins: []view.PluginScore{
					silent, {Name: "Y", Score: 9, Normalized: 3, Weight: 3, Raw: &raw},
				}},
				{Node: "b", Total: 6, Plugins: []view.PluginScore{
					silent, {Name: "Y", Score: 6, Normalized: 2, Weight: 3, Raw: &raw},
				}},
			},
		},
		"c": {Feasible: 1, Of: 2},
	} {
		asked := scheduler.ScheduleResult{SuggestedHost: chosen, FeasibleNodes: 1, EvaluatedNodes: 2}
		var ring Ring
		result, err := ring.Record(&Flags{}, func(context.Context, framework.Framework, fwk.CycleState,
			*framework.QueuedPodInfo,
		) (scheduler.ScheduleResult, error) {
			return asked, nil
		})(t.Context(), rankedProfile{}, nil, &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: &corev1.Pod{}}})
		if err != nil || result != asked {
			t.Errorf("got %+v, %v; want the cycle's result", result, err)
		}
		got := ring.List("")[0]
		if diff := cmp.Diff(want, view.Decision{Feasible: got.Feasible, Of: got.Of, Scores: got.Scores}); diff != "" {
			t.Errorf("decision for %s (-want +got):\n%s", chosen, diff)
		}
	}
}

// TestADecisionNamesTheReservationThatItIsFor: users do not know the pod that is scheduled for it.
func TestADecisionNamesTheReservationThatItIsFor(t *testing.T) {
	t.Parallel()
	r := &v1alpha1.Reservation{}
	r.Name, r.UID = "room", "uid"
	pod := convert.PendingReservePod(r, "ranked", false)
	var ring Ring
	if _, err := ring.Record(&Flags{}, func(context.Context, framework.Framework, fwk.CycleState,
		*framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		return scheduler.ScheduleResult{SuggestedHost: "a"}, nil
	})(t.Context(), rankedProfile{}, nil, &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}}); err != nil {
		t.Fatal(err)
	}
	got, known := ring.Last("uid")
	if _, other := ring.Last("other"); got.Pod != "reservation/room" || !known || other {
		t.Errorf("got %q, known: %t", got.Pod, known)
	}
}

// clusterProfile has a cluster of some nodes.
type clusterProfile struct {
	framework.Framework
	nodes int
}

func (p clusterProfile) SnapshotSharedLister() fwk.SharedLister {
	nodes := make([]*corev1.Node, p.nodes)
	for i := range nodes {
		nodes[i] = object.Node(string(rune('a'+i)), nil)
	}
	return cache.NewSnapshot(nil, nodes)
}

func TestADecisionNamesTheOneCauseForWhichNoOtherNodeWasConsidered(t *testing.T) {
	t.Parallel()
	affine := func(node string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}},
			},
		}}}}
	}
	member := &corev1.Pod{}
	member.Annotations = map[string]string{annotation.GangName: "g"}
	nominated := &corev1.Pod{}
	nominated.Status.NominatedNodeName = "a"
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		nodes int
		want  string
	}{
		"one node":               {affine("a"), 1, "the cluster has no other"},
		"an affinity":            {affine("a"), 2, "the pod's node affinity names it"},
		"an affinity to another": {affine("b"), 2, ""},
		"a gang":                 {member, 2, "the plan of the pod's gang names it"},
		"a nomination":           {nominated, 2, "the pod's status.nominatedNodeName names it"},
		"a plain pod":            {&corev1.Pod{}, 2, ""},
	} {
		if got := only(clusterProfile{nodes: c.nodes}, c.pod, "a"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDecisionsRememberTheBestScores(t *testing.T) {
	scores := []fwk.NodePluginScores{
		{Name: "a", TotalScore: 10},
		{Name: "b", TotalScore: 30, Scores: []fwk.PluginScore{{Name: "x", Score: 30}}},
		{Name: "c", TotalScore: 20},
		{Name: "d", TotalScore: 5},
		{Name: "e", TotalScore: 30},
	}
	slices.Reverse(scores) // equal scores are ordered by node, not by position
	var got []string
	for _, s := range best(scores, 3) {
		got = append(got, s.Name)
	}
	if want := []string{"b", "e", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
