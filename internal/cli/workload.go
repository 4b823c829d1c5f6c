package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// explainedKinds are the kinds that explain knows; those after reservation are workloads.
var explainedKinds = []string{
	"pod", "quota", "gang", "reservation", "deployment", "replicaset", "statefulset", "daemonset", "job",
}

type workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Desired pods are wanted at once, len(Pods) exist.
	Desired int         `json:"desired"`
	Pods    []explained `json:"pods"`
	// Ended says how a Job has ended, which wants no more pods; "" for one that has not, and for other workloads.
	Ended string `json:"ended,omitempty"`
	// Refusal is the last reason for which a pod was not even made, such as a webhook's; "" when none is missing.
	Refusal string `json:"refusal,omitempty"`
	// Gang is the gang whose pods these are; nil of a workload.
	Gang *view.Gang `json:"gang,omitempty"`
}

// workload shows the pods of a workload: one of each root cause in full, the others by name.
func (e *explanation) workload(ctx context.Context, kind, name string) error {
	read := e.explainWorkload
	if kind == "gang" {
		read = e.explainGang
	}
	answer, err := read(ctx, kind, name)
	if err != nil {
		return err
	}
	blocked := answer.Refusal != "" || slices.ContainsFunc(answer.Pods,
		func(p explained) bool { return p.RootCause != nil })
	return e.print(answer, blocked, func() string { return e.render.workload(answer) },
		namesOf("pod", answer.Pods, func(p *explained) string { return path.Base(p.Pod.Pod) })...)
}

func (e *explanation) explainWorkload(ctx context.Context, kind, name string) (workload, error) {
	out := workload{Kind: kind, Namespace: e.namespace, Name: name, Pods: []explained{}}
	uid, selector, err := e.readWorkload(ctx, &out)
	if apierrors.IsNotFound(err) {
		return out, usagef("%s %q not found in namespace %q", kind, name, e.namespace)
	}
	if err != nil {
		return out, fmt.Errorf("read %s %s/%s: %w", kind, e.namespace, name, err)
	}
	options := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)}
	owners := []types.UID{uid}
	if kind == "deployment" {
		sets, err := e.core.AppsV1().ReplicaSets(e.namespace).List(ctx, options)
		if err != nil {
			return out, fmt.Errorf("list replica sets: %w", err)
		}
		for i := range sets.Items {
			if metav1.IsControlledBy(&sets.Items[i], &metav1.ObjectMeta{UID: uid}) {
				owners = append(owners, sets.Items[i].UID)
			}
		}
	}
	pods, err := e.core.CoreV1().Pods(e.namespace).List(ctx, options)
	if err != nil {
		return out, fmt.Errorf("list pods: %w", err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		return owner == nil || !slices.Contains(owners, owner.UID)
	})
	if out.Pods, err = e.explainPods(ctx, pods.Items); err == nil && len(out.Pods) < out.Desired {
		out.Refusal, err = e.lastEvent(ctx, "FailedCreate", func(o corev1.ObjectReference) bool {
			return slices.Contains(owners, o.UID)
		})
	}
	return out, err
}

// explainPods asks the scheduler about the first of the pods; the others are explained by their objects.
func (e *explanation) explainPods(ctx context.Context, pods []corev1.Pod) (out []explained, err error) {
	out = []explained{}
	for i := range pods {
		said := view.FromObject(describe.Pod(&pods[i]))
		if i < askedAtMost {
			if said, err = e.explainPod(ctx, &pods[i]); err != nil {
				return nil, err
			}
		}
		out = append(out, explained{Pod: said, Phase: pods[i].Status.Phase})
	}
	slices.SortFunc(out, func(a, b explained) int { return strings.Compare(a.Pod.Pod, b.Pod.Pod) })
	return out, nil
}

// explainGang explains a gang by what the verb gang shows of it, and its members as the pods of a workload.
func (e *explanation) explainGang(ctx context.Context, kind, name string) (out workload, err error) {
	gangs, err := e.scheduler.gangs(ctx, e.flags, "", e.warn)
	if err != nil {
		return out, err
	}
	g, err := gangOf(gangs, qualified(e.namespace, name))
	if err != nil {
		return out, err
	}
	out = workload{Kind: kind, Desired: g.Min, Gang: g}
	out.Namespace, out.Name, _ = strings.Cut(g.Name, "/")
	pods, err := e.core.CoreV1().Pods(out.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("list pods: %w", err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return !slices.Contains(g.Members, p.Namespace+"/"+p.Name)
	})
	out.Pods, err = e.explainPods(ctx, pods.Items)
	return out, err
}

