// Package reserving is the plugin Reservation: it places Reservations as pods, and pods into the room that these keep.
//
//	Reservation ─► kube.Reservations ─► reserve pod ─► queue ─► all filters ─► Bind writes the Reservation
//	                                        │ holds what its users leave, in the cache and in the node's ledger
//	pod ─► PreFilter: which Reservations match ─► Filter, on their nodes: all filters without the reserve pod
//	    ─► Score: these nodes first ─► Reserve: takes over the very CPUs and devices, then counts as user
//	    ─► PreBind: names the pod in the status of a Reservation for one pod, which counts though the pod is deleted
//
// Pods that match no Reservation pay for a look at the account in PreFilter, and nothing where it is empty.
package reserving
