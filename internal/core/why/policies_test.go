package why

import "testing"

func TestDifferentPoliciesAreNamedAsVolcanoDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod, node uint8
		want      string
	}{
		"restricted on a node without policy": {
			2, 0,
			"task topology policy[restricted] is different with node[none]",
		},
		"the tightest on the loosest": {
			3, 1,
			"task topology policy[single-numa-node] is different with node[best-effort]",
		},
		"best-effort on restricted": {
			1, 2,
			"task topology policy[best-effort] is different with node[restricted]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Reason{Code: TopologyPolicyDiffers, Extra: Policies(c.pod, c.node)}
			if got := r.Text(); got != c.want {
				t.Errorf("Policies(%d, %d) reads %q, want %q", c.pod, c.node, got, c.want)
			}
		})
	}
	if got := (Reason{
		Code:  TopologyPolicyDiffers,
		Extra: 16,
	}).Text(); got != "task topology policy is different with node" {
		t.Errorf("policies that do not exist read %q, want the plain text", got)
	}
}
