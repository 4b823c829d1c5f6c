// Package reserving is the plugin Reservation: it places Reservations as pods, and pods into the room that these keep.
//
//	Reservation ─► kube.Reservations ─► reserve pod ─► queue ─► all filters ─► Bind writes the Reservation
//	                                        │ holds what its users leave, in the cache and in the node's ledger
//	pod ─► PreFilter: which Reservations match ─► Filter, on their nodes: all filters without the reserve pod
//	    ─► Score: these nodes first ─► Reserve: takes over the very CPUs and devices, then counts as user
//	    ─► PreBind: names the pod in the status of a Reservation for one pod, which counts though the pod is deleted
//
// Pods that match no Reservation pay for a look at the account in PreFilter, and nothing where it is empty.
//
// # A pod inside a Reservation
//
// A reserve pod holds in the scheduler's cache and in the node's account what the users of its Reservation leave. For a
// pod that may use the Reservation, the filters of the profile run on a copy of the node without the reserve pod, as in
// a dry run of preemption. With a restricted Reservation the copy has nothing else free. The first Reservation with
// which all filters pass is the one that Reserve takes, so a pod fits inside for the same reasons as on any node.
//
// If the pod is placed, the reserve pod becomes smaller by what the pod has: in the account, in the cache and in the
// quotas, which count the pod in its place. If the pod ends, the reserve pod grows again, unless the Reservation is for
// one pod.
//
// # Pre-allocation
//
// A Reservation with preAllocation may be placed where running pods have the room. The filters run without the pods
// that it may take over, one or several; the reserve pod then gets the room as these pods end.
package reserving
