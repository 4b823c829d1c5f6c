package sim

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/why"
)

func TestATableWrapsItsLastColumnToTheTerminal(t *testing.T) {
	t.Parallel()
	result := Result{Pods: []Pod{
		{Namespace: "ml", Name: "web", State: Scheduled, Node: "n1", CPUSet: "0-1,4-5", NUMANodes: []int{0}},
		{Namespace: "ml", Name: "odd", State: Unschedulable, Reasons: []Reason{{
			Code: why.SMTAlignment, Message: "node(s) requested cpus not multiple cpus per core", Nodes: 2,
		}}},
	}}
	for title, c := range map[string]struct {
		width int
		want  string
	}{
		"no terminal": {0, `
NAMESPACE  NAME  STATE          NODE  CPUS     NUMA  REASON
ml         web   Scheduled      n1    0-1,4-5  0
ml         odd   Unschedulable  -     -        -     SMTAlignment: 2 node(s) requested cpus not multiple cpus per core

1 scheduled, 1 unschedulable on 0 nodes
`},
		"beside the other columns": {80, `
NAMESPACE  NAME  STATE          NODE  CPUS     NUMA  REASON
ml         web   Scheduled      n1    0-1,4-5  0
ml         odd   Unschedulable  -     -        -     SMTAlignment: 2 node(s)
                                                     requested cpus not multiple
                                                     cpus per core

1 scheduled, 1 unschedulable on 0 nodes
`},
		"below the other columns": {60, `
NAMESPACE  NAME  STATE          NODE  CPUS     NUMA  REASON
ml         web   Scheduled      n1    0-1,4-5  0
ml         odd   Unschedulable  -     -        -
    SMTAlignment: 2 node(s) requested cpus not multiple cpus
    per core

1 scheduled, 1 unschedulable on 0 nodes
`},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			got := string(table(result, c.width))
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), got); diff != "" {
				t.Errorf("width %d (-want +got):\n%s", c.width, diff)
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); c.width > 0 && n > c.width {
					t.Errorf("%d columns, at most %d: %s", n, c.width, line)
				}
			}
		})
	}
}
