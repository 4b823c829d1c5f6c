package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// Budgets finds the PodDisruptionBudgets that count a pod, as the Eviction API does. It never changes.
type Budgets struct {
	byNamespace map[string][]budget
}

type budget struct {
	gang.Budget
	selector  labels.Selector
	disrupted map[string]metav1.Time // names of pods whose eviction the budget has counted already
}

// NewBudgets reads PodDisruptionBudgets. One whose status does not describe its current spec yet allows no disruption.
func NewBudgets(all []*policyv1.PodDisruptionBudget) *Budgets {
	b := &Budgets{byNamespace: map[string][]budget{}}
	for _, o := range all {
		selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
		if err != nil {
			continue // it selects no pod
		}
		read := budget{
			Budget: gang.Budget{Name: o.Name}, selector: selector, disrupted: o.Status.DisruptedPods,
		}
		if o.Status.ObservedGeneration >= o.Generation {
			read.Allowed = int(o.Status.DisruptionsAllowed)
		}
		b.byNamespace[o.Namespace] = append(b.byNamespace[o.Namespace], read)
	}
	return b
}

// Of returns the budgets that an eviction of the pod is charged to: always the same pointers for the same budgets.
func (b *Budgets) Of(p *corev1.Pod) (counting []*gang.Budget) {
	all := b.byNamespace[p.Namespace]
	for i := range all {
		if _, counted := all[i].disrupted[p.Name]; !counted && all[i].selector.Matches(labels.Set(p.Labels)) {
			counting = append(counting, &all[i].Budget)
		}
	}
	return counting
}

// VictimOf returns what decides whether a pod is evicted before others.
func VictimOf(p *corev1.Pod) gang.Victim {
	v := gang.Victim{}
	if p.Spec.Priority != nil {
		v.Priority = *p.Spec.Priority
	}
	if p.Status.StartTime != nil {
		v.Start = p.Status.StartTime.Time
	}
	return v
}

// Evict asks the Eviction API to delete a pod. The preconditions of o should have the UID of the pod. An error of
// TooManyRequests is a PodDisruptionBudget's; NotFound and Conflict say that the pod is gone.
func Evict(ctx context.Context, client kubernetes.Interface, namespace, name string, o *metav1.DeleteOptions) error {
	return client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: o,
	})
}
