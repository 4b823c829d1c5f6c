package comparison

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	a, b, higher := &Candidate{"a", 7}, &Candidate{"b", 7}, &Candidate{"b", 8}
	for name, c := range map[string]struct {
		bound, chosen *Candidate
		want          Outcome
	}{
		"the node that Tenon chooses":                    {a, &Candidate{"a", 7}, Same},
		"the only feasible node, which is not scored":    {&Candidate{"a", 0}, &Candidate{"a", 0}, Same},
		"another node with the same score":               {a, b, Equal},
		"another node with a higher score":               {a, higher, Better},
		"a node that Tenon refuses, and chooses another": {nil, b, Refused},
		"a node that Tenon refuses as it does all":       {nil, nil, Nowhere},
	} {
		if got := Of(c.bound, c.chosen); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
