package page

import (
	"fmt"
	"strings"
	"testing"
)

// TestEachBlockHasItsPlace: a block is in a scene that a test plays, or there is a reason. Where a page counts them, it
// counts right.
func TestEachBlockHasItsPlace(t *testing.T) {
	t.Parallel()
	blocks, used, ran := map[Scene]int{}, map[string]bool{}, 0
	for _, b := range Blocks(t) {
		if b.isFile() {
			continue
		}
		step, ok := Find(b)
		if !ok {
			t.Errorf("%s: the block is in no step (steps.go)", b)
		}
		if used[step.Blocks] = true; step.Scene != Picture && step.Scene != Unrun {
			ran++
		}
		blocks[step.Scene]++
	}
	for _, s := range Steps() {
		if !used[s.Blocks] {
			t.Errorf("no block begins as %q", s.Blocks)
		}
		if reason := s.Scene == Picture || s.Scene == Unrun; reason != (s.Why != "") {
			t.Errorf("%q is of the scene %q: its reason is %q", s.Blocks, s.Scene, s.Why)
		}
	}
	want := fmt.Sprintf("%d of the %d blocks of commands run", ran, ran+blocks[Unrun])
	found := false
	for _, p := range pages(t) {
		found = found || p.File == "docs/reference/testing.md" && strings.Contains(p.Text, want)
	}
	if !found {
		t.Errorf("docs/reference/testing.md does not say %q; by scene: %v", want, blocks)
	}
}

func TestAPictureFitsWhatIsTheSame(t *testing.T) {
	t.Parallel()
	const shown = "NAME          AGE  SHARE\n  …\nweb-98d4f8b57-jdcbv  2m30s  100m\nfree 3, …\n"
	for name, c := range map[string]struct {
		printed       string
		fits, roughly bool
	}{
		"as it is":           {"NAME AGE SHARE  \nmore\nweb-584c69cf79-b6gls 4s 100m\nfree 3, and so on\n", true, true},
		"nothing left out":   {"NAME  AGE  SHARE\nweb-584c69cf79-b6gls  4s  100m\nfree 3, \n", true, true},
		"another amount":     {"NAME  AGE  SHARE\nweb-584c69cf79-b6gls  4s  90m\nfree 3, 4\n", false, true},
		"a line more":        {"NAME  AGE  SHARE\nweb-584c69cf79-b6gls  4s  100m\nfree 3, 4\nand\n", false, false},
		"a line less":        {"NAME  AGE  SHARE\nfree 3, 4\n", false, false},
		"another first word": {"NAME  AGE  SHARE\nweb-584c69cf79-b6gls  4s  100m\nused 3, 4\n", false, false},
	} {
		for _, roughly := range []bool{false, true} {
			want := c.fits
			if roughly {
				want = c.roughly
			}
			if got := pattern(strings.Trim(shown, "\n"), roughly).MatchString(c.printed); got != want {
				t.Errorf("%s: fits %t, want %t (roughly %t)", name, got, want, roughly)
			}
		}
	}
}
