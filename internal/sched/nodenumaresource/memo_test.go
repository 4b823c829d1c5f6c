package nodenumaresource

import "testing"

// tally counts as a metric does.
type tally float64

func (t *tally) Inc()          { *t++ }
func (t *tally) Add(n float64) { *t += tally(n) }

func TestEqualPodsAskAnUnchangedNodeOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	n := f.addNode("n", machine(t, "amd64", 2, 4, 2))
	var hits, misses tally
	f.metrics.memo = memo{hit: &hits, miss: &misses}
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
	if hits != 2 || misses != 2 {
		t.Errorf("%v hits and %v misses, want 2 and 2: three equal pods and another one", hits, misses)
	}
	f.schedule(t, lsr("e", 2), n)
	before := misses
	ask("f", 2)
	if misses != before+1 {
		t.Errorf("%v misses after %v: a node that has changed is asked again", misses, before)
	}
}
