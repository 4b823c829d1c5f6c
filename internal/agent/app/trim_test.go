package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestATrimmedPodIsTheSameToTheAgent: what is dropped changes nothing that is decided.
func TestATrimmedPodIsTheSameToTheAgent(t *testing.T) {
	t.Parallel()
	amounts := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	always := corev1.ContainerRestartPolicyAlways
	c := corev1.Container{
		Name: "main", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Args: []string{"x"},
		Resources:    corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
		VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
	}
	sidecar := c
	sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
	priority := int32(9500)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
			Annotations: map[string]string{
				"scheduling.koordinator.sh/resource-status": `{"cpuset":"0-3"}`,
				corev1.LastAppliedConfigAnnotation:          "{}",
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", Priority: &priority, Containers: []corev1.Container{c},
			InitContainers: []corev1.Container{sidecar},
			Volumes:        []corev1.Volume{{Name: "v"}},
			Tolerations:    []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Overhead:       corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSGuaranteed},
	}
	got, err := trim(pod.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
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
