package convert

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
)

// MigrationJob is a PodMigrationJob without what the arguments of the descheduler decide: Direct, Named and TTL are not
// set. What only the pod says of a job that has not started is empty. A job that another descheduler has started, which
// records nothing of its pod, waits: it is started again.
func MigrationJob(j *v1alpha1.PodMigrationJob) *move.Job {
	start := migrationStart(j)
	m := &move.Job{
		UID: string(j.UID), Name: j.Name, Workload: start.Workload, Gang: start.Gang, Source: start.Node,
		Created: j.CreationTimestamp.Time, Started: start.Time.Time, Paused: j.Spec.Paused,
		Deleting: j.DeletionTimestamp != nil, Status: moveStatus(&j.Status),
	}
	stop, _ := annotation.ParseBool(j.Annotations[annotation.AbortMigration])
	m.Stop = stop || m.Deleting
	passed, _ := annotation.ParseBool(j.Annotations[annotation.PassedArbitration])
	if r := j.Spec.PodRef; r != nil {
		m.Namespace, m.PodName, m.PodUID = r.Namespace, r.Name, string(r.UID)
	}
	m.Passed = passed && !start.Time.IsZero() && m.PodUID != ""
	return m
}

func migrationStart(j *v1alpha1.PodMigrationJob) annotation.MigrationStart {
	start, _, _ := parse(j.Annotations, annotation.MigrationStartKey, annotation.ParseMigrationStart)
	return start
}

func moveStatus(s *v1alpha1.PodMigrationJobStatus) move.Status {
	out := move.Status{
		Phase: move.Phase(s.Phase), Stage: s.Status, Reason: s.Reason, Message: s.Message, Node: s.NodeName,
	}
	if s.Phase == v1alpha1.PodMigrationJobSucceed {
		out.Phase = move.Succeeded
	}
	if r := s.PodRef; r != nil {
		out.Pod = move.Reference{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
	}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, move.Condition{
			Type: c.Type, True: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: c.Message,
			Probed: c.LastProbeTime.Time, Changed: c.LastTransitionTime.Time,
		})
	}
	return out
}

// SetMigrationStatus writes what a job has reached into its status.
func SetMigrationStatus(s *v1alpha1.PodMigrationJobStatus, reached *move.Status) {
	s.Phase, s.Status = v1alpha1.PodMigrationJobPhase(reached.Phase), reached.Stage
	s.Reason, s.Message, s.NodeName, s.PodRef = reached.Reason, reached.Message, reached.Node, nil
	if r := reached.Pod; r != (move.Reference{}) {
		s.PodRef = &corev1.ObjectReference{Kind: "Pod", Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID)}
	}
	s.Conditions = nil
	for _, c := range reached.Conditions {
		status := metav1.ConditionFalse
		if c.True {
			status = metav1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, v1alpha1.PodMigrationJobCondition{
			Type: c.Type, Status: status, Reason: c.Reason, Message: c.Message,
			LastProbeTime: metav1.NewTime(c.Probed), LastTransitionTime: metav1.NewTime(c.Changed),
		})
	}
}

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
// gang, and has no ResourceClaims: Kubernetes allocates these to pods alone, and the successor has them.
func SuccessorTemplate(pod *corev1.Pod) *corev1.PodTemplateSpec {
	next := Successor(pod)
	for _, key := range []string{annotation.PodGroup, annotation.CommunityPodGroup, annotation.LightweightGang} {
		delete(next.Labels, key)
	}
	delete(next.Annotations, annotation.GangName)
	delete(next.Annotations, annotation.SoftEvictionKey)
	next.Spec.SchedulingGroup, next.Spec.SchedulingGates, next.Spec.EphemeralContainers = nil, nil, nil
	next.Spec.ResourceClaims = nil
	for _, containers := range [][]corev1.Container{next.Spec.InitContainers, next.Spec.Containers} {
		for i := range containers {
			containers[i].Resources.Claims = nil
		}
	}
	return &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Labels: next.Labels, Annotations: next.Annotations,
	}, Spec: next.Spec}
}

// MoveTo makes a job move its pod to one node: its Reservation is on that node alone.
func MoveTo(j *v1alpha1.PodMigrationJob, pod *corev1.Pod, node string) error {
	room := SuccessorTemplate(pod)
	room.Spec.NodeName = node
	template, err := json.Marshal(map[string]any{"spec": reservation.ReservationSpec{Template: room}})
	if err != nil {
		return fmt.Errorf("encode the reservation for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	j.Spec.Mode = v1alpha1.ReservationFirst
	j.Spec.ReservationOptions = &v1alpha1.PodMigrateReservationOptions{Template: &runtime.RawExtension{Raw: template}}
	return nil
}
