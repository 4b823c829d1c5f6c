package diag

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tenon-project/tenon/internal/view"
)

// DecisionsKept is the number of decisions that a scheduler remembers.
const DecisionsKept = 256

// Ring keeps the last decisions. The zero value is empty. Safe for concurrent use.
type Ring struct {
	mu   sync.Mutex
	kept []view.Decision // oldest first
}

// Add remembers d and forgets the oldest one beyond DecisionsKept. d must not be changed afterwards.
func (r *Ring) Add(d view.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) == DecisionsKept {
		r.kept = slices.Delete(r.kept, 0, 1)
	}
	r.kept = append(r.kept, d)
}

// List returns the decisions about pod (namespace/name), newest first; about all pods when pod is "".
func (r *Ring) List(pod string) []view.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []view.Decision{}
	for _, d := range slices.Backward(r.kept) {
		if pod == "" || d.Pod == pod {
			out = append(out, d)
		}
	}
	return out
}

// Last returns the newest decision about the pod with this UID.
func (r *Ring) Last(pod, uid string) (view.Decision, bool) {
	for _, d := range r.List(pod) {
		if d.UID == uid {
			return d, true
		}
	}
	return view.Decision{}, false
}

// ScoreTable prints the best n scores of d as a Markdown table. Weights are applied, so that a row's columns add up to
// its Score. Plugins in silent have a column even if they said nothing.
func ScoreTable(d view.Decision, n int, silent ...string) string {
	scores := slices.Clone(d.Scores)
	slices.SortFunc(scores, func(a, b view.Score) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Node, b.Node))
	})
	scores = scores[:min(n, len(scores))]
	named := sets.New(silent...)
	for _, s := range scores {
		for _, p := range s.Plugins {
			named.Insert(p.Name)
		}
	}
	plugins := sets.List(named)

	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(append([]string{"#", "Pod", "Node", "Score"}, plugins...)...)
	b.WriteString("| --- | --- | --- | ---:|" + strings.Repeat(" ---:|", len(plugins)) + "\n")
	for i, s := range scores {
		cells := []string{strconv.Itoa(i), d.Pod, s.Node, strconv.FormatInt(s.Total, 10)}
		scores := map[string]int64{}
		for _, p := range s.Plugins {
			scores[p.Name] = p.Score
		}
		for _, name := range plugins {
			cells = append(cells, strconv.FormatInt(scores[name], 10))
		}
		row(cells...)
	}
	return b.String()
}
