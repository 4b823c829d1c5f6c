package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestCPULimitsAreThoseByWhichAKubeletSetsQuotas(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	container := func(name, limit string) corev1.Container {
		c := corev1.Container{Name: name}
		if limit != "" {
			c.Resources.Limits = object.List("cpu", limit)
		}
		return c
	}
	sidecar := func(name, limit string) corev1.Container {
		c := container(name, limit)
		c.RestartPolicy = &always
		return c
	}
	for name, test := range map[string]struct {
		spec       corev1.PodSpec
		containers map[string]int64
		whole      int64
	}{
		"all limited": {
			corev1.PodSpec{Containers: []corev1.Container{container("a", "1"), container("b", "500m")}},
			map[string]int64{"a": 1000, "b": 500},
			1500,
		},
		"one without": {
			corev1.PodSpec{Containers: []corev1.Container{container("a", "1"), container("b", "")}},
			map[string]int64{"a": 1000},
			0,
		},
		"an init container without": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{container("i", "")},
				Containers:     []corev1.Container{container("a", "1")},
			}, map[string]int64{"a": 1000}, 0,
		},
		"an init container without, after a sidecar": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar("s", "1"), container("i", "")},
				Containers:     []corev1.Container{container("a", "1")},
			}, map[string]int64{"s": 1000, "a": 1000}, 0,
		},
		"a sidecar and an init container": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar("s", "1"), container("i", "4")},
				Containers:     []corev1.Container{container("a", "2")},
			}, map[string]int64{"s": 1000, "i": 4000, "a": 2000}, 5000,
		},
		"the pod itself": {
			corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Limits: object.List("cpu", "3")},
				Containers: []corev1.Container{container("a", "1"), container("b", "")},
			}, map[string]int64{"a": 1000}, 3000,
		},
	} {
		containers, whole := convert.CPULimits(&corev1.Pod{Spec: test.spec})
		if diff := cmp.Diff(test.containers, containers); diff != "" || whole != test.whole {
			t.Errorf("%s: whole pod %d, want %d; containers (-want +got):\n%s", name, whole, test.whole, diff)
		}
	}
}
