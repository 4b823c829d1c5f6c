package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

const rowsShown = 10

type renderer struct {
	paint
	now        time.Time
	width      int // of the terminal, 0 = unlimited
	everything bool
	out        strings.Builder
}

func age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// labelWidth is that of the first column, its gap included.
const labelWidth = 16

// line adds a line for each text that is not empty, on several where the terminal is narrow; the first one has the
// label.
func (r *renderer) line(label string, texts ...string) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		for _, part := range view.Wrap(text, " ", r.width-labelWidth) {
			colour := plain
			if strings.HasPrefix(label, r.cross()) {
				colour = red
			}
			r.add(colour, fmt.Sprintf("%-*s%s", labelWidth, label, part))
			label = ""
		}
	}
}

func (p paint) cross() string { return p.symbol("✗", "x") + " " }

// addWrapped adds a text that may be wider than the terminal.
func (r *renderer) addWrapped(colour tint, text string) {
	for _, part := range view.Wrap(text, " ", r.width) {
		r.add(colour, part)
	}
}

func (r *renderer) add(colour tint, lines ...string) {
	for _, text := range lines {
		r.out.WriteString(r.text(colour, r.fit(strings.TrimRight(text, " "), r.width)) + "\n")
	}
}

func (r *renderer) take() string {
	defer r.out.Reset()
	return r.out.String()
}

func (r *renderer) pod(p explained, phase corev1.PodPhase) string {
	r.head(p.Pod, phase)
	return r.body(p)
}

// body is what pod shows below its head.
func (r *renderer) body(p explained) string {
	r.queue(p.Queue)
	if g := p.Gang; g != nil {
		r.line("gang", g.Name+", by rule "+g.Rule)
	}
	if e := p.Expected; e != nil && e.State == view.StartsAfter { // tenon queue shows the other answers
		r.line("expected start", e.Text(r.now)+" (place "+p.Place+")")
	}
	if p.Hold != nil {
		r.line("holds", p.Hold.Text(r.now))
	}
	if p.HeldBack != nil {
		r.line("held back", p.HeldBack.Text(r.now))
	}
	if p.RootCause != nil {
		r.cause(p.Pod)
		r.quotaLimit(p.Quota)
		r.nodes(p.Candidates)
	}
	r.moves(&p)
	if p.Rejection != nil {
		r.rejection(*p.Rejection)
	}
	if p.Placement != nil {
		if p.Rejection == nil {
			r.placement(*p.Placement)
			r.devices(p.Placement)
			if i := p.Placement.Isolation; i != nil {
				r.line("isolation", isolationText(i))
			}
		}
		r.kubelet(*p.Placement)
	}
	if p.Actual != nil {
		r.actual(*p.Actual)
	}
	if p.Decision != nil {
		r.decision(*p.Decision)
	}
	r.data(p.Data)
	for _, n := range p.Notes {
		r.line("  note", n)
	}
	return r.take()
}

func (r *renderer) head(p view.Pod, phase corev1.PodPhase) {
	state := p.State
	if p.State == view.Bound && phase != "" {
		state = string(phase)
	}
	text := "pod " + p.Pod + "   " + state
	if p.Since != nil {
		text += " " + age(r.now.Sub(*p.Since))
	}
	if p.QoS != "" {
		text += "   qos " + p.QoS
	}
	if p.Scheduler != "" {
		text += "   scheduler " + p.Scheduler
	}
	for i, part := range view.Wrap(text, "   ", r.width-4) {
		r.add(bold, strings.Repeat(" ", 4*min(i, 1))+part)
	}
}

func (r *renderer) queue(q *view.Queue) {
	if q == nil {
		return
	}
	var parts []string
	if q.Place != "" {
		parts = append(parts, q.Place)
	}
	if q.Position > 0 {
		parts = append(parts, fmt.Sprintf("position %d of %d", q.Position, q.Length))
	}
	attempts := view.Count(q.Attempts, "attempt")
	switch {
	case q.Attempts == 0:
		attempts = "never attempted"
	case q.LastAttempt != nil:
		attempts += ", last " + age(r.now.Sub(*q.LastAttempt)) + " ago"
	}
	parts = append(parts, attempts)
	if q.NextTry != nil {
		parts = append(parts, "next in "+age(q.NextTry.Sub(r.now)))
	}
	if len(q.WakesOn) > 0 {
		parts = append(parts, "wakes on "+strings.Join(q.WakesOn, ", "))
	}
	r.line("queue", strings.Join(parts, r.symbol(" · ", " | ")))
}

