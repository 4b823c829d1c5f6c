package workload

import "testing"

func TestBuiltinRulesAreValid(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range Builtin().Rules() {
		for _, p := range r.Problems() {
			t.Errorf("%s: %s: %s", r.Name(), p.Field, p.Text)
		}
		for _, v := range r.Versions {
			if key := r.Name() + " " + v; seen[key] {
				t.Errorf("%s has two rules", key)
			} else {
				seen[key] = true
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("%d kinds and versions", len(seen))
	}
}
