package convert_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestEvictedByAgent(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Unix(1000, 0))
	evicted := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: "w", Controller: new(true)}}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, LastTransitionTime: at},
			{Type: corev1.DisruptionTarget, Reason: "BestEffortEvicted", LastTransitionTime: at},
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"evicted": {func(*corev1.Pod) {}, "w"},
		"evicted by another program": {func(p *corev1.Pod) {
			p.Status.Conditions[1].Reason = "EvictionByEvictionAPI"
		}, ""},
		"another condition":              {func(p *corev1.Pod) { p.Status.Conditions[1].Type = corev1.PodReady }, ""},
		"without a workload":             {func(p *corev1.Pod) { p.OwnerReferences = nil }, ""},
		"an owner that controls nothing": {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, ""},
		"without a node":                 {func(p *corev1.Pod) { p.Spec.NodeName = "" }, ""},
	} {
		pod := object.Pod("a", object.On("n"), evicted)
		c.change(pod)
		workload, when, ok := convert.EvictedByAgent(pod)
		if workload != c.want || ok != (c.want != "") || ok && !when.Equal(at.Time) {
			t.Errorf("%s: got %q, %v, %v; want %q", name, workload, when, ok, c.want)
		}
	}
}
