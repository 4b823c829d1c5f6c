package nodenumaresource

import (
	"testing"
)

func TestEqualPodsAskAnUnchangedNodeOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	answers := func() (hits, misses float64) {
		return f.counted(t, "tenon_place_memo_total", "hit"), f.counted(t, "tenon_place_memo_total", "miss")
	}
	ask := func(name string, cpus int) {
		t.Helper()
		pod := lsr(name, cpus)
		cs, _ := f.preFilter(t, pod)
		if s := f.Filter(t.Context(), cs, pod, n); !s.IsSuccess() {
			t.Fatalf("pod %s: %s", name, s.Message())
		}
	}
	ask("a", 2)
	ask("b", 2)
	ask("c", 4)
	ask("d", 2)
	if hits, misses := answers(); hits != 2 || misses != 2 {
		t.Errorf("%v hits and %v misses, want 2 and 2: three equal pods and another one", hits, misses)
	}
	f.schedule(t, lsr("e", 2), n)
	_, before := answers()
	ask("f", 2)
	if _, misses := answers(); misses != before+1 {
		t.Errorf("%v misses after %v: a node that has changed is asked again", misses, before)
	}
}
