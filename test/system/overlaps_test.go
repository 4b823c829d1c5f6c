package system

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// The checker of the churn test finds each kind of breach and reports nothing that is allowed.
func TestOverlapsAreSeen(t *testing.T) {
	t.Parallel()
	const (
		lse   = "11111111-1111-1111-1111-111111111111"
		lsr   = "22222222-2222-2222-2222-222222222222"
		ls    = "33333333-3333-3333-3333-333333333333"
		batch = "44444444-4444-4444-4444-444444444444"
	)
	pods := map[string]podFact{
		lse:   {name: "lse", class: "LSE", cpuset: "0-1"},
		lsr:   {name: "lsr", class: "LSR", cpuset: "2-3"},
		ls:    {name: "ls", class: "LS"},
		batch: {name: "batch", class: "BE", best: true},
	}
	group := func(uid string) string { return "/cg/kubepods/pod" + uid + "/c" }
	cases := map[string]struct {
		state map[string]string
		want  string // "" = nothing
	}{
		"everybody where they belong": {map[string]string{
			group(lse): "0-1", group(lsr): "2-3", group(ls): "4-7",
			group(batch): "2-7",
		}, ""},
		"a shared pod on LSE's CPUs": {
			map[string]string{group(lse): "0-1", group(ls): "1,4-7"},
			"ls (LS) may run on 1 of LSE lse",
		},
		"a shared pod on LSR's CPUs": {
			map[string]string{group(lsr): "2-3", group(ls): "2-7"},
			"ls (LS) may run on 2-3 of LSR lsr",
		},
		"a batch pod on LSE's CPUs": {
			map[string]string{group(lse): "0-1", group(batch): "0-7"},
			"batch (BE) may run on 0-1 of LSE lse",
		},
		"an exclusive pod on other CPUs": {
			map[string]string{group(lse): "0-2"},
			"lse runs on 0-2, its annotation says 0-1",
		},
		"two exclusive pods on one CPU": {
			map[string]string{group(lse): "0-1", group(lsr): "1,3"},
			"lsr (LSR) may run on 1 of LSE lse",
		},
		"a group of an unknown pod": {map[string]string{
			group(lse): "0-1",
			group("55555555-5555-5555-5555-555555555555"): "0-7",
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := overlaps("n", c.state, pods)
			testkit.Check(t, err)
			text := strings.Join(got, "; ")
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}