func (r *renderer) cause(p view.Pod) {
	c := p.RootCause
	where := slices.DeleteFunc([]string{c.Plugin, c.Phase}, func(part string) bool { return part == "" })
	if c.Nodes > 0 {
		where = append(where, view.Count(c.Nodes, "node"))
	}
	text := c.Code.String()
	if len(where) > 0 {
		text += "   (" + strings.Join(where, ", ") + ")"
	}
	var also []string
	for _, o := range p.Obstacles {
		if o.Code != c.Code && o.Nodes > 0 {
			also = append(also, fmt.Sprintf("%s on %s", o.Code, view.Count(o.Nodes, "node")))
		}
	}
	if len(also) > 0 {
		text += "   also " + strings.Join(also, ", ")
	}
	r.line(r.cross()+"root cause", text)
	r.line("  says", c.Message)
	r.line("  means", c.Code.Entry().Cause)
	r.line("  asked", p.Asked)
	remedies := []string{c.Code.Entry().Remedy}
	for _, o := range p.Obstacles {
		if remedy := o.Code.Entry().Remedy; remedy != "" && o.Code != c.Code {
			remedies = append(remedies, o.Code.String()+": "+remedy)
		}
	}
	r.line("  do", remedies...)
}

func (r *renderer) nodes(candidates []view.Candidate) {
	if len(candidates) == 0 {
		return
	}
	t := columns{indent: "  ", width: r.width, paint: r.paint}
	t.add("NODE", "CODE", "HAVE/NEED", "SAYS")
	notes, holders, requests := map[int]string{}, map[int]string{}, map[int][]string{} // by the row above
	shown := candidates
	if !r.everything {
		shown = candidates[:min(len(candidates), rowsShown)]
	}
	for _, c := range shown {
		name := c.Node
		if c.Count > 1 {
			name = fmt.Sprintf("%d nodes like %s", c.Count, c.Node)
		}
		for _, reason := range c.Reasons {
			says := reason.Message
			if reason.Code == why.InsufficientClaimDevices || reason.Code == why.ClaimDevicesHeld {
				text, clauses, _ := strings.Cut(says, ": ")
				says, requests[len(t.rows)] = text, strings.Split(clauses, "; ")
			}
			t.add(name, reason.Code, cmp.Or(reason.HaveNeed, r.symbol("–", "-")), says)
			name = ""
		}
		if c.Devices != nil {
			notes[len(t.rows)-1], holders[len(t.rows)-1] = fitText(c.Devices), holdersText(c.Devices)
		}
	}
	for i, lines := range t.lines() {
		r.add(plain, lines...)
		r.line("    claims", requests[i]...)
		r.line("    devices", notes[i])
		r.line("    held by", holders[i])
	}
	hidden := 0
	for _, c := range candidates[len(shown):] {
		hidden += c.Count
	}
	if hidden > 0 {
		more := view.Count(hidden, "more node")
		r.add(plain, fmt.Sprintf("  %s and %s (--all shows them)", r.symbol("…", "..."), more))
	}
}

var poolNames = map[string]string{
	view.PoolShared: "CPU shared pool", view.PoolBE: "BE CPU shared pool", view.PoolSystem: "system CPUs",
	view.PoolKubelet: "CPUs pinned by the kubelet",
}

func (r *renderer) placement(p view.Placement) {
	text := "node " + p.Node
	switch {
	case p.CPUSet != "":
		text += ", exclusive CPUs " + p.CPUSet
	case p.Pool != "":
		text += ", " + strings.TrimSpace(poolNames[p.Pool]+" "+p.PoolCPUs)
	}
	r.line("placed", text)
	for _, n := range p.NUMA {
		text := fmt.Sprintf("numa %d (socket %d): %s", n.Node, n.Socket, n.CPUSet)
		if len(n.Cores) > 0 {
			text += ", " + cores(n.Cores)
		}
		r.line("", text)
	}
	for _, c := range p.Claims {
		r.line("", "claim "+c.Name+": "+claimText(c))
	}
	r.line(r.cross()+"overcommitted", p.Overcommitted...)
}

func claimText(c view.HeldClaim) string {
	var devices []string
	for _, d := range c.Devices {
		text := d.Name
		if len(d.NUMANodes) > 0 {
			text += " on numa " + cpuset.FormatIDs(d.NUMANodes)
		}
		devices = append(devices, text)
	}
	return strings.Join(devices, ", ")
}

func (r *renderer) rejection(j view.Rejection) {
	text := fmt.Sprintf("by the kubelet of node %s: %s", j.Node, j.Reason)
	if j.Message != "" {
		text += ": " + j.Message
	}
	r.line(r.cross()+"rejected", text)
	if j.BackoffSeconds > 0 {
		r.line("", "the scheduler places no such pod on that node for another "+
			age(time.Duration(j.BackoffSeconds)*time.Second))
	}
}

