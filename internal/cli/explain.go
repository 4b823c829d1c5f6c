package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

type explainOptions struct {
	list                      listFlags
	color                     string
	address, descheduler      string
	node                      string
	allNamespaces, everything bool
	exitCode, hintTable       bool
	scores                    int // rows of the table of scores, 0 = no table
	// warnings is Doctor.Warnings.
	warnings func(*corev1.Pod) []string
}

func newExplain(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, d Doctor) *cobra.Command {
	o := explainOptions{warnings: d.Warnings}
	c := help.Command(texts, "explain", &cobra.Command{
		Aliases: []string{"why"},
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := named(args, explainedKinds...)
			if err != nil {
				return err
			}
			if name != "" && o.allNamespaces {
				return usagef("-A and a name exclude each other")
			}
			if kind == "quota" && name != "" {
				return explainQuota(c.Context(), &o, name, flags, streams)
			}
			if err := o.list.check(name); err != nil {
				return err
			}
			if (name == "" || kind != "pod") && (o.hintTable || o.node != "") {
				return usagef("--hints and --node need a pod: tenon explain pod/NAME --node NODE --hints")
			}
			if scores := c.Flags().Changed("scores"); scores && (name == "" || kind != "pod" || o.hintTable) {
				return usagef("--scores needs a pod and excludes --hints: tenon explain pod/NAME --scores")
			} else if scores && o.scores < 1 {
				return usagef("--scores=%d is not allowed: use 1 or more", o.scores)
			}
			if o.node != "" && !o.hintTable {
				return usagef("--node is read with --hints: without it all nodes are shown")
			}
			return repeat(c.Context(), o.list.watch, watchInterval, streams.Out, func(w io.Writer) error {
				e, err := newExplanation(&o, flags, streams)
				if err != nil {
					return err
				}
				e.out = w
				return e.explain(c.Context(), kind, name)
			})
		},
	})
	o.list.add(c, "pods")
	c.ValidArgsFunction = completeArgument(flags, explainedKinds...)
	c.Flags().StringVar(&o.color, "color", colorAuto, "auto, always or never")
	diagnosticsFlag(c, &o.address)
	deschedulerFlag(c, &o.descheduler)
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "without a name: pods of all namespaces")
	c.Flags().BoolVar(&o.everything, "all", false,
		"show all nodes instead of the ten nearest misses, all masks instead of twenty")
	c.Flags().BoolVar(&o.hintTable, "hints", false, "show the NUMA hints of each resource on a node, and their merge")
	c.Flags().IntVar(&o.scores, "scores", 0, "show the scores of this many nodes; -o wide adds how they were computed")
	c.Flags().Lookup("scores").NoOptDefVal = allScores
	c.Flags().StringVar(&o.node, "node", "", "with --hints: the node (default: the node of the pod)")
	utilruntime.Must(c.RegisterFlagCompletionFunc("node", completeNames(flags, "node")))
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with 3 while a pod is blocked")
	return c
}

// explainQuota answers with what the verb quota shows of one.
func explainQuota(ctx context.Context, o *explainOptions, name string, flags *genericclioptions.ConfigFlags,
	streams genericiooptions.IOStreams,
) error {
	if o.list.watch || o.list.selector != "" || o.hintTable || o.node != "" {
		return usagef("-w, -l, --hints and --node are not for quotas")
	}
	asked := quotaOptions{format: o.list.format, color: o.color, address: o.address}
	return showQuotas(ctx, &asked, name, flags, streams)
}

type explanation struct {
	*explainOptions
	cluster
	flags     *genericclioptions.ConfigFlags
	scheduler diagnostics
	unasked   []string // the note of an answer without a scheduler
	namespace string
	out, warn io.Writer
	render    renderer
}

