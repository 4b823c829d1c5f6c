package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	mostAdded = 100
	maxFile   = 1 << 20
)

type capacityOptions struct {
	format, address, file, like, nodesLike string
	gang                                   int
	add                                    []string
}

func newCapacity(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, d Doctor) *cobra.Command {
	var o capacityOptions
	c := help.Command(texts, "capacity", &cobra.Command{
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("too many arguments: specify the pod with -f FILE or --like pod/NAME")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c.Flags().Changed("gang")); err != nil {
				return err
			}
			q, err := o.question(c.Context(), flags, streams.In, d)
			if none := overQuota(err); none != nil {
				return printCapacity(streams.Out, o.format, none)
			}
			if err != nil {
				return err
			}
			to, err := findDiagnostics(flags, o.address)
			if err != nil {
				return err
			}
			ctx, end := progress.Show(c.Context(), streams.ErrOut, "capacity", "")
			answer, err := askWhatIf(ctx, to, q)
			end()
			if err == nil && answer.Capacity == nil {
				err = errors.New("the scheduler does not count pods: it is of an older release")
			}
			if err != nil {
				return err
			}
			return printCapacity(streams.Out, o.format, answer)
		},
	})
	outputFlag(c, &o.format)
	c.Flags().StringVarP(&o.file, "filename", "f", "", "file with the pod, or with a workload; - reads standard input")
	c.Flags().StringVar(&o.like, "like", "", "count copies of this pod of the cluster: pod/NAME")
	c.Flags().IntVar(&o.gang, "gang", 0, "count whole gangs of this many pods, 1 to 10000")
	c.Flags().StringVar(&o.nodesLike, "nodes-like", "",
		"count only nodes with the instance type, architecture, number of CPUs and devices of this one: node/NAME")
	c.Flags().StringArrayVar(&o.add, "add", nil,
		`add nodes to the count: "N x MACHINE" or "N x like node/NAME"; may be repeated`)
	diagnosticsFlag(c, &o.address)
	utilruntime.Must(c.RegisterFlagCompletionFunc("like", completeArgument(flags, "pod")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("nodes-like", completeArgument(flags, "node")))
	utilruntime.Must(c.RegisterFlagCompletionFunc("add",
		cobra.FixedCompletions(d.Machines.Presets, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func (o *capacityOptions) check(gang bool) error {
	switch {
	case (o.file == "") == (o.like == ""):
		return usagef("specify either -f FILE or --like pod/NAME")
	case gang && (o.gang < 1 || o.gang > view.MostMembers):
		return usagef("--gang is %d, want 1 to %d", o.gang, view.MostMembers)
	}
	return nil
}

// question is what the scheduler is asked.
func (o *capacityOptions) question(ctx context.Context, flags *genericclioptions.ConfigFlags, in io.Reader, d Doctor,
) (*view.WhatIf, error) {
	q := &view.WhatIf{Ask: view.Ask{Mode: view.CountPods, Members: o.gang}}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if o.nodesLike != "" {
		if _, q.Ask.NodesLike, err = named([]string{o.nodesLike}, "node"); err != nil {
			return nil, fmt.Errorf("--nodes-like: %w", err)
		}
	}
	for _, text := range o.add {
		added, err := addedNodes(text, d.Machines)
		if err != nil {
			return nil, err
		}
		q.Changes = append(q.Changes, view.Change{AddNode: added})
	}
	if o.like != "" {
		_, name, err := named([]string{o.like}, "pod")
		if err != nil {
			return nil, fmt.Errorf("--like: %w", err)
		}
		q.Ask.Pods = []string{namespace + "/" + name}
		return q, nil
	}
	pod, err := readPod(o.file, in)
	if err != nil {
		return nil, err
	}
	if pod.Namespace == "" {
		pod.Namespace = namespace
	}
	cl, err := connect(flags)
	if err != nil {
		return nil, err
	}
	if pod, err = admitted(ctx, cl, "capacity-", o.file, pod); err != nil {
		return nil, err
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encode the pod: %w", err)
	}
	q.Changes = append(q.Changes, view.Change{AddPod: text})
	q.Ask.Pods = []string{pod.Namespace + "/" + pod.Name}
	return q, nil
}

// readPod reads a Pod, or the pods' template of a workload.
func readPod(file string, in io.Reader) (*corev1.Pod, error) {
	text, err := readFile(file, in)
	if err != nil {
		return nil, err
	}
	all, err := strict.Parse("-f "+file, text)
	switch {
	case err != nil:
		return nil, usagef("%w", err)
	case len(all) != 1:
		return nil, usagef("-f %s: has %d objects, want one pod or workload", file, len(all))
	}
	d, pod, namespace, path := all[0], &corev1.Pod{}, "", ""
	var object any
	problems := d.Decode("", &object)
	if kind := d.Kind(); kind != "Pod" {
		if path = "spec.jobTemplate.spec.template"; !d.Has(path) {
			path = "spec.template"
		}
		if len(problems) == 0 && !d.Has(path) {
			return nil, usagef("-f %s: kind is %q, want Pod, or a workload with spec.template", file, kind)
		}
	}
	problems = append(problems, d.Decode("metadata.namespace", &namespace)...)
	problems = append(problems, d.Decode(path, pod)...)
	if claims := "spec.volumeClaimTemplates"; d.Has(claims) {
		var templates []corev1.PersistentVolumeClaim
		problems = append(problems, d.Decode(claims, &templates)...)
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolumes(templates)...)
	}
	if err := problems.Err(); err != nil {
		return nil, usagef("%w", err)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, usagef("-f %s: spec.containers is empty, want one container or more", file)
	}
	pod.Namespace = cmp.Or(pod.Namespace, namespace)
	return pod, nil
}

// claimVolumes returns an ephemeral volume for each claim template of a StatefulSet: each pod has its own claim.
func claimVolumes(templates []corev1.PersistentVolumeClaim) (out []corev1.Volume) {
	for _, t := range templates {
		out = append(out, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: t.Spec},
			},
		}})
	}
	return out
}

