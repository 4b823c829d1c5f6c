package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// masksShown bounds a mask table unless all masks are asked for.
const masksShown = 20

// hints explains how the NUMA nodes of one machine meet a pod.
func (o *explainOptions) hints(ctx context.Context, cl cluster, scheduler *diagnostics, out, warn io.Writer, p paint,
	namespace, name string, width int,
) error {
	pod, err := cl.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return cl.noSuchPod(ctx, namespace, name)
	}
	if err != nil {
		return fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	node := o.node
	if node == "" {
		node = pod.Spec.NodeName
	}
	if node == "" {
		return usagef("pod %s/%s holds no node: name one with --node", namespace, name)
	}
	answer, err := hintsOf(ctx, cl, scheduler, warn, pod, node)
	if err != nil {
		return err
	}
	r := hintRenderer{renderer: renderer{paint: p, width: width, everything: o.everything}}
	err = printAnswer(out, o.list.format, answer, func(w io.Writer) error {
		_, err := io.WriteString(w, r.hints(namespace+"/"+name, answer))
		return err
	})
	if err == nil && o.exitCode && refused(answer) {
		return errNegative
	}
	return err
}

func refused(h view.Hints) bool {
	return h.Kubelet != nil && h.Kubelet.Refusal != nil || h.Alignment != nil && h.Alignment.Refusal != nil
}

// hintsOf asks the scheduler, whose account knows what it has just promised, and else computes from the objects.
func hintsOf(ctx context.Context, cl cluster, scheduler *diagnostics, warn io.Writer, pod *corev1.Pod,
	node string,
) (view.Hints, error) {
	if scheduler != nil {
		answer, err := scheduler.hints(ctx, pod.Namespace, pod.Name, node)
		if err == nil {
			return answer, nil
		}
		_, _ = fmt.Fprintf(warn, "warning: %v; this is what the objects say\n", err)
	}
	a, err := cl.load(ctx, node, "")
	if err != nil {
		return view.Hints{}, err
	}
	answer := describe.Hints(pod, node, a.view(node))
	if scheduler == nil {
		answer.Notes = append(answer.Notes, "no scheduler was asked: "+errNoDiagnostics.Error())
	}
	return answer, nil
}

// hintRenderer writes the table form of hints.
type hintRenderer struct{ renderer }

func (r *hintRenderer) hints(pod string, h view.Hints) string {
	r.lines = nil
	head := "pod " + pod + " on node " + h.Node
	if h.Mode != "" {
		head += "   mode " + h.Mode
	}
	if k := h.Kubelet; k != nil {
		head += fmt.Sprintf("   kubelet %s, %s, scope %s", k.Release, k.Policy, k.Scope)
	}
	r.lines = append(r.lines, r.text(bold, head))
	if k := h.Kubelet; k != nil {
		for _, assumption := range k.Assumed {
			r.line("  assumed", "%s", assumption)
		}
		for i := range k.Steps {
			r.step(&k.Steps[i])
		}
		if k.Refusal != nil {
			r.refusal(cmp.Or(k.Status, k.Refusal.Code.String()), k.Refusal.Message)
		}
	}
	if h.Alignment != nil {
		r.alignment(h.Alignment)
	}
	for _, n := range h.Notes {
		r.line("  note", "%s", n)
	}
	var b strings.Builder
	for _, l := range r.lines {
		b.WriteString(r.fit(strings.TrimRight(l, " "), r.width) + "\n")
	}
	return b.String()
}

func (r *hintRenderer) refusal(status, message string) {
	r.lines = append(r.lines, r.text(red, r.symbol("✗", "x")+" "+status+": "+message))
}

func (r *hintRenderer) step(s *view.HintStep) {
	whose := "the whole pod"
	if s.Container != "" {
		whose = "container " + s.Container
	}
	r.lines = append(r.lines, "", r.text(bold, whose))
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
		r.line("  merge", "%s", text)
	}
	if s.Cause != "" {
		r.line("  because", "%s", s.Text)
	}
	if s.Seconds >= 1 {
		r.line("  warning", "the kubelet takes about %s for this merge, and admits no other pod meanwhile",
			time.Duration(s.Seconds*float64(time.Second)).Round(time.Second))
	}
	if g := s.Given; g != nil {
		r.line("  gives", "%s", givenText(g))
	}
}

