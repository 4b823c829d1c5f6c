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
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	list                      listFlags
	color, address            string
	node                      string
	allNamespaces, everything bool
	exitCode, hintTable       bool
}

// NewExplain returns the verb explain.
func NewExplain(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	var o explainOptions
	c := &cobra.Command{
		Use:     "explain [POD | KIND/NAME]",
		Aliases: []string{"why"},
		Short:   "Explain why a pod is pending or how it was placed",
		Long: `Explain why a pod is pending or how it was placed.

Without a name: all pending pods, grouped by root cause. KIND is pod, deployment, replicaset, statefulset, daemonset or
job: of a workload, its pods, and why pods of it were never made.`,
		Example: `  # a pending or a running pod
  tenon explain pod/web-0

  # the kubelet's hints for the pod on one node, their merge, and free amounts by NUMA node
  tenon explain pod/web-0 --node epyc-2s-0 --hints

  # the pods of a workload, also those that were refused before they existed
  tenon explain deploy/web

  # everything that waits, in all namespaces, until Ctrl-C
  tenon explain -A -w

  # for programs; exit code 3 while the pod is blocked
  tenon explain web-0 -n default -o json --exit-code`,
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := named(args, append([]string{"pod"}, workloadKinds...)...)
			if err != nil {
				return err
			}
			if err := o.list.check(name); err != nil {
				return err
			}
			if (name == "" || kind != "pod") && (o.hintTable || o.node != "") {
				return usagef("%v", errHintsNeedAPod)
			}
			if o.node != "" && !o.hintTable {
				return usagef("--node is read with --hints: without it all nodes are shown")
			}
			return repeat(c.Context(), o.list.watch, watchInterval, streams.Out, func(w io.Writer) error {
				return o.run(c.Context(), flags, streams, w, kind, name)
			})
		},
	}
	o.list.add(c, "pods")
	c.ValidArgsFunction = fromCluster(flags, podNames)
	c.Flags().StringVar(&o.color, "color", colorAuto, "auto, always or never")
	c.Flags().StringVar(&o.address, "diagnostics", "",
		"address of the scheduler's diagnostics (default: from the kubeconfig)")
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "without a name: pods of all namespaces")
	c.Flags().BoolVar(&o.everything, "all", false,
		"show all nodes instead of the ten nearest, all masks instead of twenty")
	c.Flags().BoolVar(&o.hintTable, "hints", false, "show the NUMA hints of each resource on a node, and their merge")
	c.Flags().StringVar(&o.node, "node", "", "with --hints: the node (default: the node of the pod)")
	completeFlag(c, "node", fromCluster(flags, nodeNames))
	c.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with 3 while a pod is blocked")
	return c
}

func (o *explainOptions) run(
	ctx context.Context, flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams, out io.Writer,
	kind, name string,
) error {
	p, err := newPaint(o.color, streams.Out, os.Getenv)
	if err != nil {
		return err
	}
	cl, err := connect(flags)
	if err != nil {
		return err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	scheduler, err := findDiagnostics(flags, o.address)
	if err != nil && !errors.Is(err, errNoDiagnostics) {
		return err
	}
	if name == "" {
		if o.allNamespaces {
			namespace = metav1.NamespaceAll
		}
		return o.pending(ctx, cl, scheduler, out, p, namespace, o.list.width(streams.Out))
	}
	if kind != "pod" {
		r := renderer{paint: p, now: time.Now(), width: o.list.width(streams.Out), everything: o.everything}
		return o.workload(ctx, cl, scheduler, out, streams.ErrOut, r, workloadRef{kind, namespace, name})
	}
	if o.hintTable {
		return o.hints(ctx, cl, scheduler, out, streams.ErrOut, p, namespace, name, o.list.width(streams.Out))
	}
	said, pod, err := explainPod(ctx, cl, scheduler, streams.ErrOut, namespace, name)
	if err != nil {
		return err
	}
	for _, key := range convert.Ignored(pod) {
		said.Notes = append(said.Notes, key.String())
	}
	answer := explained{Pod: said}
	cl.addActual(ctx, flags, &answer, pod)
	r := renderer{paint: p, now: time.Now(), width: o.list.width(streams.Out), everything: o.everything}
	err = printAnswer(out, o.list.format, answer, func(w io.Writer) error {
		_, err := io.WriteString(w, r.pod(answer, pod.Status.Phase))
		return err
	})
	if err == nil && o.exitCode && answer.RootCause != nil {
		return errNegative
	}
	return err
}

// explainPod asks the scheduler, and falls back on what the objects say. It also returns the pod.
func explainPod(ctx context.Context, cl cluster, scheduler *diagnostics, warn io.Writer, namespace,
	name string,
) (view.Pod, *corev1.Pod, error) {
	pod, err := cl.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return view.Pod{}, nil, cl.noSuchPod(ctx, namespace, name)
	}
	if err != nil {
		return view.Pod{}, nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	if scheduler != nil {
		answer, err := scheduler.explain(ctx, namespace, name)
		if err == nil {
			cl.addAge(ctx, &answer)
			return answer, pod, nil
		}
		_, _ = fmt.Fprintf(warn, "warning: %v; this is what the objects say\n", err)
	}
	answer := view.FromObject(describe.Pod(pod))
	if pod.Spec.NodeName != "" {
		if err := cl.addPlacement(ctx, &answer, pod); err != nil {
			return view.Pod{}, nil, err
		}
	}
	if scheduler == nil {
		answer.Notes = append(answer.Notes, "no scheduler was asked: "+errNoDiagnostics.Error())
	}
	return answer, pod, nil
}

// addPlacement adds where the pod runs, according to the objects of its node.
func (c cluster) addPlacement(ctx context.Context, answer *view.Pod, pod *corev1.Pod) error {
	name := pod.Spec.NodeName
	a, err := c.load(ctx, name, "")
	if errors.Is(err, errNoNode) {
		answer.Placement = describe.Placement(pod, nil)
		answer.Notes = append(answer.Notes, view.MissingNode(name))
		return nil
	}
	if err != nil {
		return err
	}
	answer.Placement = describe.Placement(pod, a.view(name))
	c.addAge(ctx, answer)
	return nil
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
	topologies, err := c.topologies(ctx, node)
	if err != nil {
		return
	}
	for i := range topologies {
		if topologies[i].Name == node {
			if answer.Data.Ages == nil {
				answer.Data.Ages = map[string]float64{}
			}
			answer.Data.Ages["topology"] = time.Since(lastWrite(&topologies[i])).Round(time.Second).Seconds()
		}
	}
}

// noSuchPod returns an error that names another namespace with a pod of that name, or else a similar name.
func (c cluster) noSuchPod(ctx context.Context, namespace, name string) error {
	elsewhere, err := c.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), Limit: 1,
	})
	if err == nil && len(elsewhere.Items) > 0 {
		other := elsewhere.Items[0].Namespace
		return usagef("pod %q not found in namespace %q; it exists in namespace %q (try -n %s)", name, namespace, other,
			other)
	}
	here, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	var names []string
	if err == nil {
		for _, p := range here.Items {
			names = append(names, p.Name)
		}
	}
	return usagef("pod %q not found in namespace %q%s", name, namespace, suggest(name, names))
}
