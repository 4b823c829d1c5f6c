package defrag_test

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/testkit"
)

// wishes is a Cluster in which the demand fits wherever base says, and once on each node that a pod has left, and in
// which all targets of a pod take it.
type wishes struct {
	base    map[string]int
	targets map[string][]string
}

func (w wishes) Capacity(node string, gone []string, _ int) (int, bool, error) {
	return w.base[node] + min(len(gone), 1), false, nil
}

func (w wishes) Targets(uid string) (fit, ruled []string, _ error) { return w.targets[uid], nil, nil }

func (wishes) Linked(string, string) bool { return false }

func (wishes) Works([]defrag.Move) (bool, error) { return true, nil }

// A pod goes where neither the demand nor another pod goes, though the node is not the best one for it.
func TestATargetIsANodeThatNothingElseNeeds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		wishes
		want []string // targets, in the order of the pods
	}{
		"the demand fits on the better node": {
			wishes{map[string]int{"c": 1}, map[string][]string{"p": {"c", "d"}}},
			[]string{"d"},
		},
		"another pod leaves the better node": {
			wishes{nil, map[string][]string{"p": {"b", "c"}, "q": {"d"}}},
			[]string{"c", "d"},
		},
		"another pod goes to the better node": {
			wishes{nil, map[string][]string{"p": {"c"}, "q": {"c", "d"}}},
			[]string{"c", "d"},
		},
		"another pod goes to one node and the demand to the other": {
			wishes{nil, map[string][]string{"p": {"c"}, "q": {"a", "c"}}},
			[]string{"c", "c"},
		},
		"the demand fits on all nodes": {
			wishes{map[string]int{"c": 1, "d": 1}, map[string][]string{"p": {"d", "c"}}},
			[]string{"d"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pods []defrag.Pod
			want := 1
			for i, uid := range []string{"p", "q"}[:len(test.targets)] {
				pods = append(pods, defrag.Pod{UID: uid, Node: []string{"a", "b"}[i]})
			}
			for _, n := range test.base {
				want += n
			}
			want += len(pods) - 1
			nodes, limits := []string{"a", "b", "c", "d"}, defrag.Limits{Moves: 2, Targets: 9}
			got, err := defrag.Search(test, nodes, pods, want, limits)
			testkit.Check(t, err)
			var targets []string
			for _, m := range slices.SortedFunc(slices.Values(got.Moves), func(a, b defrag.Move) int {
				return cmp.Compare(a.UID, b.UID)
			}) {
				targets = append(targets, m.Target)
			}
			if diff := gocmp.Diff(test.want, targets); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}
