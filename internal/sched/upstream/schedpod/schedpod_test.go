package schedpod

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestPatchStatus(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("changed"))
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	for name, c := range map[string]struct {
		nominated string
		fails     []error
		requests  int
		want      error
	}{
		"nothing differs":     {"", nil, 0, nil},
		"one field":           {"n", nil, 1, nil},
		"after two conflicts": {"n", []error{conflict, conflict}, 3, nil},
		"a pod that is gone":  {"n", []error{gone}, 1, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := object.Pod("ns/p")
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			client := fake.NewClientset(pod)
			requests := 0
			client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				requests++
				if patch := string(a.(clienttesting.PatchAction).GetPatch()); a.GetSubresource() != "status" ||
					patch != `{"status":{"nominatedNodeName":"n"}}` {
					t.Errorf("patch of %q: %s", a.GetSubresource(), patch)
				}
				if requests <= len(c.fails) {
					return true, nil, c.fails[requests-1]
				}
				return false, nil, nil
			})
			want := pod.Status.DeepCopy()
			want.NominatedNodeName = c.nominated
			if err := PatchStatus(t.Context(), client, pod, want); !errors.Is(err, c.want) || requests != c.requests {
				t.Errorf("%d requests, %v", requests, err)
			}
		})
	}
}

func TestRetriable(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for err, want := range map[error]bool{
		apierrors.NewConflict(pods, "p", errors.New("changed")): true,
		apierrors.NewInternalError(errors.New("etcd")):          true,
		apierrors.NewServiceUnavailable("starts"):               true,
		apierrors.NewNotFound(pods, "p"):                        false,
		apierrors.NewForbidden(pods, "p", errors.New("no")):     false,
		errors.New("other"):                                     false,
	} {
		if got := Retriable(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

func TestHostPorts(t *testing.T) {
	t.Parallel()
	with := func(name string, ports ...int32) corev1.Container {
		c := corev1.Container{Name: name}
		for _, p := range ports {
			c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: p, ContainerPort: 80})
		}
		return c
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := with("sidecar", 3)
	sidecar.RestartPolicy = &always
	pod := object.Pod("ns/p")
	pod.Spec.InitContainers = []corev1.Container{with("ends", 2), sidecar}
	pod.Spec.Containers = []corev1.Container{with("a", 1, 0), with("b", 4)}
	sum := int32(0)
	for _, p := range HostPorts(pod) {
		sum = sum*10 + p.HostPort
	}
	if sum != 314 {
		t.Errorf("ports %d, want those of the sidecar and of the containers: 3, 1 and 4", sum)
	}
}

func TestTolerates(t *testing.T) {
	t.Parallel()
	pod := object.Pod("ns/p")
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}
	for taint, want := range map[corev1.Taint]bool{
		{Key: "mine", Effect: corev1.TaintEffectNoSchedule}:        true,
		{Key: "other", Effect: corev1.TaintEffectNoSchedule}:       false,
		{Key: "other", Effect: corev1.TaintEffectNoExecute}:        false,
		{Key: "other", Effect: corev1.TaintEffectPreferNoSchedule}: true,
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}}
		if got := Tolerates(t.Context(), pod, node); got != want {
			t.Errorf("taint %s:%s: %t", taint.Key, taint.Effect, got)
		}
	}
}

func TestNamespaceLabels(t *testing.T) {
	t.Parallel()
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := known.Add(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "a"}},
	}); err != nil {
		t.Fatal(err)
	}
	lister := corelisters.NewNamespaceLister(known)
	if got := NamespaceLabels(t.Context(), "ns", lister); got.String() != "team=a" {
		t.Errorf("labels %v", got)
	}
	if got := NamespaceLabels(t.Context(), "unknown", lister); len(got) != 0 {
		t.Errorf("labels %v of a namespace that is unknown", got)
	}
}
