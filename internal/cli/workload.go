package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// workloadKinds are the kinds whose pods explain follows.
var workloadKinds = []string{"deployment", "replicaset", "statefulset", "daemonset", "job"}

// workloadRef names a workload.
type workloadRef struct{ kind, namespace, name string }

// workload explains the pods of a workload.
type workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Desired pods are wanted at once, len(Pods) exist.
	Desired int        `json:"desired"`
	Pods    []view.Pod `json:"pods"`
	// Refusal is the last reason for which a pod was not even made, such as a webhook's; "" when none is missing.
	Refusal string `json:"refusal,omitempty"`
}

// workload shows the pods of a workload: one of each root cause in full, the others by name.
func (o *explainOptions) workload(
	ctx context.Context, cl cluster, scheduler *diagnostics, out, warn io.Writer, r renderer, ref workloadRef,
) error {
	answer, err := cl.explainWorkload(ctx, scheduler, warn, ref)
	if err != nil {
		return err
	}
	err = printAnswer(out, o.list.format, answer, func(w io.Writer) error {
		_, err := io.WriteString(w, r.workload(answer))
		return err
	})
	blocked := answer.Refusal != "" || slices.ContainsFunc(answer.Pods,
		func(p view.Pod) bool { return p.RootCause != nil })
	if err == nil && o.exitCode && blocked {
		return errNegative
	}
	return err
}

func (c cluster) explainWorkload(ctx context.Context, scheduler *diagnostics, warn io.Writer,
	ref workloadRef,
) (workload, error) {
	out := workload{Kind: ref.kind, Namespace: ref.namespace, Name: ref.name, Pods: []view.Pod{}}
	uid, selector, desired, err := c.readWorkload(ctx, ref)
	if apierrors.IsNotFound(err) {
		return out, usagef("%s %q not found in namespace %q", ref.kind, ref.name, ref.namespace)
	}
	if err != nil {
		return out, fmt.Errorf("read %s %s/%s: %w", ref.kind, ref.namespace, ref.name, err)
	}
	out.Desired = desired
	options := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)}
	owners := []types.UID{uid}
	if ref.kind == "deployment" {
		sets, err := c.core.AppsV1().ReplicaSets(ref.namespace).List(ctx, options)
		if err != nil {
			return out, fmt.Errorf("list replica sets: %w", err)
		}
		for i := range sets.Items {
			if metav1.IsControlledBy(&sets.Items[i], &metav1.ObjectMeta{UID: uid}) {
				owners = append(owners, sets.Items[i].UID)
			}
		}
	}
	pods, err := c.core.CoreV1().Pods(ref.namespace).List(ctx, options)
	if err != nil {
		return out, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !slices.Contains(owners, owner.UID) {
			continue
		}
		said := view.FromObject(describe.Pod(pod))
		if len(out.Pods) < askedAtMost {
			if said, _, err = explainPod(ctx, c, scheduler, warn, pod.Namespace, pod.Name); err != nil {
				return out, err
			}
		}
		out.Pods = append(out.Pods, said)
	}
	slices.SortFunc(out.Pods, func(a, b view.Pod) int { return strings.Compare(a.Pod, b.Pod) })
	if len(out.Pods) < desired {
		out.Refusal, err = c.refusal(ctx, ref.namespace, owners)
	}
	return out, err
}

// readWorkload returns what a workload's pods are known by, and how many it wants at once.
func (c cluster) readWorkload(ctx context.Context, ref workloadRef) (uid types.UID, selector *metav1.LabelSelector,
	desired int, err error,
) {
	count := func(n *int32) int {
		if n == nil {
			return 1
		}
		return int(*n)
	}
	apps, get := c.core.AppsV1(), metav1.GetOptions{}
	switch ref.kind {
	case "deployment":
		w, err := apps.Deployments(ref.namespace).Get(ctx, ref.name, get)
		return w.UID, w.Spec.Selector, count(w.Spec.Replicas), err
	case "replicaset":
		w, err := apps.ReplicaSets(ref.namespace).Get(ctx, ref.name, get)
		return w.UID, w.Spec.Selector, count(w.Spec.Replicas), err
	case "statefulset":
		w, err := apps.StatefulSets(ref.namespace).Get(ctx, ref.name, get)
		return w.UID, w.Spec.Selector, count(w.Spec.Replicas), err
	case "daemonset":
		w, err := apps.DaemonSets(ref.namespace).Get(ctx, ref.name, get)
		return w.UID, w.Spec.Selector, int(w.Status.DesiredNumberScheduled), err
	}
	w, err := c.core.BatchV1().Jobs(ref.namespace).Get(ctx, ref.name, get)
	desired = count(w.Spec.Parallelism)
	if w.Spec.Completions != nil {
		desired = min(desired, int(*w.Spec.Completions-w.Status.Succeeded))
	}
	return w.UID, w.Spec.Selector, desired, err
}

// refusal returns what the newest Event of one of the owners says about a pod that could not be made.
func (c cluster) refusal(ctx context.Context, namespace string, owners []types.UID) (string, error) {
	const reason = "FailedCreate"
	found, err := c.core.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", reason).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list events: %w", err)
	}
	about := slices.DeleteFunc(found.Items, func(e corev1.Event) bool {
		return e.Reason != reason || !slices.Contains(owners, e.InvolvedObject.UID)
	})
	if len(about) == 0 {
		return "", nil
	}
	newest := slices.MaxFunc(about, func(a, b corev1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), a.EventTime.Compare(b.EventTime.Time))
	})
	return newest.Message, nil
}

// workload draws the pods of a workload.
func (r *renderer) workload(w workload) string {
	var b strings.Builder
	r.lines = []string{fmt.Sprintf("%s %s/%s   %d of %s", w.Kind, w.Namespace, w.Name, len(w.Pods),
		view.Count(w.Desired, "pod"))}
	if w.Refusal != "" {
		r.line(r.symbol("✗", "x")+" not made", "%s", w.Refusal)
	}
	b.WriteString(strings.Join(r.lines, "\n") + "\n")
	alike := map[string][]string{}
	var causes []string
	first := map[string]view.Pod{}
	for _, p := range w.Pods {
		cause := p.State
		if p.RootCause != nil {
			cause = p.RootCause.Code.String()
		}
		if _, known := first[cause]; !known {
			first[cause] = p
			causes = append(causes, cause)
			continue
		}
		name := p.Pod
		if p.Placement != nil {
			name += " on " + p.Placement.Node
		}
		alike[cause] = append(alike[cause], name)
	}
	for _, cause := range causes {
		b.WriteString("\n" + r.pod(explained{Pod: first[cause]}, ""))
		if others := alike[cause]; len(others) > 0 {
			r.lines = nil
			r.line("  also", "%s", strings.Join(others, ", "))
			b.WriteString(strings.Join(r.lines, "\n") + "\n")
		}
	}
	return b.String()
}
