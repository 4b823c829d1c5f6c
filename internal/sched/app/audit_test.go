package app

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
)

// A difference is told when it stands twice, once for as long as it stands, and again when it comes back.
func TestADifferenceIsToldWhenItStaysAndOnce(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", Labels: map[string]string{annotation.QoSClass: "LSR"}, Annotations: map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-1"}`}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := known.Add(pod); err != nil {
		t.Fatal(err)
	}
	a := &auditor{store: kube.NewStore(), pods: corelisters.NewPodLister(known)}
	for i, step := range []struct {
		put  bool // the store hears of the pod, or forgets it
		want int
	}{{false, 0}, {false, 1}, {false, 0}, {true, 0}, {false, 0}, {false, 1}} {
		if step.put {
			a.store.PutPod(pod)
		} else {
			a.store.RemovePod(pod)
		}
		if got := a.compare(); len(got) != step.want {
			t.Errorf("step %d: told %v, want %d", i, got, step.want)
		}
	}
}
