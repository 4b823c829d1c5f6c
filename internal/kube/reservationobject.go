package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
)

// NewReservationInformer returns an informer of Reservations; what cannot be read of one is in Unread. A cluster
// without the resource looks like one without objects until it is installed.
func NewReservationInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{v1alpha1.Resource()}, "Reservation",
		(*publishedReservation).read)
}

// ReadReservation reads the JSON of a Reservation. What cannot be read of it is in Unread.
func ReadReservation(text []byte) (*v1alpha1.Reservation, error) {
	var p publishedReservation
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	return p.read(), nil
}

// publishedReservation is an object whose spec is not read yet, so that one odd object cannot hide the others: the API
// server checks nothing of its template.
type publishedReservation struct {
	metav1.TypeMeta
	Metadata     metav1.ObjectMeta
	Spec, Status json.RawMessage
}

func (p *publishedReservation) read() *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata}
	r.ManagedFields = nil
	var faults unread
	switch text := string(p.Spec); {
	case annotation.HasSlowQuantity(text):
		faults.add("spec", "has a quantity that is out of range")
	case len(p.Spec) == 0:
		faults.add("spec", "must be set")
	default:
		if _, err := annotation.Decode(text, &r.Spec); err != nil {
			r.Spec = v1alpha1.ReservationSpec{}
			faults.add("spec", err.Error())
		}
	}
	_ = json.Unmarshal(p.Status, &r.Status) // what does not fit the type is left out
	r.Unread = faults
	return r
}
