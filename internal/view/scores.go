package view

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// ScoreTable prints the best n scores of d as a Markdown table. Weights are applied, so that a row's columns add up to
// its Score.
func ScoreTable(d Decision, n int) string {
	scores := slices.SortedFunc(slices.Values(d.Scores), CompareScores)
	scores = scores[:min(n, len(scores))]
	var plugins []string
	for _, s := range scores {
		for _, p := range s.Plugins {
			plugins = append(plugins, p.Name)
		}
	}
	slices.Sort(plugins)
	plugins = slices.Compact(plugins)

	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(append([]string{"#", "Pod", "Node", "Score"}, plugins...)...)
	b.WriteString("| --- | --- | --- | ---:|" + strings.Repeat(" ---:|", len(plugins)) + "\n")
	for i, s := range scores {
		cells := []string{strconv.Itoa(i), d.Pod, s.Node, strconv.FormatInt(s.Total, 10)}
		for _, name := range plugins {
			cells = append(cells, strconv.FormatInt(s.Of(name).Score, 10))
		}
		row(cells...)
	}
	return b.String()
}

// Of returns what a plugin scored; zero for one that is not there.
func (s Score) Of(plugin string) PluginScore {
	for _, p := range s.Plugins {
		if p.Name == plugin {
			return p
		}
	}
	return PluginScore{Name: plugin}
}

// CompareScores orders scores: the best first, equal ones by node.
func CompareScores(a, b Score) int {
	return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Node, b.Node))
}
