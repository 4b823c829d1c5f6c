package convert

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
)

// Successor returns a copy of a pod without its place: without node, status, and the CPUs and devices that it has.
func Successor(pod *corev1.Pod) *corev1.Pod {
	next := pod.DeepCopy()
	next.ResourceVersion, next.DeletionTimestamp, next.Spec.NodeName, next.Status = "", nil, "", corev1.PodStatus{}
	maps.DeleteFunc(next.Annotations, func(key, _ string) bool {
		return annotation.SetByScheduler(key) || key == annotation.GPUMinorsKey
	})
	return next
}

// SuccessorTemplate returns what a Reservation for the successor of a pod reserves. A Reservation is not a member of a
// gang.
func SuccessorTemplate(pod *corev1.Pod) *corev1.PodTemplateSpec {
	next := Successor(pod)
	for _, key := range []string{annotation.PodGroup, annotation.CommunityPodGroup, annotation.LightweightGang} {
		delete(next.Labels, key)
	}
	delete(next.Annotations, annotation.GangName)
	delete(next.Annotations, annotation.SoftEvictionKey)
	next.Spec.SchedulingGroup, next.Spec.SchedulingGates, next.Spec.EphemeralContainers = nil, nil, nil
	return &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Labels: next.Labels, Annotations: next.Annotations,
	}, Spec: next.Spec}
}

// MoveTo makes a job move its pod to one node: its Reservation is on that node alone.
func MoveTo(j *migration.PodMigrationJob, pod *corev1.Pod, node string) error {
	room := SuccessorTemplate(pod)
	room.Spec.NodeName = node
	template, err := json.Marshal(map[string]any{"spec": reservation.ReservationSpec{Template: room}})
	if err != nil {
		return fmt.Errorf("encode the reservation for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	j.Spec.Mode = migration.ReservationFirst
	j.Spec.ReservationOptions = &migration.PodMigrateReservationOptions{Template: &runtime.RawExtension{Raw: template}}
	return nil
}