func readFile(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("-f: %w", err)
		}
		defer func() { _ = f.Close() }() // it was read only
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read -f %s: %w", file, err)
	case len(text) > maxFile:
		return nil, usagef("-f %s: is larger than 1 MiB, want one pod or workload", file)
	}
	return text, nil
}

// admitted returns the pod as the cluster's admission would let it in, with a new name that begins with prefix.
func admitted(ctx context.Context, cl cluster, prefix, file string, pod *corev1.Pod) (*corev1.Pod, error) {
	next := convert.Successor(pod)
	next.GenerateName, next.Name, next.UID = prefix, "", ""
	out, err := cl.core.CoreV1().Pods(next.Namespace).Create(ctx, next,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"):
		return nil, failure{ExitUnreachable, fmt.Errorf("try the pod of -f %s as a dry run: %w (--like pod/NAME needs "+
			"no right to create pods)", file, err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, usagef("-f %s: the cluster refuses the pod: %w", file, err)
	case err != nil:
		return nil, fmt.Errorf("try the pod of -f %s as a dry run: %w", file, err)
	}
	return out, nil
}

// overQuota returns the answer that no pod fits, if a ResourceQuota has no room for the dry run of one; else nil.
func overQuota(err error) *view.WhatIfAnswer {
	const begin = "exceeded quota: "
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), begin) {
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), begin) // before it is the name of the dry run's pod
	return &view.WhatIfAnswer{Capacity: &view.Capacity{
		Groups: []view.CapacityGroup{}, Limits: []view.Refusal{},
		Admission: &view.AdmissionCapacity{Message: begin + text},
	}}
}

// addition is "10 x hgx-h100", "2 × like node/NAME", or either without a number for one.
var addition = regexp.MustCompile(`^\s*(?:(-?\d+)\s*[x×]\s*)?(like\s+)?(\S+)\s*$`)