func newExplanation(o *explainOptions, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams,
) (*explanation, error) {
	p, err := newPaint(o.color, streams.Out, os.Getenv)
	if err != nil {
		return nil, err
	}
	cl, err := connect(flags)
	if err != nil {
		return nil, err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	scheduler, err := findDiagnostics(flags, o.address)
	if err != nil {
		return nil, err
	}
	return &explanation{
		explainOptions: o, cluster: cl, flags: flags, scheduler: scheduler, namespace: namespace,
		out: streams.Out, warn: streams.ErrOut,
		render: renderer{paint: p, now: time.Now(), width: o.list.width(streams.Out), everything: o.everything},
	}, nil
}

func (e *explanation) explain(ctx context.Context, kind, name string) error {
	switch {
	case name == "":
		return e.pending(ctx)
	case kind == "reservation":
		return e.reservation(ctx, name)
	case kind != "pod":
		return e.workload(ctx, kind, name)
	}
	pod, err := e.readPod(ctx, name)
	if err != nil {
		return err
	}
	if e.hintTable {
		return e.hints(ctx, pod)
	}
	answer := explained{Phase: pod.Status.Phase}
	if answer.Pod, err = e.explainPod(ctx, pod); err != nil {
		return err
	}
	if e.scores > 0 {
		return e.printScores(answer.Pod)
	}
	if e.warnings != nil {
		answer.Notes = append(answer.Notes, e.warnings(pod)...)
	}
	if text := describe.Eviction(pod); text != "" {
		answer.Notes = append(answer.Notes, text)
	}
	e.addSuppression(ctx, &answer, pod)
	e.addQuiet(ctx, &answer, pod)
	e.addReclaim(ctx, &answer, pod)
	e.addActual(ctx, &answer, pod)
	e.addMoves(ctx, &answer, pod)
	return e.print(answer, answer.RootCause != nil, func() string { return e.render.pod(answer, answer.Phase) },
		podName(answer.Pod.Pod))
}

// print prints an answer, or its table. A negative answer sets the exit code where that was asked for.
func (e *explanation) print(answer any, negative bool, table func() string, names ...string) error {
	err := printAnswer(e.out, e.list.format, answer, table, names...)
	if err == nil && e.exitCode && negative {
		return errNegative
	}
	return err
}

// readPod returns a pod. The error about one that does not exist names another namespace with a pod of that name, or
// else a similar name.
func (e *explanation) readPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := e.core.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return pod, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read pod %s/%s: %w", e.namespace, name, err)
	}
	elsewhere, err := e.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), Limit: 1,
	})
	if err == nil && len(elsewhere.Items) > 0 {
		other := elsewhere.Items[0].Namespace
		return nil, usagef("pod %q not found in namespace %q; it exists in namespace %q (try -n %s)", name, e.namespace,
			other, other)
	}
	why, err := e.lastEvent(ctx, event.BestEffortEvicted.String(), func(o corev1.ObjectReference) bool {
		return o.Kind == "Pod" && o.Name == name
	})
	if err == nil && why != "" {
		return nil, usagef("pod %q not found in namespace %q; it was %s", name, e.namespace, why)
	}
	if err := e.findNamespace(ctx, e.namespace); err != nil {
		return nil, err
	}
	return nil, usagef("pod %q not found in namespace %q%s", name, e.namespace,
		suggest(name, e.words(ctx, e.namespace, "pod", nameOf)))
}

// ask asks the scheduler. It returns false where the objects must do, and warns if the scheduler failed to answer.
func (e *explanation) ask(ctx context.Context, answer any, path ...string) bool {
	err := e.scheduler.explain(ctx, answer, "fixes=true", path...)
	if errors.Is(err, errNoScheduler) {
		e.unasked = []string{err.Error()}
	} else if err != nil {
		say(e.warn, "warning: %v; this is what the objects say\n", err)
	}
	return err == nil
}

// addSuppression says of a best-effort pod that runs to what its node suppresses it, and why. The answer is valid
// without it, so errors are ignored.
func (e *explanation) addSuppression(ctx context.Context, answer *explained, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || convert.Ended(pod) || qos.RoleOf(describe.Class(pod)) != qos.BEPool {
		return
	}
	node, err := e.core.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return
	}
	if text := describe.Suppression(node); text != "" {
		answer.Notes = append(answer.Notes, text)
	}
}

