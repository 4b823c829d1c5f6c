package grouping

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Grouper finds the gangs of pods.
type Grouper struct {
	Table workload.Table
	// Schedulers are the names of schedulers that start gangs. Pods of others are left alone.
	Schedulers []string
	Grouping   workload.Grouping
	Owners     *Owners
	Cluster    Cluster
}

// Cluster is what is known of a cluster.
type Cluster interface {
	// NamespaceLabels returns the labels of a namespace; false for one that is not known.
	NamespaceLabels(name string) (map[string]string, bool)
	// PodGroups returns the PodGroups of a name, of all API groups.
	PodGroups(namespace, name string) []*v1alpha1.PodGroup
	// Members returns the pods that name a gang, by namespace/name.
	Members(gang string) []*corev1.Pod
}

// admissionTime bounds what the webhook may wait for reads. A pod without an answer is labelled by the controller.
const admissionTime = 200 * time.Millisecond

// Mark returns the name of the PodGroup of a pod that is created, and the rule that it is made by; "" for a pod that is
// left alone. An error means that the answer is not known. Only namespaces that require an answer see it.
func (g *Grouper) Mark(ctx context.Context, pod *corev1.Pod) (name, rule string, err error) {
	if !g.concerns(pod) || convert.NamesGang(pod) {
		return "", "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	d, name, err := g.decide(ctx, pod)
	if err == nil || !g.isRequired(pod.Namespace) {
		return name, d.Plan.Rule, nil
	}
	return "", "", fmt.Errorf("the gang of the pod is not known: %w", err)
}

func (g *Grouper) isRequired(namespace string) bool {
	labels, _ := g.Cluster.NamespaceLabels(namespace)
	return labels[annotation.GangsLabel] == annotation.GangsRequired
}

// concerns reports whether a pod may be in a gang by a rule, whatever it says of gangs itself.
func (g *Grouper) concerns(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || !slices.Contains(g.Schedulers, cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)) {
		return false
	}
	group, version := workload.SplitAPIVersion(owner.APIVersion)
	return !g.Table.Ignores(group, version, owner.Kind)
}

// allows reports whether pods of a namespace form gangs.
func (g *Grouper) allows(namespace string) bool {
	labels, known := g.Cluster.NamespaceLabels(namespace)
	return known && g.Grouping.Allows(labels, annotation.GangLabel, annotation.GangsLabel)
}

// decide returns what the table says of a pod, and the name of its PodGroup; "" for none. Where a cache does not have
// what made the pod yet, it asks the API server.
func (g *Grouper) decide(ctx context.Context, pod *corev1.Pod) (d workload.Decision, name string, err error) {
	if !g.allows(pod.Namespace) {
		return workload.Decision{}, "", nil
	}
	link := convert.WorkloadLink("v1", "Pod", pod)
	for _, read := range []read{g.Owners.Read, g.Owners.ReadNow} {
		d, err = g.Table.Decide(link, pod.Labels, convert.WorkloadTerms(g.Schedulers),
			func(want workload.Link) (workload.Link, map[string]any, error) { return read(ctx, want) })
		if err != nil || !d.Unknown {
			break
		}
	}
	if err != nil || d.Gang == "" {
		return d, "", err
	}
	return d, g.names(&d.Owner, &d.Plan)[d.Gang], nil
}

// names returns the names of the PodGroups of a plan's gangs. None of them is that of a PodGroup that others made.
func (g *Grouper) names(owner *workload.Link, plan *workload.Plan) map[string]string {
	names := map[string]string{}
	for _, one := range plan.Gangs {
		names[one.Name] = workload.ObjectName(one.Name, owner.UID, func(name string) bool {
			return slices.ContainsFunc(g.Cluster.PodGroups(owner.Namespace, name), func(o *v1alpha1.PodGroup) bool {
				return ownerOf(o) != owner.UID
			})
		})
	}
	return names
}

// ownerOf returns the UID of the object that a PodGroup was made for by a rule; "" for another PodGroup.
func ownerOf(o *v1alpha1.PodGroup) string {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || o.Annotations[annotation.GangRule] == "" || o.GroupVersionKind().Group != v1alpha1.GroupName {
		return ""
	}
	return string(ref.UID)
}