// addedNodes reads a value of --add.
func addedNodes(text string, machines Machines) (*view.AddNode, error) {
	parts := addition.FindStringSubmatch(text)
	if parts == nil {
		return nil, usagef("--add %q is not allowed: use \"N x MACHINE\" or \"N x like node/NAME\"", text)
	}
	out := &view.AddNode{Count: 1}
	if parts[1] != "" {
		n, err := strconv.Atoi(parts[1])
		if err != nil || n < 1 || n > mostAdded {
			return nil, usagef("--add %q: the number is %s, want 1 to %d", text, parts[1], mostAdded)
		}
		out.Count = n
	}
	if parts[2] != "" {
		var err error
		if _, out.Like, err = named([]string{parts[3]}, "node"); err != nil {
			return nil, fmt.Errorf("--add %q: %w", text, err)
		}
		return out, nil
	}
	switch {
	case machines.Objects == nil:
		return nil, usagef("--add %q: this program contains no machines: use tenon, or \"N x like node/NAME\"", text)
	case strings.ContainsAny(parts[3], "=/"):
		return nil, usagef("--add %q: %q is not a machine: use a name of tenon up --list-machines, or \"N x like "+
			"node/NAME\"", text, parts[3])
	}
	objects, err := machines.Objects([]string{parts[3]})
	if err != nil {
		return nil, fmt.Errorf("--add %q: %w", text, err)
	}
	out.Machine = &view.Machine{}
	for _, o := range objects {
		encoded, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("--add %q: encode %T: %w", text, o, err)
		}
		switch kind := fmt.Sprintf("%T", o); kind[strings.LastIndex(kind, ".")+1:] {
		case "Node":
			out.Machine.Node = encoded
			out.Like = strings.TrimSuffix(o.(*corev1.Node).Name, "-0")
		case "NodeResourceTopology":
			out.Machine.Topology = encoded
		case "Device":
			out.Machine.Device = encoded
		}
	}
	return out, nil
}

// askWhatIf asks the scheduler. A question that it refuses is a usage error.
func askWhatIf(ctx context.Context, to diagnostics, q *view.WhatIf) (*view.WhatIfAnswer, error) {
	var err error
	if to.question, err = json.Marshal(q); err != nil {
		return nil, fmt.Errorf("encode the question: %w", err)
	}
	answer := &view.WhatIfAnswer{}
	err = to.get(ctx, answer, "/apis/v1/whatif", "")
	var refused *refusedError
	switch {
	case errors.As(err, &refused) && refused.code == http.StatusBadRequest:
		err = failure{ExitUsage, err}
	case errors.As(err, &refused) && refused.code == http.StatusForbidden, errors.Is(err, errNoScheduler):
		err = failure{ExitUnreachable, err}
	}
	return answer, err
}

func printCapacity(out io.Writer, format string, a *view.WhatIfAnswer) error {
	var none *view.Pod
	if len(a.Unschedulable) > 0 {
		none = &a.Unschedulable[0]
	}
	return printAnswer(out, format, struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		*view.Capacity
		// Why explains the pod if none fits.
		Why *view.Pod `json:"why,omitempty"`
	}{apiVersion, "Capacity", a.Capacity, none}, func() string {
		return drawCapacity(a.Capacity, none, terminalWidth(out))
	})
}

