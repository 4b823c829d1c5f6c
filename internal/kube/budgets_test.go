package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/kube"
)

// TestBudgetsCountPodsAsTheEvictionAPIDoes: by namespace and labels, unless the pod's eviction is counted already.
func TestBudgetsCountPodsAsTheEvictionAPIDoes(t *testing.T) {
	t.Parallel()
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	status := policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 2}
	for name, c := range map[string]struct {
		budget policyv1.PodDisruptionBudget
		pod    map[string]string // labels
		want   []int             // Allowed of each budget that counts the pod
	}{
		"labels that the selector selects": {
			policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: status},
			map[string]string{"app": "a"},
			[]int{2},
		},
		"other labels": {
			policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: status},
			map[string]string{"app": "b"},
			nil,
		},
		"no labels": {
			policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: status},
			nil, nil,
		},
		"no selector": {
			policyv1.PodDisruptionBudget{Status: status}, map[string]string{"app": "a"}, nil,
		},
		"a selector of everything, a pod without labels": {
			policyv1.PodDisruptionBudget{
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}, Status: status,
			},
			nil,
			[]int{2},
		},
		"another namespace": {
			policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "other"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: status,
			},
			map[string]string{"app": "a"},
			nil,
		},
		"an eviction that is counted already": {
			policyv1.PodDisruptionBudget{
				Spec: policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: policyv1.PodDisruptionBudgetStatus{
					DisruptionsAllowed: 2, DisruptedPods: map[string]metav1.Time{"p": {}},
				},
			},
			map[string]string{"app": "a"},
			nil,
		},
		"a status of an older spec": {
			policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Generation: 1},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: app}, Status: status,
			},
			map[string]string{"app": "a"},
			[]int{0},
		},
	} {
		if c.budget.Namespace == "" {
			c.budget.Namespace = "ns"
		}
		budgets := kube.NewBudgets([]*policyv1.PodDisruptionBudget{&c.budget, c.budget.DeepCopy()})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: c.pod}}
		got, again := budgets.Of(pod), budgets.Of(pod)
		if len(got) != 2*len(c.want) {
			t.Errorf("%s: %d budgets, want two of %v", name, len(got), c.want)
			continue
		}
		for i := range got {
			if got[i].Allowed != c.want[i/2] || got[i] != again[i] || got[i] == got[(i+1)%2] {
				t.Errorf("%s: %+v, then %+v", name, got[i], again[i])
			}
		}
	}
}