// masks prints what every resource says of every mask that any of them names.
func (r *hintRenderer) masks(resources []view.HintResource) {
	if len(resources) == 0 {
		return
	}
	type row struct {
		numa  []int
		cells []string
	}
	byMask := map[string]*row{}
	var rows []*row
	head := []string{"NUMA"}
	more := 0
	for i, res := range resources {
		head = append(head, res.Resource)
		more += res.More
		for _, h := range res.Hints {
			key := nodeList(h.NUMA)
			known := byMask[key]
			if known == nil {
				known = &row{numa: h.NUMA, cells: make([]string, len(resources))}
				byMask[key], rows = known, append(rows, known)
			}
			known.cells[i] = "fits"
			if h.Preferred {
				known.cells[i] = "preferred"
			}
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(len(a.numa), len(b.numa)), slices.Compare(a.numa, b.numa))
	})
	t := columns{indent: "  ", width: r.width, paint: r.paint}
	t.add(head...)
	shown := len(rows)
	if !r.everything {
		shown = min(shown, masksShown)
	}
	for _, row := range rows[:shown] {
		cells := []string{nodeList(row.numa)}
		for i, cell := range row.cells {
			switch {
			case cell != "":
			case resources[i].Any:
				cell = "any"
			default:
				cell = r.symbol("–", "-")
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
	var needs []string
	for _, res := range resources {
		switch {
		case res.Any:
			needs = append(needs, "any")
		case len(res.Hints) == 0:
			needs = append(needs, "fits nowhere")
		case res.Needs == 0:
			needs = append(needs, "prefers none")
		default:
			needs = append(needs, "needs "+strconv.Itoa(res.Needs))
		}
	}
	t.add(append([]string{""}, needs...)...)
	var b strings.Builder
	_ = t.write(&b) // a Builder takes everything
	r.lines = append(r.lines, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
	if left := len(rows) - shown + more; left > 0 {
		r.lines = append(r.lines, fmt.Sprintf("  %d more masks: --all shows them", left))
	}
}

func givenText(g *view.Given) string {
	var parts []string
	if g.CPUs != "" {
		parts = append(parts, "CPUs "+g.CPUs+" on NUMA "+nodeList(g.NUMA))
	}
	for _, b := range g.Memory {
		if b.Amount > 0 {
			parts = append(parts, fmt.Sprintf("%s %s from NUMA %s", resource.NewQuantity(b.Amount, resource.BinarySI),
				b.Resource, nodeList(b.NUMA)))
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

// alignment prints what each NUMA node can give.
func (r *hintRenderer) alignment(a *view.Alignment) {
	r.lines = append(r.lines, "", r.text(bold, "Tenon's choice"))
	policy := a.Policy
	if policy == "None" {
		policy = "no policy"
	}
	r.line("  policy", "%s: at most %d NUMA %s", policy, a.Allows, nodesWord(a.Allows))
	t := columns{indent: "  ", width: r.width, paint: r.paint, right: map[int]bool{1: true, 2: true}}
	head := []string{"RESOURCE", "ASKED", "NEEDS"}
	for i, id := range a.NUMA {
		head = append(head, "NUMA "+strconv.Itoa(id))
		t.right[i+3] = true
	}
	t.add(head...)
	for _, row := range a.Rows {
		needs := ""
		if row.Needs > 0 {
			needs = strconv.Itoa(row.Needs)
		}
		cells := []string{row.Resource, amountOf(row.Resource, row.Need), needs}
		for _, have := range row.Have {
			cells = append(cells, amountOf(row.Resource, have))
		}
		t.add(cells...)
	}
	var b strings.Builder
	_ = t.write(&b) // a Builder takes everything
	r.lines = append(r.lines, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
	if a.Refusal != nil {
		r.refusal(a.Refusal.Code.String(), a.Refusal.Message)
		return
	}
	if len(a.Chosen) > 0 {
		r.line("  chosen", "NUMA %s", nodeList(a.Chosen))
	}
}

// nodeList joins NUMA ids for a line of text: "0,2"; "any" for none.
func nodeList(ids []int) string {
	if len(ids) == 0 {
		return "any"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func nodesWord(n int) string {
	if n == 1 {
		return "node"
	}
	return "nodes"
}

// amountOf writes an amount of an alignment's row.
func amountOf(name string, n int64) string {
	switch name {
	case "cpu", "pool":
		return strconv.FormatInt(n, 10)
	case "pool-left":
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}

// errHintsNeedAPod is the refusal of --hints and --node without a pod.
var errHintsNeedAPod = errors.New("--hints and --node need a pod: tenon explain pod/NAME --node NODE --hints")
