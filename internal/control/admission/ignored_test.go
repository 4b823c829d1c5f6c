package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestKeysOfFeaturesThatAreNotHereAreWarnedOfOnceEach(t *testing.T) {
	t.Parallel()
	batch := object.List("kubernetes.io/mid-cpu", "50", "cpu", "1")
	container := corev1.Container{Resources: corev1.ResourceRequirements{Requests: batch, Limits: batch}}
	answer := admission.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{
				"quota.scheduling.koordinator.sh/name": "team-a", // the scheduler reads it: no warning
				"koordinator.sh/qosClas":               "LSR", "app": "web",
			},
			Annotations: map[string]string{
				"scheduling.k8s.io/group-name": "{}", "koordinator.sh/blkioQOS": "{}",
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{container, container}},
	}, nil)
	if !answer.Allowed() {
		t.Fatalf("refused: %v", answer.Refusals)
	}
	want := []string{
		`metadata.labels[koordinator.sh/qosClas]: has no effect: unknown key, did you mean "koordinator.sh/qosClass"?`,
		"metadata.annotations[koordinator.sh/blkioQOS]: has no effect: block I/O and network QoS: not planned",
		"metadata.annotations[scheduling.k8s.io/group-name]: has no effect: gang scheduling: planned",
	}
	if diff := cmp.Diff(want, answer.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestIsolationThatIsLeftOutIsWarnedOf has the keys of docs/adr/0011.
func TestIsolationThatIsLeftOutIsWarnedOf(t *testing.T) {
	t.Parallel()
	answer := admission.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"koordinator.sh/core-sched-group-id": "g"},
			Annotations: map[string]string{
				"koordinator.sh/memoryQOS": "{}", "koordinator.sh/cpuQOS": "{}", "node.koordinator.sh/resctrl": "{}",
				"koordinator.sh/oom-score-adj": "-500",
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
	}, nil)
	want := []string{
		"metadata.labels[koordinator.sh/core-sched-group-id]: has no effect: core scheduling: not planned",
		"metadata.annotations[koordinator.sh/cpuQOS]: has no effect: CPU QoS (group identity, cpu.idle): not planned",
		"metadata.annotations[koordinator.sh/memoryQOS]: has no effect: memory QoS: not planned",
		"metadata.annotations[koordinator.sh/oom-score-adj]: has no effect: OOM scores: not planned",
		"metadata.annotations[node.koordinator.sh/resctrl]: has no effect: last-level cache and memory bandwidth " +
			"control: not planned",
	}
	if diff := cmp.Diff(want, answer.Warnings); diff != "" || !answer.Allowed() {
		t.Errorf("refusals %v, warnings (-want +got):\n%s", answer.Refusals, diff)
	}
}

func TestKeysOfANodeThatHaveNoEffectAreWarnedOf(t *testing.T) {
	t.Parallel()
	answer := admission.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"node.koordinator.sh/cpu-bind-polic": "None", "kubernetes.io/arch": "amd64"},
		Annotations: map[string]string{
			"node.koordinator.sh/cpu-normalization-ratio": "1.2", "node.koordinator.sh/raw-allocatable": `{"cpu":"-1"}`,
		},
	}})
	want := []string{
		"metadata.annotations[node.koordinator.sh/raw-allocatable]: byte 7: cpu: must not be negative; " +
			"the annotation is ignored",
		`metadata.labels[node.koordinator.sh/cpu-bind-polic]: has no effect: unknown key, did you mean ` +
			`"node.koordinator.sh/cpu-bind-policy"?`,
		"metadata.annotations[node.koordinator.sh/cpu-normalization-ratio]: has no effect: CPU normalization and " +
			"amplification: planned",
	}
	if diff := cmp.Diff(want, answer.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestLabelsThatTheManagerWritesAreNotCalledIgnored(t *testing.T) {
	t.Parallel()
	written := convert.DeviceLabels(&devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		annotation.GPUVendorLabel: "nvidia", annotation.GPUModelLabel: "H100", annotation.GPUDriverLabel: "550.90",
	}}})
	if len(written) != 3 {
		t.Fatalf("the manager writes %v", written)
	}
	answer := admission.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: written}})
	if len(answer.Warnings) > 0 {
		t.Errorf("warnings: %q", answer.Warnings)
	}
}
