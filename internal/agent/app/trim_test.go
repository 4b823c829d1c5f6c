package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestATrimmedPodIsTheSameToTheAgent: what is dropped changes nothing that is decided.
func TestATrimmedPodIsTheSameToTheAgent(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	c := corev1.Container{
		Name: "main", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Args: []string{"x"},
		Resources:    object.Equal("cpu", "4", "memory", "1Gi"),
		VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
	}
	sidecar := c
	sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
	pod := object.Pod("ns/p", object.UID("u"), object.Class("LSR"), object.On("n"), object.Priority(9500),
		object.CPUs("0-3"), object.Annotation(corev1.LastAppliedConfigAnnotation, "{}"),
		object.Phase(corev1.PodRunning))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	pod.Spec.Containers, pod.Spec.InitContainers = []corev1.Container{c}, []corev1.Container{sidecar}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Overhead, pod.Status.QOSClass = object.List("cpu", "100m"), corev1.PodQOSGuaranteed
	trim := trimmer(nil)
	got, err := trim(pod.DeepCopy())
	testkit.Check(t, err)
	slim := got.(*convert.Pod)
	if slim.ManagedFields != nil || slim.Spec.Containers[0].Env != nil || slim.Spec.Volumes != nil ||
		slim.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("the pod still has fields that are not read: %v", slim)
	}
	if diff := cmp.Diff(desired.FromAPI(convert.ReadPod(pod)), desired.FromAPI(slim)); diff != "" {
		t.Errorf("the agent sees another pod (-whole +trimmed):\n%s", diff)
	}
	if diff := cmp.Diff(convert.ReadPod(pod).Problems, slim.Problems); diff != "" {
		t.Errorf("the agent sees other problems (-whole +trimmed):\n%s", diff)
	}
	if got, err := trim(&corev1.Node{}); err != nil || got == nil {
		t.Errorf("another object becomes %v, %v", got, err)
	}
}

// TestAPodOfAnotherSchedulerIsPlainToTheAgent: who wrote its labels and annotations is not known.
func TestAPodOfAnotherSchedulerIsPlainToTheAgent(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u",
			Labels: map[string]string{"koordinator.sh/qosClass": "LSE", "app": "a"},
			Annotations: map[string]string{
				"scheduling.koordinator.sh/resource-status":   `{"cpuset":"0-3"}`,
				"scheduling.koordinator.sh/device-allocated":  `{"gpu":[{"minor":0,"id":"GPU-0"}]}`,
				"required-plugins.noderesource.dev":           `["tenon-agent"]`,
				"tenon.sh/predicted-placement":                `{"cpuset":"0-3"}`,
				"volcano.sh/numa-topology-policy":             "restricted",
				"container.apparmor.security.beta.kubernetes": "x",
			},
		},
		Spec: corev1.PodSpec{NodeName: "n", SchedulerName: "volcano", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{
				Requests: object.List("cpu", "4"),
			},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	trusted, err := trimmer(convert.NewSchedulers("tenon-scheduler", "volcano"))(pod.DeepCopy())
	testkit.Check(t, err)
	if e := desired.FromAPI(trusted.(*convert.Pod)); !e.Uses || e.Entry.CPUList != "0-3" || len(e.Entry.Devices) != 1 {
		t.Fatalf("of a trusted scheduler the agent sees %+v, want the allocation", e)
	}
	foreign, err := trimmer(convert.NewSchedulers("tenon-scheduler"))(pod.DeepCopy())
	testkit.Check(t, err)
	plain := pod.DeepCopy()
	plain.Labels = map[string]string{"app": "a"}
	plain.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes": "x"}
	want, _ := trimmer(nil)(plain)
	if diff := cmp.Diff(desired.FromAPI(want.(*convert.Pod)), desired.FromAPI(foreign.(*convert.Pod))); diff != "" {
		t.Errorf("the agent sees another pod than a plain one (-plain +foreign):\n%s", diff)
	}
	if e := desired.FromAPI(foreign.(*convert.Pod)); e.Uses {
		t.Errorf("the pod uses Tenon: %+v", e)
	}
}
