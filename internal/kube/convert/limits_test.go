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

func TestALimitThatIsResizedCountsWithTheSmallerAmount(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "down", Resources: corev1.ResourceRequirements{Limits: object.List("cpu", "1")}},
		{Name: "up", Resources: corev1.ResourceRequirements{Limits: object.List("cpu", "3")}},
		{Name: "new", Resources: corev1.ResourceRequirements{Limits: object.List("cpu", "500m")}},
	}}}
	has := func(name, limit string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Resources: &corev1.ResourceRequirements{
			Limits: object.List("cpu", limit),
		}}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{has("down", "2"), has("up", "1"), {Name: "new"}}
	containers, whole := convert.LowerCPULimits(pod)
	want := map[string]int64{"down": 1000, "up": 1000, "new": 500}
	if diff := cmp.Diff(want, containers); diff != "" || whole != 2500 {
		t.Errorf("whole pod %d, want 2500; containers (-want +got):\n%s", whole, diff)
	}
}
