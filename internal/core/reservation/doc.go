// Package reservation decides which pods may use the room that reservations keep, what is left of it, and when a
// reservation ends.
//
// A Spec says what is reserved, for whom and where. An Account has the Specs of a cluster and the pods that use them:
//
//	Put, Remove ─ Specs ┐
//	Use, Release ─ Pods ┴─► Account: Matching(pod) by node, Left(uid)
//
// Step decides what the object of a reservation says, and what is done about the pods that it names:
//
//	Pending ─► Available ─► Succeeded   the one pod that it was for uses it
//	    └► Waiting ─┘  └──► Failed      it has expired, or its node was deleted
//
// What a reservation holds is what its users leave of it: node use is the sum of the pods' requests and of what
// reservations hold, so that a user is counted once. A reservation for one pod holds nothing any more once it is used.
//
// Matching looks a pod up by its own identity, its controller and its labels: it costs nothing where no reservation may
// be used, and is proportional to those that share a key with the pod otherwise.
package reservation
