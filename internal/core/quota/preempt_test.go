package quota

import (
	"maps"
	"slices"
	"testing"
)

func TestVictimNodes(t *testing.T) {
	t.Parallel()
	on := func(node string, priority int32) func(*Pod) {
		return func(p *Pod) { p.Node, p.Priority = node, priority }
	}
	important := func(p *Pod) { p.Priority = 5 }
	for name, c := range map[string]struct {
		pods   []Pod
		want   []string
		inside bool
	}{
		"the nodes of lower pods of the quota": {
			pods: []Pod{
				pending("p", "train", 50, important), pending("a", "train", 40, on("n1", 0)),
				pending("b", "train", 40, on("n2", 4)), pending("same", "train", 10, on("n3", 5)),
				pending("other", "serve", 5, on("n4", 0)), pending("waiting", "train", 1),
			},
			want: []string{"n1", "n2"}, inside: true,
		},
		"none where all of them are not enough": {
			pods: []Pod{
				pending("p", "train", 50, important), pending("a", "train", 10, on("n1", 0)),
				pending("same", "train", 80, on("n3", 5)),
			},
			inside: true,
		},
		"none where a quota above has too little": {
			pods: []Pod{
				pending("p", "train", 60, important), pending("a", "train", 45, on("n1", 0)),
				pending("other", "serve", 60, on("n4", 0)),
			},
			inside: true,
		},
		"a pod that its quotas admit": {
			pods: []Pod{pending("p", "train", 5, important), pending("a", "train", 10, on("n1", 0))},
			want: []string{"n1"}, inside: true,
		},
		"a pod of no quota": {pods: []Pod{pending("p", "", 5, important), pending("a", "train", 10, on("n1", 0))}},
		"an unknown pod":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tree(Rules{})
			for _, p := range c.pods {
				a.Put(p)
			}
			before := a.Hash()
			nodes, inside := a.VictimNodes("p")
			if got := slices.Sorted(maps.Keys(nodes)); !slices.Equal(got, c.want) || inside != c.inside {
				t.Errorf("nodes %v, inside %t; want %v, %t", got, inside, c.want, c.inside)
			}
			if a.Hash() != before {
				t.Error("the question changed the account")
			}
		})
	}
}
