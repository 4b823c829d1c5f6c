package hint_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
)

func TestMergeIsTheProductOfAllLists(t *testing.T) {
	t.Parallel()
	var w hint.Scratch
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t, 5)
		lists := drawLists(t, r, 4, 9)
		if rapid.Bool().Draw(t, "dense") {
			lists = drawDense(t, r)
		}
		want, admitted := product(r, lists)
		got := r.Answer(lists, &w)
		if got != (hint.Answer{Hint: want, Admitted: admitted}) {
			t.Fatalf("%+v of %v: got %+v, want %+v, %v", r, lists, got, want, admitted)
		}
	})
}

func TestMergeOfManyNodesIsTheProduct(t *testing.T) {
	t.Parallel()
	var w hint.Scratch
	rapid.Check(t, func(t *rapid.T) {
		r := &hint.Rule{Policy: hint.BestEffort, Nodes: rapid.IntRange(10, 16).Draw(t, "nodes")}
		lists := drawLists(t, r, 4, 8)
		want, admitted := product(r, lists)
		if got := r.Answer(lists, &w); got != (hint.Answer{Hint: want, Admitted: admitted}) {
			t.Fatalf("%+v of %v: got %+v, want %+v, %v", r, lists, got, want, admitted)
		}
	})
}
