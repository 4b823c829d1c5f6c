// Package follow keeps the order in which pods are bound and checks predictions against what kubelets did.
//
//	Reserve ─► Order ─► Binding ─ reported ► as predicted | mispredicted
//	                            ├ rejected ► entry removed, units held for a while, back-off of the node for the shape
//	                            └ neither ─► overdue
//
// A kubelet that chooses by itself admits pods in the order in which they are bound, so an Order sends the Bindings of
// such a node in the order of their reservations. A Tracker, one for all profiles, follows bound pods.
package follow
