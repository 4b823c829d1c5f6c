package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// examplesShown is how many nodes a line names.
const examplesShown = 3

// FailureLines describes why an attempt to place a pod (namespace/name) failed: a line for each plugin and reason with
// the number of nodes and a few of their names, most nodes first.
func FailureLines(pod string, findings []why.Finding) string {
	type key struct{ plugin, text string }
	nodes := map[key][]string{}
	for _, f := range findings {
		k := key{f.Plugin, f.Phrase()}
		nodes[k] = append(nodes[k], f.Object)
	}
	// A finding without a node is about the pod as such; its line has no number.
	keys := make([]key, 0, len(nodes))
	for k, names := range nodes {
		slices.Sort(names)
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), strings.Compare(a.plugin, b.plugin),
			strings.Compare(a.text, b.text))
	})
	var out strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&out, "%s %s: %s", pod, k.plugin, k.text)
		if names := nodes[k]; names[0] != "" {
			fmt.Fprintf(&out, ": %s, e.g. %s", view.Count(len(names), "node"),
				strings.Join(names[:min(len(names), examplesShown)], ", "))
		}
		out.WriteByte('\n')
	}
	return out.String()
}