// drawCapacity draws the answer: how many fit, the nodes in groups, and what one more lacks.
func drawCapacity(c *view.Capacity, none *view.Pod, width int) string {
	var out strings.Builder
	out.WriteString(capacityHead(c, none) + "\n")
	if c.Added > 0 {
		fmt.Fprintf(&out, "Of these %d, %d fit on the added nodes.\n", c.Room, c.Added)
	}
	if len(c.Groups) > 0 {
		out.WriteString("\n")
		t := columns{width: width, right: 2}
		t.add("NODES", "FIT/NODE", "FIT", "ONE MORE LACKS", "HAVE/NEED", "EXAMPLE")
		for _, g := range c.Groups {
			code, amounts, example := "-", "-", ""
			if g.Lacks != nil {
				code, example = g.Lacks.Code.String(), g.Lacks.Example
				if g.Lacks.HaveNeed != "" {
					amounts = g.Lacks.HaveNeed
				}
			}
			t.add(someNodes(g.Nodes), g.Fit, g.Fit*len(g.Nodes), code, amounts, example)
		}
		out.WriteString(t.String())
	}
	if len(c.Limits) > 0 && c.Room > 0 {
		out.WriteString("\n")
		t := columns{width: width}
		if c.Quota != nil {
			t.add("quota", c.Quota.Lacks.Code, c.Quota.Lacks.Message)
		}
		if c.Admission != nil {
			t.add("admission", why.AdmissionRefused, c.Admission.Message)
		}
		for _, l := range c.Limits {
			text := l.Message
			if l.Nodes > 0 {
				text = fmt.Sprintf("%s (%s)", text, view.Count(l.Nodes, "node"))
			}
			t.add("limit", l.Code, text)
		}
		out.WriteString(t.String())
	}
	for _, note := range c.Notes {
		out.WriteString("note: " + note + "\n")
	}
	return out.String()
}

// capacityHead is the sentence that answers.
func capacityHead(c *view.Capacity, none *view.Pod) string {
	number, what, where := strconv.Itoa(c.Pods), "more fit", fmt.Sprintf("on %d of %s", c.WithRoom(),
		view.Count(c.Nodes, "node"))
	if c.Pods == 1 {
		what = "more fits"
	}
	if c.Gang != nil {
		number, what = strconv.Itoa(c.Gang.Fit), fmt.Sprintf("more gangs of %d fit", c.Gang.Members)
		if c.Gang.Fit == 1 {
			what = fmt.Sprintf("more gang of %d fits", c.Gang.Members)
		}
		where = fmt.Sprintf("(%s, %s)", view.Count(c.Pods, "pod"), where)
	}
	switch {
	case c.Bound != "":
		return fmt.Sprintf("At least %s %s %s; the count ended after %s.", number, what, where, c.Bound)
	case c.Pods == 0 && c.Admission != nil:
		return "None fits: the API server refuses the pod: " + c.Admission.Message
	case c.Admission != nil && c.Admission.Pods == c.Pods:
		return fmt.Sprintf("%s %s %s; then the API server refuses one more. The nodes have room for %s.", number, what,
			where, view.Count(c.Room, "pod"))
	case c.Room == 0 && none != nil && none.RootCause != nil:
		return fmt.Sprintf("None fits on any of %s: %s: %s", view.Count(c.Nodes, "node"), none.RootCause.Code,
			none.RootCause.Message)
	case c.Quota != nil:
		return fmt.Sprintf("%s %s; then quota %s has too little %s. The nodes have room for %s.", number, what,
			c.Quota.Name, lacking(&c.Quota.Lacks), view.Count(c.Room, "pod"))
	case len(c.Limits) == 0:
		return fmt.Sprintf("%s %s %s.", number, what, where)
	}
	if short := lacking(&c.Limits[0]); short != "" {
		return fmt.Sprintf("%s %s %s; then %s runs out first.", number, what, where, short)
	}
	return fmt.Sprintf("%s %s %s; then %s prevents one more.", number, what, where, c.Limits[0].Code)
}

// lacking names the resource that a refusal is about; "" for none.
func lacking(r *view.Refusal) string {
	switch r.Code {
	case why.InsufficientExclusiveCPU:
		return "CPU for exclusive use"
	case why.InsufficientIsolatedCPU:
		return "isolated CPU"
	case why.InsufficientCPU:
		return "cpu"
	case why.InsufficientPods:
		return "the number of pods of a node"
	}
	name, _ := r.Params["resource"].(string)
	return name
}

// someNodes names the first of equal nodes.
func someNodes(names []string) string {
	const shown = 3
	text := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
