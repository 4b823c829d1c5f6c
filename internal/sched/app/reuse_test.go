package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"
)

// shelves is a framework whose nodes have room for some pods and score by what is left of it, and by a preference that
// normalising made.
type shelves struct {
	framework.Framework
	snapshot *cache.Snapshot
	room     map[string]int64
	prefer   map[string]int64
	scorers  []string
	passes   int
}

func newShelves(room, prefer []int64) *shelves {
	metrics.Register()
	s := &shelves{room: map[string]int64{}, prefer: map[string]int64{}, scorers: []string{names.NodeResourcesFit, names.NodeAffinity}}
	var nodes []*corev1.Node
	for i := range room {
		name := fmt.Sprintf("node-%02d", i)
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s.room[name], s.prefer[name] = room[i], prefer[i]
	}
	s.snapshot = cache.NewSnapshot(nil, nodes)
	return s
}

func (s *shelves) ProfileName() string                    { return "s" }
func (s *shelves) SnapshotSharedLister() fwk.SharedLister { return s.snapshot }
func (s *shelves) ListPlugins() *config.Plugins {
	p := &config.Plugins{}
	for _, name := range s.scorers {
		p.Score.Enabled = append(p.Score.Enabled, config.Plugin{Name: name})
	}
	return p
}

func (s *shelves) RunFilterPlugins(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	if s.room[n.Node().Name] == 0 {
		return fwk.NewStatus(fwk.Unschedulable)
	}
	return nil
}

func (s *shelves) RunPreScorePlugins(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) *fwk.Status {
	return nil
}

// RunScorePlugins normalises the preference: of one node alone it is always 100.
func (s *shelves) RunScorePlugins(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	most := int64(1)
	for _, n := range nodes {
		most = max(most, s.prefer[n.Node().Name])
	}
	var out []fwk.NodePluginScores
	for i, n := range nodes {
		name := n.Node().Name
		room, preference := s.room[name], 100*s.prefer[name]/most
		out = append(out, fwk.NodePluginScores{Name: name, TotalScore: room + preference, Randomizer: -i, Scores: []fwk.PluginScore{
			{Name: names.NodeResourcesFit, Score: room}, {Name: names.NodeAffinity, Score: preference},
		}})
	}
	return out, nil
}

// place is one cycle as the core runs it; "" when no node has room.
func (s *shelves) place(t testing.TB, r *reusing, signature string, cycle int64) (node string, hinted bool) {
	t.Helper()
	state, pod := framework.NewCycleState(), &corev1.Pod{}
	var sign fwk.PodSignature
	if signature != "" {
		sign = fwk.PodSignature(signature)
	}
	hint := r.GetNodeHint(t.Context(), pod, sign, state, cycle)
	if hint != "" && s.room[hint] > 0 {
		r.StoreScheduleResults(t.Context(), sign, hint, hint, nil, cycle)
		s.room[hint]--
		return hint, true
	}
	s.passes++
	best := s.best(t, r.RunScorePlugins)
	if best != "" {
		r.StoreScheduleResults(t.Context(), sign, hint, best, nil, cycle)
		s.room[best]--
	}
	return best, false
}

type scoring = func(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status)

// best is the node that a pass over all nodes chooses.
func (s *shelves) best(t testing.TB, score scoring) string {
	t.Helper()
	nodes, err := s.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	var feasible []fwk.NodeInfo
	for _, n := range nodes {
		if s.room[n.Node().Name] > 0 {
			feasible = append(feasible, n)
		}
	}
	if len(feasible) == 0 {
		return ""
	}
	scores, _ := score(t.Context(), nil, nil, feasible)
	top := scores[0]
	for _, s := range scores {
		if s.TotalScore > top.TotalScore {
			top = s
		}
	}
	return top.Name
}

