package ranking

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// plain is a profile in which one plugin has nothing to score.
type plain struct{ framework.Framework }

func (plain) RunPreScorePlugins(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	state.SetSkipScorePlugins(sets.New("Idle"))
	return nil
}

func (plain) RunPreFilterPlugins(_ context.Context, _ fwk.CycleState, pod *corev1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	if pod.Name == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable), nil
	}
	return nil, nil, nil
}

type valuer struct {
	decides bool
	arrived []string
}

func (v *valuer) Recall() {}

func (v *valuer) Arrived(_ fwk.CycleState, pod *corev1.Pod) { v.arrived = append(v.arrived, pod.Name) }
func (v *valuer) Epoch() uint64                             { return 1 }
func (v *valuer) Decides(fwk.CycleState) bool               { return v.decides }

func TestScoresThatDoNotCountBesideAValuer(t *testing.T) {
	t.Parallel()
	bare, spread := &corev1.Pod{}, &corev1.Pod{}
	spread.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}}
	capacity := []string{"Idle", names.NodeResourcesBalancedAllocation, names.NodeResourcesFit}
	withSpreading := slices.Concat(capacity, []string{names.PodTopologySpread})
	for name, tc := range map[string]struct {
		valuer Valuer
		pod    *corev1.Pod
		want   []string
	}{
		"no valuer":              {nil, bare, []string{"Idle"}},
		"it does not decide":     {&valuer{}, bare, []string{"Idle"}},
		"default spreading":      {&valuer{decides: true}, bare, withSpreading},
		"the pod's own, counted": {&valuer{decides: true}, spread, capacity},
	} {
		p, state := &Profile{Framework: plain{}, plugins: plugins{valuer: tc.valuer}}, framework.NewCycleState()
		if status := p.RunPreScorePlugins(t.Context(), state, tc.pod, nil); !status.IsSuccess() {
			t.Fatal(status)
		}
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, sets.List(state.GetSkipScorePlugins())); diff != "" {
			t.Errorf("%s: plugins without a score (-want +got):\n%s", name, diff)
		}
		for _, plugin := range tc.want {
			p.scorers = []scorer{{ScorePlugin: named(plugin)}}
			if valued, want := p.prepare(t.Context(), 0, state, tc.pod), plugin == "Idle"; valued != want {
				t.Errorf("%s: in a ranking, %s scores: %t, want %t", name, plugin, valued, want)
			}
		}
	}
}

// named is a plugin that would score every pod.
type named string

func (n named) Name() string                         { return string(n) }
func (n named) ScoreExtensions() fwk.ScoreExtensions { return nil }
func (n named) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

func TestAValuerLearnsOfPodsThatCanBeTried(t *testing.T) {
	t.Parallel()
	v := &valuer{}
	p := &Profile{Framework: plain{}, plugins: plugins{valuer: v}}
	for _, name := range []string{"a", "", "b"} {
		pod := &corev1.Pod{}
		pod.Name = name
		p.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
	}
	if diff := cmp.Diff([]string{"a", "b"}, v.arrived); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
