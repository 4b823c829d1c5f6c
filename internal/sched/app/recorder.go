package app

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// recorder sends Events. What is about a reserve pod, which no API server has, it sends about the Reservation.
type recorder struct {
	events.EventRecorderLogger
	// reserved finds the Reservation of a reserve pod by the UID that both have.
	reserved *kube.Reservations
}

// WithLogger returns a recorder with the same replacement.
func (r *recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return &recorder{r.EventRecorderLogger.WithLogger(logger), r.reserved}
}

// Eventf names the Reservation in the note as well. An Event about a Reservation that is gone is dropped.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if owner, reserves := r.reservationOf(regarding); reserves && owner == nil {
		return
	}
	for _, about := range []*runtime.Object{&regarding, &related} {
		owner, _ := r.reservationOf(*about)
		if owner == nil {
			continue
		}
		pod, name := klog.KObj((*about).(*corev1.Pod)).String(), "Reservation "+owner.Name
		text := strings.NewReplacer("pod "+pod, name, pod, name).Replace(fmt.Sprintf(note, args...))
		note, args, *about = "%s", []any{text}, owner
	}
	r.EventRecorderLogger.Eventf(regarding, related, kind, reason, action, note, args...)
}

// reservationOf returns the Reservation of a reserve pod, nil for one that is gone.
func (r *recorder) reservationOf(o runtime.Object) (owner *corev1.ObjectReference, reserves bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || !convert.IsReservePod(pod) {
		return nil, false
	}
	if found, _ := r.reserved.Find(pod.UID); found != nil {
		owner = &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "Reservation", Name: found.Name, UID: found.UID,
		}
	}
	return owner, true
}
