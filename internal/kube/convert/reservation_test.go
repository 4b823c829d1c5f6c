package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestAReservationHasDevicesUnderTheNamesThatPodsHave: no webhook rewrites a template, so its reader does.
func TestAReservationHasDevicesUnderTheNamesThatPodsHave(t *testing.T) {
	t.Parallel()
	half := corev1.ResourceList{"kubernetes.io/gpu": resource.MustParse("50"), "cpu": resource.MustParse("2")}
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{
		annotation.ReservationRestrictedOptionsKey: `{"resources":["kubernetes.io/gpu","cpu"]}`,
	}}}
	r.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Limits: half},
	}}}}
	before := r.DeepCopy()
	s := convert.Reservation(r, "n")
	want := amount.List{
		"cpu": 2000, "koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50,
		"koordinator.sh/gpu.shared": 1,
	}
	if diff := cmp.Diff(want, s.Allocatable); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
	to := []string{"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "cpu"}
	if diff := cmp.Diff(to, s.RestrictedTo); diff != "" {
		t.Errorf("restricted to (-want +got):\n%s", diff)
	}
	pod := convert.PendingReservePod(r, "tenon-scheduler", false)
	if diff := cmp.Diff(want, convert.PodAmounts(pod)); diff != "" {
		t.Errorf("its reserve pod requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r); diff != "" {
		t.Errorf("the Reservation has changed:\n%s", diff)
	}
}

// TestAReservationForOnePodAnnouncesItsOwnersWhereItHasRoom: one that waits, or has no node, has given nothing yet.
func TestAReservationForOnePodAnnouncesItsOwnersWhereItHasRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		once  bool
		node  string
		phase v1alpha1.ReservationPhase
		want  []string
	}{
		"on a node":      {once: true, node: "n", phase: v1alpha1.ReservationAvailable, want: []string{"a", "b"}},
		"for many pods":  {node: "n", phase: v1alpha1.ReservationAvailable},
		"without a node": {once: true, phase: v1alpha1.ReservationAvailable},
		"that waits":     {once: true, node: "n", phase: v1alpha1.ReservationWaiting},
	} {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		r.Spec.AllocateOnce, r.Spec.Template = &c.once, &corev1.PodTemplateSpec{}
		r.Status.Phase = c.phase
		r.Status.CurrentOwners = []corev1.ObjectReference{{UID: "a"}, {UID: "b"}}
		if diff := cmp.Diff(c.want, convert.Reservation(r, c.node).Announced); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAPendingReservePodHasTheConditionOfItsReservation: what refused it last, as for a pod.
func TestAPendingReservePodHasTheConditionOfItsReservation(t *testing.T) {
	t.Parallel()
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	r.Spec.Template = &corev1.PodTemplateSpec{}
	r.Status.Conditions = []v1alpha1.ReservationCondition{
		{Type: v1alpha1.ReservationReady, Status: metav1.ConditionTrue, Reason: "Available"},
		{Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: "Unschedulable", Message: "m"},
	}
	want := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "m"},
	}
	got := convert.PendingReservePod(r, "tenon-scheduler", false).Status.Conditions
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAPendingReservePodThatNamesANodeMayGoThereAlone: the scheduler decides it, as it does a pod with node affinity.
func TestAPendingReservePodThatNamesANodeMayGoThereAlone(t *testing.T) {
	t.Parallel()
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	r.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "n"}}
	pod := convert.PendingReservePod(r, "tenon-scheduler", false)
	want := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}},
			}}},
		},
	}}
	if diff := cmp.Diff(want, pod.Spec.Affinity); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("it is %s on node %q, want Pending without a node", pod.Status.Phase, pod.Spec.NodeName)
	}
}
