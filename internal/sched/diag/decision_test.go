package diag

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
	"github.com/tenon-project/tenon/internal/view"
)

func TestTheRingKeepsTheLastDecisionsNewestFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3*DecisionsKept).Draw(t, "decisions")
		r := &Ring{}
		var all []string
		for i := range n {
			name := fmt.Sprintf("ns/p%d", i)
			r.Add(view.Decision{Pod: name, UID: name})
			all = append(all, name)
		}
		slices.Reverse(all)
		want := all[:min(n, DecisionsKept)]
		got := []string{}
		for _, d := range r.List("") {
			got = append(got, d.Pod)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("after %d decisions: got %v, want %v", n, got, want)
		}
		if n > 0 {
			if _, ok := r.Last(all[0]); !ok {
				t.Fatalf("the newest decision %s is not found", all[0])
			}
		}
		if n > DecisionsKept {
			if _, ok := r.Last("ns/p0"); ok {
				t.Fatal("the oldest decision is still there")
			}
		}
	})
}