func (r *renderer) kubelet(p view.Placement) {
	r.containers("predicted", p.Predicted)
	switch {
	case p.Actual != nil && p.Predicted != nil && len(p.Differs) == 0:
		r.line("actual", "as predicted")
	case p.Actual != nil:
		r.containers("actual", p.Actual)
	}
	if len(p.Differs) > 0 {
		r.line("", "the kubelet did not do what was predicted: "+strings.Join(p.Differs, ", "))
	}
	for _, assumption := range p.Assumed {
		r.line("assumed", assumption)
	}
}

func (r *renderer) containers(label string, all view.Containers) {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if text := given(all[name]); text != "" {
			texts = append(texts, name+": "+text)
		}
	}
	r.line(label, texts...)
}

func given(c view.Container) string {
	var parts []string
	if c.CPUs != "" {
		parts = append(parts, view.CPUs(c.CPUs))
	}
	memory := func(kind string, on map[string]string) {
		for _, nodes := range slices.Sorted(maps.Keys(on)) {
			parts = append(parts, fmt.Sprintf("%s %s on numa %s", on[nodes], kind, nodes))
		}
	}
	memory("memory", c.Memory)
	for _, kind := range slices.Sorted(maps.Keys(c.Hugepages)) {
		memory(kind, c.Hugepages[kind])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Devices)) {
		d := c.Devices[name]
		text := fmt.Sprintf("%d %s", d.Count, name)
		if len(d.Mask) > 0 {
			text += " on numa " + cpuset.FormatIDs(d.Mask)
		}
		if d.Open {
			text += " (or others)"
		}
		parts = append(parts, text)
	}
	if len(c.Mask) > 0 {
		on := "on numa "
		if c.Preferred {
			on = "aligned on numa "
		}
		parts = append(parts, on+cpuset.FormatIDs(c.Mask))
	}
	if c.Uncertain {
		parts = append(parts, "uncertain")
	}
	return strings.Join(parts, ", ")
}

func cores(list []view.CorePart) string {
	whole := 0
	var parts []string
	for _, c := range list {
		if c.Whole {
			whole++
		} else {
			parts = append(parts, fmt.Sprintf("part of core %d", c.Core))
		}
	}
	if whole > 0 {
		parts = append([]string{view.Count(whole, "whole core")}, parts...)
	}
	return strings.Join(parts, ", ")
}

func (r *renderer) decision(d view.Decision) {
	if d.Of == 1 && len(d.Scores) == 0 {
		text := "the scheduler considered no other node"
		if d.Only != "" {
			text += ": " + d.Only
		}
		r.line("why here", text)
		return
	}
	text := fmt.Sprintf("%d of %s were feasible", d.Feasible, view.Count(d.Of, "node"))
	chosen := slices.IndexFunc(d.Scores, func(s view.Score) bool { return s.Node == d.Node })
	other := slices.IndexFunc(d.Scores, func(s view.Score) bool { return s.Node != d.Node })
	if chosen >= 0 && other >= 0 {
		a, b := d.Scores[chosen], d.Scores[other]
		text += fmt.Sprintf("; score %d against %d of %s", a.Total, b.Total, b.Node)
		if a.Total == b.Total {
			text += ", a tie"
		}
		if diff := differences(a, b); diff != "" {
			text += ": " + diff
		}
	}
	r.line("why here", text)
}

func differences(a, b view.Score) string {
	type gap struct {
		plugin string
		lead   int64
	}
	var gaps []gap
	for _, p := range a.Plugins {
		lead := p.Score
		for _, q := range b.Plugins {
			if q.Name == p.Name {
				lead -= q.Score
			}
		}
		if lead != 0 {
			gaps = append(gaps, gap{p.Name, lead})
		}
	}
	slices.SortStableFunc(gaps, func(x, y gap) int { return cmp.Compare(max(y.lead, -y.lead), max(x.lead, -x.lead)) })
	parts := make([]string, len(gaps))
	for i, g := range gaps {
		parts[i] = fmt.Sprintf("%s %+d", g.plugin, g.lead)
	}
	return strings.Join(parts, ", ")
}

func (r *renderer) data(d view.Data) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d.Ages)) {
		parts = append(parts, fmt.Sprintf("%s %s old", name, age(time.Duration(d.Ages[name]*float64(time.Second)))))
	}
	if d.Generation > 0 {
		parts = append(parts, fmt.Sprintf("snapshot %d", d.Generation))
	}
	if d.Source == "objects" {
		parts = append(parts, "from API objects alone")
	}
	r.line("  data", strings.Join(parts, ", "))
}
