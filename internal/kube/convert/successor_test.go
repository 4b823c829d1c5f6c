package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestTheRoomOfASuccessorIsNotOfItsGang: a Reservation for a member of a gang waited for the other members, and one
// with ResourceClaims is refused.
func TestTheRoomOfASuccessorIsNotOfItsGang(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "train-0", UID: "u",
			Labels: map[string]string{
				"app": "train", annotation.PodGroup: "g", annotation.CommunityPodGroup: "g",
				annotation.LightweightGang: "g",
			},
			Annotations: map[string]string{
				annotation.GangName: "g", annotation.ResourceStatusKey: `{"cpuset":"0-3"}`, "note": "kept",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "n0", ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}},
			Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
	}
	before := pod.DeepCopy()
	got := convert.SuccessorTemplate(pod)
	want := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Labels: map[string]string{"app": "train"},
			Annotations: map[string]string{"note": "kept"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod has changed:\n%s", diff)
	}
}