// addQuiet says of a pod with CPUs of its own that runs how often interrupts fire there, and of an LSE pod what keeps
// its CPUs undisturbed, and what does not. The answer is valid without it, so errors are ignored.
func (e *explanation) addQuiet(ctx context.Context, answer *explained, pod *corev1.Pod) {
	placement := answer.Placement
	if placement == nil || placement.CPUSet == "" {
		return
	}
	if metrics, err := e.metrics(ctx, placement.Node); err == nil {
		if rate := describe.Interrupts(reportOfPod(metrics[placement.Node], pod)); rate != nil {
			answer.Notes = append(answer.Notes, view.InterruptsNote(placement.CPUSet, rate))
		}
	}
	if describe.Class(pod).Class != qos.LSE {
		return
	}
	topology, err := e.topology(ctx, placement.Node)
	if err != nil || topology == nil {
		return
	}
	answer.Notes = append(answer.Notes, describe.Quiet(topology, placement.CPUSet)...)
}

// explainPod asks the scheduler, and falls back on what the objects say.
func (e *explanation) explainPod(ctx context.Context, pod *corev1.Pod) (view.Pod, error) {
	var answer view.Pod
	// A scheduler forgets pods that have ended.
	if ended := convert.Ended(pod); !ended && e.ask(ctx, &answer, pod.Namespace, pod.Name) {
		e.addAge(ctx, &answer)
		return answer, nil
	}
	answer = view.FromObject(describe.Pod(pod))
	if name := pod.Spec.NodeName; name != "" {
		a, err := e.load(ctx, name, "")
		switch {
		case errors.Is(err, errNoNode):
			answer.Placement = describe.Placement(pod, nil)
			answer.Notes = append(answer.Notes, view.MissingNode(name))
		case apierrors.IsForbidden(err):
			answer.Placement = describe.Placement(pod, nil)
			answer.Notes = append(answer.Notes, "the node's resources are not shown: "+err.Error())
		case err != nil:
			return view.Pod{}, err
		default:
			answer.Placement = describe.Placement(pod, a.view(name))
			e.addAge(ctx, &answer)
		}
	}
	answer.Notes = append(answer.Notes, e.unasked...)
	return answer, nil
}

// addAge adds the age of the topology of the pod's node, or of the node that it comes closest to fitting. The answer is
// valid without it, so errors are ignored.
func (c cluster) addAge(ctx context.Context, answer *view.Pod) {
	node := ""
	switch {
	case answer.Placement != nil:
		node = answer.Placement.Node
	case len(answer.Candidates) > 0:
		node = answer.Candidates[0].Node
	}
	if _, known := answer.Data.Ages["topology"]; known || node == "" {
		return
	}
	topology, err := c.topology(ctx, node)
	if err != nil || topology == nil {
		return
	}
	if answer.Data.Ages == nil {
		answer.Data.Ages = map[string]float64{}
	}
	answer.Data.Ages["topology"] = time.Since(lastWrite(topology)).Round(time.Second).Seconds()
}

// addReclaim says of a batch pod that waits what the three nodes grant that come closest to fitting, and what takes the
// rest. The answer is valid without it, so errors are ignored.
func (e *explanation) addReclaim(ctx context.Context, answer *explained, pod *corev1.Pod) {
	asks := convert.BatchRequest(pod)
	if asks == (amount.Pair{}) || pod.Spec.NodeName != "" || convert.Ended(pod) {
		return
	}
	object, err := e.core.CoreV1().ConfigMaps(installedIn()).Get(ctx, sloconfig.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return
	}
	config, err := sloconfig.Read(object)
	if err != nil && config == nil {
		return
	}
	metrics, err := e.metrics(ctx, "")
	if err != nil {
		return
	}
	for _, candidate := range answer.Candidates[:min(3, len(answer.Candidates))] {
		node, err := e.core.CoreV1().Nodes().Get(ctx, candidate.Node, metav1.GetOptions{})
		if err != nil {
			continue
		}
		list, err := e.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
		})
		if err != nil {
			continue
		}
		strategy, err := config.Strategy(node)
		if err != nil {
			continue // an Event of the Node says what is wrong
		}
		pods := make([]*corev1.Pod, len(list.Items))
		for i := range list.Items {
			pods[i] = &list.Items[i]
		}
		answer.Notes = append(answer.Notes,
			describe.Reclaim(node, metrics[node.Name], &strategy, pods, asks, time.Now())...)
	}
}
