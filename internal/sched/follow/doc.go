// Package follow keeps the order in which pods are bound and checks predictions against what kubelets did.
//
//	Reserve ─► Order ─► Binding ─ reported ► as predicted | mispredicted
//	                            ├ rejected ► entry removed, units held for a while, back-off of the node for the shape
//	                            └ neither ─► overdue
//
// A kubelet that chooses by itself admits pods in the order in which they are bound, so an Order sends the Bindings of
// such a node in the order of their reservations. A Tracker, one for all profiles, follows bound pods.
//
// # Order
//
// Each prediction is made on the account that the reservations before it have left. It holds if the kubelet admits the
// pods in that order, so a Binding waits for those ahead of it. Two things break the order: a pod ahead that is not
// bound after all, and a pod ahead that waits for so long, for a permit or for volumes, that the ones behind it go
// first. Both mark the predictions of the queue as stale. A stale prediction is made anew before its Binding is sent,
// on the account without the pods that are not bound. At most one Binding to a node is in flight, because the API
// server may carry out the second of two first.
//
// # What becomes of a bound pod
//
// The store calls the tracker when the node reports what a predicted pod got, and when a pod leaves its node. An
// informer of pods that have failed brings rejections. A rejection is often seen after the pod has gone, so what the
// pod held is remembered for a minute.
//
// A difference is a model error if the model, given what the node has reported since, still does not explain it. A node
// with several model errors of late ranks last: it is not refused, because it may be the only one that fits.
//
// A rejected pod is usually replaced by an equal one at once, for which the same node looks as good as before. So the
// node gets no pod of that shape for a while: 30 seconds, doubled by each further rejection, up to 10 minutes. What the
// pod had been given stays in the account until the kubelet has certainly released it.
//
// # Audit
//
// Once in a while the accounts of nodes and quotas are compared with all pods of the cluster. A difference that two
// comparisons in a row find is repaired and reported. There is none unless the scheduler has a fault.
package follow