// readWorkload completes a workload by how many pods it wants, and how it has ended.
func (e *explanation) readWorkload(ctx context.Context, out *workload) (types.UID, *metav1.LabelSelector, error) {
	apps, get, name := e.core.AppsV1(), metav1.GetOptions{}, out.Name
	switch out.Kind {
	case "deployment":
		w, err := apps.Deployments(e.namespace).Get(ctx, name, get)
		out.Desired = int(ptr.Deref(w.Spec.Replicas, 1))
		return w.UID, w.Spec.Selector, err
	case "replicaset":
		w, err := apps.ReplicaSets(e.namespace).Get(ctx, name, get)
		out.Desired = int(ptr.Deref(w.Spec.Replicas, 1))
		return w.UID, w.Spec.Selector, err
	case "statefulset":
		w, err := apps.StatefulSets(e.namespace).Get(ctx, name, get)
		out.Desired = int(ptr.Deref(w.Spec.Replicas, 1))
		return w.UID, w.Spec.Selector, err
	case "daemonset":
		w, err := apps.DaemonSets(e.namespace).Get(ctx, name, get)
		out.Desired = int(w.Status.DesiredNumberScheduled)
		return w.UID, w.Spec.Selector, err
	}
	w, err := e.core.BatchV1().Jobs(e.namespace).Get(ctx, name, get)
	wanted := ptr.Deref(w.Spec.Parallelism, 1)
	if w.Spec.Completions != nil {
		wanted = min(wanted, *w.Spec.Completions-w.Status.Succeeded)
	}
	for _, c := range w.Status.Conditions {
		ends := c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed
		if ends && c.Status == corev1.ConditionTrue {
			wanted, out.Ended = 0, string(c.Type)
			if c.Type == batchv1.JobFailed {
				out.Ended += ": " + c.Reason + ": " + c.Message
			}
		}
	}
	out.Desired = int(wanted)
	return w.UID, w.Spec.Selector, err
}

// lastEvent returns the text of the newest Event in the namespace with a reason about one of some objects; "" without
// one.
func (e *explanation) lastEvent(ctx context.Context, reason string, isAbout func(corev1.ObjectReference) bool,
) (string, error) {
	found, err := e.core.CoreV1().Events(e.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", reason).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list events: %w", err)
	}
	about := slices.DeleteFunc(found.Items, func(e corev1.Event) bool {
		return e.Reason != reason || !isAbout(e.InvolvedObject)
	})
	if len(about) == 0 {
		return "", nil
	}
	newest := slices.MaxFunc(about, func(a, b corev1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), a.EventTime.Compare(b.EventTime.Time))
	})
	return newest.Message, nil
}

func (r *renderer) workload(w workload) string {
	if w.Gang != nil {
		r.add(plain, strings.TrimSuffix(drawGang(w.Gang, r.paint, r.width), "\n"))
	} else if w.Ended != "" {
		r.add(plain, fmt.Sprintf("%s %s/%s   %s", w.Kind, w.Namespace, w.Name, w.Ended))
	} else {
		r.add(plain, fmt.Sprintf("%s %s/%s   %d of %s", w.Kind, w.Namespace, w.Name, len(w.Pods),
			view.Count(w.Desired, "pod")))
	}
	if w.Refusal != "" {
		r.line(r.cross()+"not made", w.Refusal)
	}
	text := r.take()
	first, others := map[string]explained{}, map[string][]string{}
	var causes []string
	for _, p := range w.Pods {
		cause := p.State
		if p.RootCause != nil {
			cause = p.RootCause.Code.String()
		}
		name := p.Pod.Pod
		if p.Placement != nil {
			name += " on " + p.Placement.Node
		}
		if _, known := first[cause]; known {
			others[cause] = append(others[cause], name)
			continue
		}
		first[cause], causes = p, append(causes, cause)
	}
	for _, cause := range causes {
		text += "\n" + r.pod(first[cause], first[cause].Phase)
		r.line("  also", strings.Join(others[cause], ", "))
		text += r.take()
	}
	return text
}
