package why

import "testing"

func TestDifferentPoliciesAreNamedAsVolcanoDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod, node uint8
		lang      Lang
		want      string
	}{
		"restricted on a node without policy": {
			2, 0, English,
			"task topology policy[restricted] is different with node[none]",
		},
		"the tightest on the loosest": {
			3, 1, English,
			"task topology policy[single-numa-node] is different with node[best-effort]",
		},
		"best-effort on restricted": {
			1, 2, English,
			"task topology policy[best-effort] is different with node[restricted]",
		},
		"in Chinese": {2, 3, Chinese, "Pod 的拓扑策略 restricted 与节点的 single-numa-node 不同"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Reason{Code: TopologyPolicyDiffers, Extra: Policies(c.pod, c.node)}
			if got := r.Text(c.lang); got != c.want {
				t.Errorf("Policies(%d, %d) reads %q, want %q", c.pod, c.node, got, c.want)
			}
		})
	}
	if got := (Reason{
		Code:  TopologyPolicyDiffers,
		Extra: 16,
	}).Text(English); got != "task topology policy is different with node" {
		t.Errorf("policies that do not exist read %q, want the plain text", got)
	}
}
