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
		if h, ok := r.Merge(lists); h != want || ok != admitted {
			t.Fatalf("without scratch: got %v, %v, want %v, %v", h, ok, want, admitted)
		}
	})
}

// Lists of many nodes are folded without vectors.
func TestMergeOfManyNodesIsTheMergeToo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t, 6)
		r.Policy = hint.BestEffort
		lists := drawLists(t, r, 4, 12)
		if rapid.Bool().Draw(t, "dense") {
			lists = drawDense(t, r)
		}
		want := r.Answer(lists, nil)
		if got := r.AnswerWide(lists); !want.Hint.Preferred && got != want {
			t.Fatalf("%+v of %v: got %+v, want %+v", r, lists, got, want)
		}
	})
}
