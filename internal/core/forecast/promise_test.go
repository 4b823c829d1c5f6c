package forecast

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAPromiseIsMissedByWhatIsOutsideItsRange(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		late  time.Duration // 0: not known
		start time.Duration
		want  time.Duration
	}{
		"before":                        {10, -3, -3},
		"at the beginning":              {10, 0, 0},
		"within":                        {10, 5, 0},
		"at the end":                    {10, 10, 0},
		"after":                         {10, 12, 2},
		"after a beginning without end": {0, 12, 0},
		"before one":                    {0, -1, -1},
	} {
		p := Promise{Early: at}
		if tt.late > 0 {
			p.Late = at.Add(tt.late)
		}
		if got := p.Off(at.Add(tt.start)); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestTheFirstPromiseCounts(t *testing.T) {
	first, second := Promise{Early: time.Unix(1, 0)}, Promise{Early: time.Unix(2, 0), Learned: true}
	var p Promises
	p.Note("a", first)
	p.Note("a", second)
	p.Note("b", second)
	gone := p.Gone(func(unit string) bool { return unit == "b" })
	if diff := cmp.Diff(map[string]Promise{"a": first}, gone); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Note("a", second) // it waits again
	gone = p.Gone(func(string) bool { return false })
	if diff := cmp.Diff(map[string]Promise{"a": second, "b": second}, gone); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if gone = p.Gone(func(string) bool { return false }); len(gone) > 0 {
		t.Errorf("again: %v", gone)
	}
}
