package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/view"
)

// allScores is the number of rows without a number of --scores: as many as the scheduler remembers.
const allScores = "100"

// scored is the JSON of --scores.
type scored struct {
	view.Decision

	// Note says why there are no scores, or fewer than were asked for.
	Note string `json:"note,omitempty"`
}

// printScores prints the scores by which the node of a pod was chosen.
func (e *explanation) printScores(pod view.Pod) error {
	if pod.Placement == nil {
		return usagef("pod %s has no node, so none was scored: tenon explain without --scores says why", pod.Pod)
	}
	answer := scored{Decision: view.Decision{Pod: pod.Pod, UID: pod.UID, Node: pod.Placement.Node}}
	if pod.Decision != nil {
		answer.Decision = *pod.Decision
	}
	all := slices.SortedFunc(slices.Values(answer.Scores), view.CompareScores)
	answer.Scores = append([]view.Score{}, all[:min(len(all), e.scores)]...)
	switch {
	case pod.Decision == nil:
		answer.Note = "the leading scheduler does not remember its decision: it keeps the last 256"
	case len(all) == 0:
		answer.Note = "no node was scored: " + whyUnscored(*pod.Decision)
	case len(all) < min(e.scores, answer.Feasible):
		answer.Note = fmt.Sprintf("scores of the best %d of %s; PUT /debug/flags/s keeps more of later decisions",
			len(all), view.Count(answer.Feasible, "feasible node"))
	}
	if err := printAnswer(e.out, e.list.format, answer, func() string { return e.scoreTable(answer) },
		podName(answer.Pod)); err != nil {
		return err
	}
	if answer.Note != "" {
		say(e.warn, "note: %s\n", answer.Note)
	}
	return nil
}

// whyUnscored names the cause for which a decision has no scores: scoring begins with a second node that fits.
func whyUnscored(d view.Decision) string {
	if d.Of > 1 {
		return fmt.Sprintf("only %s of %d nodes fits the pod", d.Node, d.Of)
	}
	if d.Only != "" {
		return fmt.Sprintf("%s was the only node considered: %s", d.Node, d.Only)
	}
	return d.Node + " was the only node considered"
}

// scoreTable is the table of the scheduler's log, or one that fits a terminal; wide adds how each column came about.
func (e *explanation) scoreTable(answer scored) string {
	if len(answer.Scores) == 0 {
		return ""
	}
	table := view.ScoreTable(answer.Decision, len(answer.Scores))
	if e.render.width > 0 {
		table = e.terminalScores(answer)
	}
	if e.list.format != wide {
		return table
	}
	t := columns{paint: e.render.paint, width: e.render.width}
	t.add("NODE", "PLUGIN", "RAW", "NORMALIZED", "WEIGHT", "SCORE", "")
	for _, s := range answer.Scores {
		name := s.Node
		for _, p := range s.Plugins {
			raw, effect := "-", ""
			if p.Raw != nil {
				raw = fmt.Sprint(*p.Raw)
			}
			if len(answer.Scores) > 1 && !slices.ContainsFunc(answer.Scores, func(o view.Score) bool {
				return o.Of(p.Name).Score != p.Score
			}) {
				effect = "no effect among these nodes"
			}
			t.add(name, p.Name, raw, p.Normalized, p.Weight, p.Score, effect)
			name = ""
		}
	}
	return table + "\n" + t.String()
}

// terminalScores has a column for each plugin whose scores differ; the others are named below with their score.
func (e *explanation) terminalScores(answer scored) string {
	differ, same := []string{}, ""
	for _, p := range answer.Scores[0].Plugins {
		if slices.ContainsFunc(answer.Scores, func(o view.Score) bool { return o.Of(p.Name).Score != p.Score }) {
			differ = append(differ, p.Name)
		} else {
			same += fmt.Sprintf(", %s %d", p.Name, p.Score)
		}
	}
	t := columns{paint: e.render.paint, width: e.render.width, right: len(differ) + 1}
	header := []any{"NODE", "SCORE"}
	for _, name := range differ {
		header = append(header, name)
	}
	t.add(header...)
	for _, s := range answer.Scores {
		row := []any{s.Node, s.Total}
		for _, name := range differ {
			row = append(row, s.Of(name).Score)
		}
		t.add(row...)
	}
	table := t.String()
	if same != "" {
		lines := view.Wrap("equal for these nodes: "+strings.TrimPrefix(same, ", "), " ", e.render.width)
		table += strings.Join(lines, "\n") + "\n"
	}
	return table
}