func TestReusePlacesAsAPassOverAllNodesWould(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "nodes")
		room := rapid.SliceOfN(rapid.Int64Range(0, 5), n, n).Draw(rt, "room")
		prefer := rapid.SliceOfN(rapid.Int64Range(0, 3), n, n).Draw(rt, "prefer")
		s := newShelves(room, prefer)
		r := newReusing(s, func() time.Time { return time.Unix(0, 0) })
		score := func(node string) (total int64) {
			scores, _ := s.RunScorePlugins(t.Context(), nil, nil, s.nodesWithRoom(t))
			for _, sc := range scores {
				if sc.Name == node {
					total = sc.TotalScore
				}
			}
			return total
		}
		// While no preferred node is full, the preferences of the others stay as they were normalised.
		for cycle := range int64(4) {
			want := s.best(t, s.RunScorePlugins)
			if want == "" {
				return
			}
			full := len(s.nodesWithRoom(t)) < n
			wantScore := score(want)
			before := map[string]int64{}
			for name := range s.room {
				before[name] = score(name)
			}
			got, hinted := s.place(t, r, "class", cycle)
			if !full && before[got] != wantScore {
				rt.Fatalf("cycle %d: got %s with %d (hinted %v), want %s with %d", cycle, got, before[got], hinted, want, wantScore)
			}
			if s.room[got] < 0 {
				rt.Fatalf("cycle %d: %s is over-full", cycle, got)
			}
		}
	})
}

func (s *shelves) nodesWithRoom(t testing.TB) (out []fwk.NodeInfo) {
	t.Helper()
	nodes, err := s.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if s.room[n.Node().Name] > 0 {
			out = append(out, n)
		}
	}
	return out
}

func TestReuseEnds(t *testing.T) {
	for name, c := range map[string]struct {
		second string // signature of the second pod
		cycle  int64
		later  time.Duration
		scorer string
		hinted bool
	}{
		"never for the next pod of the class":       {second: "class", cycle: 2, hinted: true},
		"with another class":                        {second: "other", cycle: 2},
		"with a pod that is not signed":             {cycle: 2},
		"when another pod came in between":          {second: "class", cycle: 3},
		"when the scores are old":                   {second: "class", cycle: 2, later: reuseFor + 1},
		"before it begins with an unknown scorer":   {second: "class", cycle: 2, scorer: "Foreign"},
		"never for a scorer that stays as it is":    {second: "class", cycle: 2, scorer: names.ImageLocality, hinted: true},
		"never for one that moves with its usage":   {second: "class", cycle: 2, scorer: names.NodeResourcesBalancedAllocation, hinted: true},
		"not before half a second after the scores": {second: "class", cycle: 2, later: reuseFor, hinted: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			s := newShelves([]int64{5, 5, 5}, []int64{0, 0, 0})
			if c.scorer != "" {
				s.scorers = append(s.scorers, c.scorer)
			}
			r := newReusing(s, func() time.Time { return now })
			if _, hinted := s.place(t, r, "class", 1); hinted {
				t.Fatal("the first pod of a class has no scores to go by")
			}
			now = now.Add(c.later)
			if _, hinted := s.place(t, r, c.second, c.cycle); hinted != c.hinted {
				t.Errorf("hinted: got %v, want %v", hinted, c.hinted)
			}
		})
	}
}

func TestOnePassPlacesAsManyPodsAsItScoredNodes(t *testing.T) {
	s := newShelves([]int64{100, 100, 100, 100}, []int64{0, 0, 0, 0})
	r := newReusing(s, func() time.Time { return time.Unix(0, 0) })
	for cycle := range int64(10) {
		s.place(t, r, "class", cycle)
	}
	if s.passes != 2 {
		t.Errorf("got %d passes over 4 nodes for 10 pods, want 2", s.passes)
	}
	for name, room := range s.room {
		if room < 97 {
			t.Errorf("%s took %d pods of 10, want them spread", name, 100-room)
		}
	}
}

func TestADecisionByReuseRemembersItsScores(t *testing.T) {
	s := newShelves([]int64{3, 2}, []int64{0, 0})
	r := newReusing(s, func() time.Time { return time.Unix(0, 0) })
	s.place(t, r, "class", 1)
	if got := r.proposed(); got != nil {
		t.Errorf("got %v for a pod that went the whole way", got)
	}
	node, _ := s.place(t, r, "class", 2)
	if got := best(r.proposed(), 3); len(got) != 2 || got[0].Node != node || got[0].Total != 2 {
		t.Errorf("got %v, want %s with 2 first", got, node)
	}
}
