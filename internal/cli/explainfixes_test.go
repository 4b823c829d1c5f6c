package cli

import (
	"testing"

	"github.com/tenon-project/tenon/internal/view"
)

func TestFixesAndTheirSearchAreShown(t *testing.T) {
	t.Parallel()
	tried := []view.Fix{
		{Kind: view.FixRequest, Message: "request cpu 4 instead of 3 in container main (tried: schedules on node-3)"},
		{Kind: view.FixAddNode, Message: "add 1 node like node-1 (tried: schedules on node-1-whatif-1)"},
	}
	for name, tt := range map[string]struct {
		fixes  []view.Fix
		search *view.FixSearch
		want   string
	}{
		"fixes": {
			tried, &view.FixSearch{Runs: 12},
			"  fix           request cpu 4 instead of 3 in container main (tried: schedules on node-3)\n" +
				"                add 1 node like node-1 (tried: schedules on node-1-whatif-1)\n",
		},
		"none": {nil, &view.FixSearch{Runs: 7}, "  fix           no single change found (7 tried)\n"},
		"a search that ended early": {
			nil, &view.FixSearch{Runs: 50, Exhausted: true},
			"  fix           the search ended after 50 trials; other changes may help too\n",
		},
		"no search": {nil, nil, ""},
		"a pod that was not looked at": {
			nil, &view.FixSearch{Note: "no fix was looked for: 2 questions are being answered; ask again"},
			"  fix           no fix was looked for: 2 questions are being answered; ask again\n",
		},
	} {
		r := renderer{}
		r.moves(&explained{Pod: view.Pod{Fixes: tt.fixes, Search: tt.search}})
		if got := r.take(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
