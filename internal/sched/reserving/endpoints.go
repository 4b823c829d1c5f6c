package reserving

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
)

// Diagnostics returns the endpoint about the Reservations of a node, in Koordinator's shape.
func (p *Plugin) Diagnostics() diag.Service {
	return diag.Service{Endpoints: []diag.Endpoint{{
		Path: "nodeReservations/{nodeName}", Answer: func(r *http.Request, mayRead func(string) bool) any {
			return p.reservationsOn(r.PathValue("nodeName"), mayRead)
		},
	}}}
}

// The types below are the JSON of Koordinator's endpoint: field names are contract.

// nodeReservations are the Reservations on a node.
type nodeReservations struct {
	Items []nodeReservation `json:"items"`
}

// nodeReservation is one of them with the pods that use it.
type nodeReservation struct {
	// Name and UID are those of the Reservation. Kind is always Reservation.
	Name string `json:"name"`
	UID  string `json:"uid"`
	Kind string `json:"kind"`
	// Available is always true: Reservations without a node, and those that have ended, are not listed.
	Available bool `json:"available"`
	// AllocateOnce is true if one pod alone may use the Reservation.
	AllocateOnce bool `json:"allocateOnce"`
	// Allocatable is what the Reservation keeps.
	Allocatable corev1.ResourceList `json:"allocatable"`
	// Allocated is what pods have of it, hidden ones included.
	Allocated corev1.ResourceList `json:"allocated"`
	// Owners are the selectors of the pods that may use it.
	Owners []v1alpha1.ReservationOwner `json:"owners"`
	// Policy says whether a pod may take more from the node than the Reservation keeps.
	Policy v1alpha1.ReservationAllocatePolicy `json:"allocatePolicy"`
	// AssignedPods are the pods that use it and that the caller may read.
	AssignedPods []corev1.ObjectReference `json:"assignedPods"`
	// PodsHidden counts the users in namespaces that the caller may not read.
	PodsHidden int `json:"podsHidden,omitempty"`
}

// reservationsOn returns the Reservations on a node with their users; nil for an unknown node. Users in namespaces that
// the caller may not read are counted only.
func (p *Plugin) reservationsOn(node string, mayRead func(namespace string) bool) any {
	if _, err := p.nodes.Get(node); err != nil {
		return nil
	}
	out := nodeReservations{Items: []nodeReservation{}}
	for _, r := range p.reservations.On(node) {
		spec, allocated, users := p.reservations.Usage(r.UID)
		one := nodeReservation{
			Name: r.Name, UID: string(r.UID), Kind: "Reservation", Available: true, AllocateOnce: spec.Once,
			Allocatable: convert.ResourceList(spec.Allocatable), Allocated: convert.ResourceList(allocated),
			Owners: r.Spec.Owners, Policy: r.Spec.AllocatePolicy, AssignedPods: []corev1.ObjectReference{},
		}
		for _, u := range users {
			if !mayRead(u.Namespace) {
				one.PodsHidden++
				continue
			}
			one.AssignedPods = append(one.AssignedPods, corev1.ObjectReference{
				Namespace: u.Namespace, Name: u.Name, UID: u.UID,
			})
		}
		out.Items = append(out.Items, one)
	}
	return out
}
