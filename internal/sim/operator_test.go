package sim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/operator"
)

// counted are the numbers of pods by state, as operator.Case has them.
func counted(r Result) string {
	counts, parts := map[string]int{}, []string(nil)
	for _, p := range r.Pods {
		counts[p.State]++
	}
	for _, state := range []string{Scheduled, Unschedulable, Refused, Existing} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprint(counts[state], " ", state))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// TestManifestsOfOperatorsAreAnswered: only what the API server refuses, and with --strict a custom kind, is an error.
// test/manifests compares with an API server.
func TestManifestsOfOperatorsAreAnswered(t *testing.T) {
	t.Parallel()
	cases, err := operator.Cases()
	testkit.Check(t, err)
	if len(cases) < 120 {
		t.Errorf("%d cases, want at least 120", len(cases))
	}
	for _, c := range cases {
		objects, err := c.Objects()
		testkit.Check(t, err)
		custom := slices.ContainsFunc(objects, func(o map[string]any) bool {
			version, _ := o["apiVersion"].(string)
			kind, _ := o["kind"].(string)
			gvk := schema.FromAPIVersionAndKind(version, kind)
			return isForeign(gvk.Group) && !isIrrelevant(gvk, "") && !isOperated(workload.Builtin(), gvk)
		})
		for _, strict := range []bool{false, true} {
			want := c.Want
			if custom && strict {
				want = "refused"
			}
			r, err := Run(t.Context(), Input{
				Paths: []string{stdin}, Stdin: strings.NewReader(operator.Node + "\n---\n" + c.Text), Warn: io.Discard,
				Strict: strict,
			})
			got := counted(r)
			if err != nil {
				got = "refused"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, strict %t: %v %v (-want +got):\n%s", c.Name, strict, err, outcomes(r), diff)
			}
		}
	}
}
