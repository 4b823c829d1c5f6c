package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// placePrefix is before the UID of a job in the name of the Reservation that is created for the job.
const placePrefix = "migration-"

// defaultPlace is the name of the Reservation that is created for a job.
func defaultPlace(j *v1alpha1.PodMigrationJob) string { return placePrefix + string(j.UID) }

// placeName is the name of the Reservation of a job, "" where it has none.
func placeName(j *v1alpha1.PodMigrationJob) string {
	if o := j.Spec.ReservationOptions; o != nil && o.ReservationRef != nil {
		return o.ReservationRef.Name
	}
	return ""
}

// reserve creates the Reservation of a job. One that exists already is adopted if it was created for the job.
func (c *Controller) reserve(ctx context.Context, j *v1alpha1.PodMigrationJob) (*move.Failure, error) {
	pod, err := live{c}.pod(ctx, *j.Spec.PodRef)
	if err != nil || pod == nil || pod.UID != j.Spec.PodRef.UID {
		return nil, err // the next step sees that it is gone
	}
	r, err := reservationFor(j, pod, c.avoided(pod), c.job(j).TTL)
	if err != nil {
		return unreserved(err, true), nil
	}
	if bad := unusable(r, pod); bad != nil {
		return unreserved(errors.New(bad.Text), true), nil
	}
	err = c.Client.Create(ctx, r)
	if apierrors.IsAlreadyExists(err) {
		r, err = (live{c}).place(ctx, placeName(j))
		if err == nil && r != nil && r.Annotations[annotation.MigrationJobKey] != string(j.UID) {
			return unreserved(fmt.Errorf("reservation %s was not created for the job", r.Name), true), nil
		}
		return nil, err
	}
	final := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	return unreserved(err, final), nil
}

// unreserved is the failure to create a Reservation; nil for no error.
func unreserved(err error, final bool) *move.Failure {
	if err == nil {
		return nil
	}
	return &move.Failure{Action: move.Reserve, Text: err.Error(), Final: final}
}

// reservationFor is the Reservation for the successor of a pod. What the job's template does not set is made from the
// pod. No node to avoid is taken.
func reservationFor(j *v1alpha1.PodMigrationJob, pod *corev1.Pod, avoid []string, ttl time.Duration) (
	*reservation.Reservation, error,
) {
	r := &reservation.Reservation{}
	if o := j.Spec.ReservationOptions; o != nil && o.Template != nil && len(o.Template.Raw) > 0 {
		if err := json.Unmarshal(o.Template.Raw, r); err != nil {
			return nil, fmt.Errorf("spec.reservationOptions.template: %w", err)
		}
	}
	r.ObjectMeta = metav1.ObjectMeta{Name: placeName(j), Labels: r.Labels, Annotations: r.Annotations}
	metav1.SetMetaDataAnnotation(&r.ObjectMeta, annotation.MigrationJobKey, string(j.UID))
	r.Status = reservation.ReservationStatus{}
	if r.Spec.Template == nil {
		r.Spec.Template = convert.SuccessorTemplate(pod)
	}
	if len(r.Spec.Owners) == 0 {
		r.Spec.Owners = []reservation.ReservationOwner{ownerOf(pod)}
	}
	if r.Spec.TTL == nil && r.Spec.Expires == nil {
		r.Spec.TTL = &metav1.Duration{Duration: ttl}
	}
	r.Spec.AllocateOnce = new(true)
	convert.RequireNodes(&r.Spec.Template.Spec, corev1.NodeSelectorOpNotIn, avoid...)
	return r, nil
}

// ownerOf matches the successor of a pod: another pod of its controller, the pod itself while it has no node, else a
// pod of its name.
func ownerOf(pod *corev1.Pod) reservation.ReservationOwner {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && pod.Spec.NodeName != "" {
		return reservation.ReservationOwner{Controller: &reservation.ReservationController{
			APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID, Namespace: pod.Namespace,
			Controller: new(true),
		}}
	}
	object := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName == "" {
		object.UID = pod.UID
	}
	return reservation.ReservationOwner{Object: object}
}
