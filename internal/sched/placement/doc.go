// Package placement is what plugins share that place a pod on one account of a machine.
//
//	PreFilter   parse the pod once; Skip when no node can treat it differently from any other pod
//	Filter      place.Fits on the node's view: the summary alone, no lock
//	Reserve     place.Try on the live account, then Commit; Unreserve reverts
//	Bind        the allocation travels in the Binding: recorded and bound in one write
//	PreBind     the same record as a patch, only where another binder binds
//
// Where a node's kubelet is predicted, Filter also asks its model; in Follow mode Reserve commits what the kubelet will
// give. Preemption's dry runs work on a copy of one node's view that lives in the cycle's state, those for gangs on a
// Trial of all nodes.
//
// A profile has one decision, whatever the number of names that it appears under (Plugin).
//
// # Why a reservation can fail
//
// Filter answers by a summary of the node's account, and Reserve computes the exact CPUs and devices on the account as
// it is then. The summary accepts no node that the exact answer refuses on the same account; a metric counts mistakes,
// and is always 0. What remains is that the account has changed between the two: the offer then has an old version,
// Commit refuses it, and Reserve tries once more before the pod goes back to the queue.
//
// # Why the Binding carries the allocation
//
// One request that binds the pod and records its CPUs and devices cannot leave one without the other. If its answer is
// lost, the pod is read until it is known whether it is bound, and keeps its reservation meanwhile: CPUs that are freed
// too early would be given twice.
package placement
