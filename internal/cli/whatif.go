package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

type whatIfOptions struct {
	format, address, file, like string
	preempt, exitCode           bool
	changes                     []givenChange
	on                          []string
}

// givenChange is a change as the command line has it.
type givenChange struct{ flag, text string }

// changeFlag collects the values of several flags in the order of the command line.
type changeFlag struct {
	flag string
	to   *[]givenChange
}

func (f changeFlag) String() string { return "" }
func (f changeFlag) Type() string   { return "stringArray" }

func (f changeFlag) Set(text string) error {
	*f.to = append(*f.to, givenChange{f.flag, text})
	return nil
}

func newWhatIf(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, d Doctor) *cobra.Command {
	var o whatIfOptions
	c := help.Command(texts, "whatif", &cobra.Command{
		ValidArgsFunction: completeArgument(flags, "pod"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && o.file == "" && o.like == "" || o.file != "" && o.like != "" {
				return usagef("specify pod/NAME, -f FILE or --like pod/NAME")
			}
			w, err := newWhatIfQuestion(c.Context(), &o, flags, streams, d, args)
			if err != nil {
				return err
			}
			return w.ask(c.Context(), streams.Out)
		},
	})
	outputFlag(c, &o.format)
	f := c.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "file with a pod to add, or with a workload; - reads standard input")
	f.StringVar(&o.like, "like", "", "add a copy of a pod of the cluster: pod/NAME")
	f.StringArrayVar(&o.on, "on", nil, "place the pods on this node only: node/NAME; may be repeated")
	f.BoolVar(&o.preempt, "preempt", false, "allow the pods to preempt others, as the scheduler would")
	for name, usage := range map[string]string{
		"add":        `add nodes: "N x MACHINE" or "N x like node/NAME"`,
		"cordon":     "cordon a node: node/NAME",
		"remove":     "remove a bound pod from its node, to ask about its successor: pod/NAME",
		"change":     `any change as POST /apis/v1/whatif takes it, as JSON, such as {"patchNode":{…}}`,
		"set-quota":  "change amounts of a quota: NAME:max.cpu=20,min.cpu=8",
		"scale-gang": "scale a gang to N pods; new pods are named MEMBER-whatif-1 and so on: NAME=N",
	} {
		f.Var(changeFlag{name, &o.changes}, name, usage+"; may be repeated")
	}
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 3 if one of the pods fits nowhere")
	diagnosticsFlag(c, &o.address)
	utilruntime.Must(c.RegisterFlagCompletionFunc("like", completeArgument(flags, "pod")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("remove", completeArgument(flags, "pod")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("cordon", completeArgument(flags, "node")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("on", completeArgument(flags, "node")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("add",
		cobra.FixedCompletions(d.Machines.Presets, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

// change reads a change. Its error names the flag, its value and what is allowed.
func (g givenChange) change(namespace string, machines Machines) (c view.Change, err error) {
	fail := func(format string, args ...any) (view.Change, error) {
		return c, usagef("--%s %q: %s", g.flag, g.text, fmt.Sprintf(format, args...))
	}
	name, value, _ := strings.Cut(g.text, "=")
	switch g.flag {
	case "add":
		c.AddNode, err = addedNodes(g.text, machines)
		return c, err
	case "cordon":
		_, c.Cordon, err = named([]string{g.text}, "node")
	case "remove":
		_, c.RemovePod, err = named([]string{g.text}, "pod")
		c.RemovePod = qualified(namespace, c.RemovePod)
	case "scale-gang":
		to, wrong := strconv.Atoi(value)
		if name == "" || wrong != nil {
			return fail("use NAME=N, a gang and how many pods it has")
		}
		c.ScaleGang, err = json.Marshal(map[string]any{"gang": qualified(namespace, name), "to": to})
	case "set-quota":
		var wrong string
		if c.SetQuota, wrong = quotaChange(g.text); wrong != "" {
			return fail("%s", wrong)
		}
	case "change":
		question, wrong := withObjects([]byte(`{"changes":[` + g.text + `]}`))
		var q view.WhatIf
		if wrong == nil {
			wrong = json.Unmarshal(question, &q)
		}
		if wrong != nil || len(q.Changes) != 1 {
			return fail("use one JSON object with a change as POST /apis/v1/whatif takes it: %v",
				cmp.Or(wrong, fmt.Errorf("these are %d", len(q.Changes))))
		}
		c = q.Changes[0]
	}
	if err != nil {
		return fail("%v", err)
	}
	return c, nil
}

// quotaChange reads NAME:max.cpu=20,min.cpu=8, or says what is wrong.
func quotaChange(text string) (change json.RawMessage, wrong string) {
	const form = "use NAME:max.RESOURCE=AMOUNT,min.RESOURCE=AMOUNT"
	quota, list, _ := strings.Cut(text, ":")
	if quota == "" || list == "" {
		return nil, form
	}
	amounts := map[string]map[string]resource.Quantity{}
	for _, part := range strings.Split(list, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		bound, name, dotted := strings.Cut(key, ".")
		if !found || !dotted || name == "" || bound != "min" && bound != "max" {
			return nil, fmt.Sprintf("%q is not allowed: %s", part, form)
		}
		amount, err := annotation.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Sprintf("%s is %q, want an amount such as 20, 500m or 64Gi", key, value)
		}
		if amounts[bound] == nil {
			amounts[bound] = map[string]resource.Quantity{}
		}
		amounts[bound][name] = amount
	}
	all := map[string]any{"name": quota}
	for bound, resources := range amounts {
		all[bound] = resources
	}
	change, err := json.Marshal(all)
	utilruntime.Must(err) // quantities have a text
	return change, ""
}

// whatIfQuestion is a question with what it takes to ask it.
type whatIfQuestion struct {
	*whatIfOptions
	*explanation
	question view.WhatIf
}

func newWhatIfQuestion(ctx context.Context, o *whatIfOptions, flags *genericclioptions.ConfigFlags,
	streams genericiooptions.IOStreams, d Doctor, args []string,
) (*whatIfQuestion, error) {
	e, err := newExplanation(&explainOptions{color: colorAuto, address: o.address}, flags, streams)
	if err != nil {
		return nil, err
	}
	w := &whatIfQuestion{whatIfOptions: o, explanation: e}
	q := &w.question
	if o.preempt {
		q.Ask.Mode = view.Preempt
	}
	for _, on := range o.on {
		_, node, err := named([]string{on}, "node")
		if err != nil {
			return nil, usagef("--on %q: %v", on, err)
		}
		q.Ask.Nodes = append(q.Ask.Nodes, node)
	}
	if o.preempt && len(o.on) > 0 {
		return nil, usagef("--on and --preempt are not allowed together: preemption chooses among all nodes")
	}
	for _, arg := range args {
		_, name, err := named([]string{arg}, "pod")
		if err != nil {
			return nil, err
		}
		q.Ask.Pods = append(q.Ask.Pods, qualified(e.namespace, name))
	}
	for _, given := range o.changes {
		change, err := given.change(e.namespace, d.Machines)
		if err != nil {
			return nil, err
		}
		q.Changes = append(q.Changes, change)
	}
	// A question that counts quotas for itself must begin with that.
	slices.SortStableFunc(q.Changes, func(a, b view.Change) int { return countsQuotas(a) - countsQuotas(b) })
	if err := w.addPod(ctx, streams.In); err != nil {
		return nil, err
	}
	return w, nil
}

// countsQuotas returns 0 for the changes after which a question counts quotas for itself, 1 for others.
func countsQuotas(c view.Change) int {
	if c.SetQuota != nil || c.ScaleGang != nil || c.PatchPod != nil {
		return 0
	}
	return 1
}

// addPod adds the pod of a file, or the one that is like another.
func (w *whatIfQuestion) addPod(ctx context.Context, in io.Reader) error {
	if w.file == "" && w.like == "" {
		return nil
	}
	pod, err := readPodOf(ctx, w.explanation, w.file, w.like, in)
	if err != nil {
		return err
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encode the pod: %w", err)
	}
	w.question.Changes = append(w.question.Changes, view.Change{AddPod: text})
	w.question.Ask.Pods = append(w.question.Ask.Pods, pod.Namespace+"/"+pod.Name)
	return nil
}

// readPodOf returns a pod as the cluster would admit it, of a file or like another one, that has no node. Its name is
// that of the file if it has one, or else a new one.
func readPodOf(ctx context.Context, e *explanation, file, like string, in io.Reader) (*corev1.Pod, error) {
	if like != "" {
		_, name, err := named([]string{like}, "pod")
		if err != nil {
			return nil, fmt.Errorf("--like: %w", err)
		}
		pod, err := e.readPod(ctx, name)
		if err != nil {
			return nil, err
		}
		pod = convert.Successor(pod)
		pod.Name, pod.UID, pod.ManagedFields = name+"-like", "", nil
		return pod, nil
	}
	pod, err := readPod(file, in)
	if err != nil {
		return nil, err
	}
	pod.Namespace = cmp.Or(pod.Namespace, e.namespace)
	admitted, err := admitted(ctx, e.cluster, "whatif-", file, pod)
	if err == nil {
		admitted.Name, admitted.ManagedFields = cmp.Or(pod.Name, admitted.Name), nil
	}
	return admitted, err
}

// whatIfBefore is a pod as it is without the changes.
type whatIfBefore struct {
	Pod string `json:"pod"`
	// Node is the pod's node; of a pod that the question adds, the one where it would be without the other changes.
	Node string `json:"node,omitempty"`
	// RootCause is why it waits, or would.
	RootCause *why.Wire `json:"rootCause,omitempty"`
}

// whatIfAnswer is what the verb prints.
type whatIfAnswer struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Before has the pods that there are without the changes, in the order of the question.
	Before []whatIfBefore `json:"before"`
	*view.WhatIfAnswer
}

// ask asks the question and prints the answer.
func (w *whatIfQuestion) ask(ctx context.Context, out io.Writer) error {
	after, err := askWhatIf(ctx, w.scheduler, &w.question)
	if err != nil {
		return err
	}
	answer := whatIfAnswer{apiVersion, "WhatIf", []whatIfBefore{}, after}
	if err := w.addBefore(ctx, &answer); err != nil {
		return err
	}
	err = printAnswer(out, w.whatIfOptions.format, answer, func() string {
		return drawWhatIf(&answer, w.question.Ask.Pods, terminalWidth(out))
	})
	if err == nil && w.whatIfOptions.exitCode && len(after.Unschedulable) > 0 {
		return errNegative
	}
	return err
}

// addBefore adds the pods as they are, and those that the question adds as they would be without its other changes. A
// pod that a gang gets is in no answer.
func (w *whatIfQuestion) addBefore(ctx context.Context, answer *whatIfAnswer) error {
	var alone view.WhatIf
	added := map[string]bool{}
	for _, c := range w.question.Changes {
		if c.AddPod != nil {
			var pod corev1.Pod
			if err := json.Unmarshal(c.AddPod, &pod); err != nil {
				return fmt.Errorf("read an added pod: %w", err) // the scheduler could read it
			}
			alone.Changes = append(alone.Changes, c)
			added[cmp.Or(pod.Namespace, corev1.NamespaceDefault)+"/"+pod.Name] = true
		}
	}
	for _, pod := range w.question.Ask.Pods {
		if added[pod] {
			alone.Ask.Pods = append(alone.Ask.Pods, pod)
			continue
		}
		var found view.Pod
		namespace, name, _ := strings.Cut(pod, "/")
		err := w.scheduler.explain(ctx, &found, "", namespace, name)
		if refused := (*refusedError)(nil); errors.As(err, &refused) && refused.code == http.StatusNotFound {
			continue
		}
		if err != nil {
			return err
		}
		before := whatIfBefore{Pod: pod, RootCause: found.RootCause}
		if found.Placement != nil {
			before.Node = found.Placement.Node
		}
		answer.Before = append(answer.Before, before)
	}
	if len(alone.Ask.Pods) == 0 || len(alone.Changes) == len(w.question.Changes) && !w.preempt {
		return nil // the answer is the same
	}
	found, err := askWhatIf(ctx, w.scheduler, &alone)
	if err != nil {
		return err
	}
	for _, p := range found.Placements {
		answer.Before = append(answer.Before, whatIfBefore{Pod: p.Pod, Node: p.Node})
	}
	for _, p := range found.Unschedulable {
		answer.Before = append(answer.Before, whatIfBefore{Pod: p.Pod, RootCause: p.RootCause})
	}
	return nil
}

// drawWhatIf draws each pod before and after, why pods fit nowhere, and who would be evicted.
func drawWhatIf(a *whatIfAnswer, asked []string, width int) string {
	var out strings.Builder
	verb := "fit"
	if len(asked) == 1 {
		verb = "fits"
	}
	fmt.Fprintf(&out, "%d of %s %s.\n\n", len(a.Placements), view.Count(len(asked), "pod"), verb)
	before := map[string]string{}
	for _, p := range a.Before {
		before[p.Pod] = waitsOr(p.RootCause, p.Node)
	}
	table, refusals := columns{width: width}, columns{width: width}
	table.add("POD", "BEFORE", "AFTER", "GETS")
	for _, pod := range asked {
		for _, p := range a.Placements {
			if p.Pod == pod {
				table.add(pod, cmp.Or(before[pod], "-"), p.Node, cmp.Or(gets(&p), "-"))
			}
		}
		for _, p := range a.Unschedulable {
			if p.Pod == pod {
				table.add(pod, cmp.Or(before[pod], "-"), waitsOr(p.RootCause, ""), "-")
				if p.RootCause != nil {
					refusals.add("why", pod, p.RootCause.Message)
				}
			}
		}
	}
	for _, v := range a.Victims {
		refusals.add("evict", v.Pod, "on "+v.Node+", for "+v.For)
	}
	out.WriteString(table.String())
	if len(refusals.rows) > 0 {
		out.WriteString("\n" + refusals.String())
	}
	if a.VictimsHidden > 0 {
		fmt.Fprintf(&out, "note: %s that you may not read would be evicted\n", view.Count(a.VictimsHidden, "more pod"))
	}
	return out.String()
}

// waitsOr is the code for which a pod waits, else its node.
func waitsOr(cause *why.Wire, node string) string {
	switch {
	case cause != nil:
		return "waits: " + cause.Code.String()
	case node == "":
		return "waits"
	}
	return node
}

// gets is what a pod would get on its node, in words.
func gets(p *view.WhatIfPlacement) string {
	var status annotation.ResourceStatus
	var devices map[string][]view.Device
	// The scheduler has written both.
	_ = json.Unmarshal(p.ResourceStatus, &status)
	_ = json.Unmarshal(p.Devices, &devices)
	var parts []string
	if status.CPUSet != "" {
		parts = append(parts, view.CPUs(status.CPUSet))
	}
	var numa []string
	for _, n := range status.NUMANodeResources {
		numa = append(numa, fmt.Sprint(n.Node))
	}
	if len(numa) > 0 {
		parts = append(parts, "NUMA "+strings.Join(numa, ","))
	}
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		var minors []string
		slices.SortFunc(devices[kind], func(a, b view.Device) int { return cmp.Compare(a.Minor, b.Minor) })
		for _, d := range devices[kind] {
			minors = append(minors, fmt.Sprint(d.Minor))
		}
		parts = append(parts, kind+" "+strings.Join(minors, ","))
	}
	return strings.Join(parts, ", ")
}
