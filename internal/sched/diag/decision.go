package diag

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// RankScores orders scores as people read them: highest total first, then by node name.
func RankScores(scores []view.Score) {
	slices.SortFunc(scores, func(a, b view.Score) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Node, b.Node))
	})
}

// ScoreTable prints the best n scores of d as a Markdown table: all score plugins in alphabetical order, weights
// applied, so that a row's columns add up to its Score. silent names plugins of the profile that may have had nothing
// to say about the pod: they have a column too.
func ScoreTable(d view.Decision, n int, silent ...string) string {
	scores := slices.Clone(d.Scores)
	RankScores(scores)
	scores = scores[:min(n, len(scores))]
	plugins := pluginNames(scores, silent)

	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(append([]string{"#", "Pod", "Node", "Score"}, plugins...)...)
	b.WriteString("| --- | --- | --- | ---:|" + strings.Repeat(" ---:|", len(plugins)) + "\n")
	for i, s := range scores {
		cells := []string{strconv.Itoa(i), d.Pod, s.Node, strconv.FormatInt(s.Total, 10)}
		for _, name := range plugins {
			cells = append(cells, strconv.FormatInt(scoreOf(s, name), 10))
		}
		row(cells...)
	}
	return b.String()
}

func pluginNames(scores []view.Score, silent []string) []string {
	names := slices.Clone(silent)
	for _, s := range scores {
		for _, p := range s.Plugins {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func scoreOf(s view.Score, plugin string) int64 {
	i := slices.IndexFunc(s.Plugins, func(p view.PluginScore) bool { return p.Name == plugin })
	if i < 0 {
		return 0
	}
	return s.Plugins[i].Score
}
