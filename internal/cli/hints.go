package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

const masksShown = 20

// hints explains how the NUMA nodes of one machine satisfy a pod. The scheduler's account knows what it has just
// promised; without it the objects answer.
func (e *explanation) hints(ctx context.Context, pod *corev1.Pod) error {
	name, node := pod.Namespace+"/"+pod.Name, cmp.Or(e.node, pod.Spec.NodeName)
	if node == "" {
		return usagef("pod %s holds no node: name one with --node", name)
	}
	var answer view.Hints
	if !e.ask(ctx, &answer, pod.Namespace, pod.Name, "hints", node) {
		a, err := e.load(ctx, node, "")
		if err != nil {
			return err
		}
		answer = describe.Hints(pod, node, a.view(node))
		answer.Notes = append(answer.Notes, e.unasked...)
	}
	refused := answer.Kubelet != nil && answer.Kubelet.Refusal != nil ||
		answer.Alignment != nil && answer.Alignment.Refusal != nil
	return e.print(answer, refused, func() string { return e.render.hints(name, answer) }, podName(name))
}

func (r *renderer) hints(pod string, h view.Hints) string {
	head := "pod " + pod + " on node " + h.Node
	if h.Mode != "" {
		head += "   mode " + h.Mode
	}
	if k := h.Kubelet; k != nil {
		head += fmt.Sprintf("   kubelet %s, %s, scope %s", k.Release, k.Policy, k.Scope)
	}
	r.add(bold, head)
	if k := h.Kubelet; k != nil {
		for _, assumption := range k.Assumed {
			r.line("  assumed", assumption)
		}
		for i := range k.Steps {
			r.step(&k.Steps[i])
		}
		if k.Refusal != nil {
			r.addWrapped(red, r.cross()+cmp.Or(k.Status, k.Refusal.Code.String())+": "+k.Refusal.Message)
		}
	}
	if h.Alignment != nil {
		r.alignment(h.Alignment)
	}
	for _, n := range h.Notes {
		r.line("  note", n)
	}
	return r.take()
}

func (r *renderer) step(s *view.HintStep) {
	whose := "the whole pod"
	if s.Container != "" {
		whose = "container " + s.Container
	}
	r.add(plain, "")
	r.add(bold, whose)
	r.masks(s.Resources)
	if m := s.Merged; m != nil {
		text := "NUMA " + nodeList(m.NUMA)
		switch {
		case m.Preferred:
			text += ", preferred"
		case len(m.NUMA) == 0 && !m.Admitted:
			text = "nothing that all prefer"
		default:
			text += ", not preferred"
		}
		if m.Admitted {
			text += ": admitted"
		} else {
			text += ": refused"
		}
		if m.Certainty != "exact" {
			text += " (" + m.Certainty + ")"
		}
		r.line("  merge", text)
	}
	if s.Cause != "" {
		r.line("  because", s.Text)
	}
	if s.Seconds >= 1 {
		r.line("  warning", fmt.Sprintf("the kubelet takes about %s for this merge, and admits no other pod meanwhile",
			time.Duration(s.Seconds*float64(time.Second)).Round(time.Second)))
	}
	if g := s.Given; g != nil {
		r.line("  gives", givenText(g))
	}
}

func (r *renderer) masks(resources []view.HintResource) {
	if len(resources) == 0 {
		return
	}
	head, needs, more := []any{"NUMA"}, []any{""}, 0
	var masks [][]int
	for _, res := range resources {
		head = append(head, res.Resource)
		more += res.More
		need := "needs " + strconv.Itoa(res.Needs)
		switch {
		case res.Any:
			need = "any"
		case len(res.Hints) == 0:
			need = "fits nowhere"
		case res.Needs == 0:
			need = "prefers none"
		}
		needs = append(needs, need)
		for _, h := range res.Hints {
			masks = append(masks, h.NUMA)
		}
	}
	slices.SortFunc(masks, func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	masks = slices.CompactFunc(masks, slices.Equal)
	t := columns{indent: "  ", width: r.width, paint: r.paint}
	t.add(head...)
	shown := len(masks)
	if !r.everything {
		shown = min(shown, masksShown)
	}
	for _, mask := range masks[:shown] {
		cells := []any{nodeList(mask)}
		for _, res := range resources {
			cells = append(cells, r.maskText(res, mask))
		}
		t.add(cells...)
	}
	t.add(needs...)
	r.add(plain, slices.Concat(t.lines()...)...)
	if left := len(masks) - shown + more; left > 0 {
		r.add(plain, fmt.Sprintf("  %d more masks: --all shows them", left))
	}
}

func (r *renderer) maskText(res view.HintResource, mask []int) string {
	at := slices.IndexFunc(res.Hints, func(h view.Hint) bool { return slices.Equal(h.NUMA, mask) })
	switch {
	case at >= 0 && res.Hints[at].Preferred:
		return "preferred"
	case at >= 0:
		return "fits"
	case res.Any:
		return "any"
	}
	return r.symbol("–", "-")
}

func givenText(g *view.Given) string {
	var parts []string
	if g.CPUs != "" {
		parts = append(parts, view.CPUs(g.CPUs)+" on NUMA "+nodeList(g.NUMA))
	}
	for _, b := range g.Memory {
		if b.Amount > 0 {
			parts = append(parts, view.BytesText(b.Amount)+" "+b.Resource+" from NUMA "+nodeList(b.NUMA))
		}
	}
	for _, d := range g.Devices {
		parts = append(parts, fmt.Sprintf("%d %s on NUMA %s", d.Amount, d.Resource, nodeList(d.NUMA)))
	}
	if len(parts) == 0 {
		return "nothing of its own"
	}
	return strings.Join(parts, "; ")
}

func (r *renderer) alignment(a *view.Alignment) {
	r.add(plain, "")
	r.add(bold, "Tenon's choice")
	policy := a.Policy
	if policy == "None" {
		policy = "no policy"
	}
	r.line("  policy", policy+": at most "+view.Count(a.Allows, "NUMA node"))
	t := columns{indent: "  ", width: r.width, paint: r.paint, right: 2 + len(a.NUMA)}
	head := []any{"RESOURCE", "ASKED", "NEEDS"}
	for _, id := range a.NUMA {
		head = append(head, fmt.Sprintf("NUMA %d", id))
	}
	t.add(head...)
	for _, row := range a.Rows {
		cells := []any{row.Resource, amountOf(row.Resource, row.Need), ""}
		if row.Needs > 0 {
			cells[2] = row.Needs
		}
		for _, have := range row.Have {
			cells = append(cells, amountOf(row.Resource, have))
		}
		t.add(cells...)
	}
	r.add(plain, slices.Concat(t.lines()...)...)
	switch {
	case a.Refusal != nil:
		r.addWrapped(red, r.cross()+a.Refusal.Code.String()+": "+a.Refusal.Message)
	case len(a.Chosen) > 0:
		r.line("  chosen", "NUMA "+nodeList(a.Chosen))
	}
}

// nodeList joins the ids of NUMA nodes; "any" for none.
func nodeList(ids []int) string { return cmp.Or(view.IDs(ids), "any") }

func amountOf(name string, n int64) string {
	switch name {
	case "cpu", "pool":
		return strconv.FormatInt(n, 10)
	case "pool-left":
		return view.CPUText(n)
	}
	return view.BytesText(n)
}
