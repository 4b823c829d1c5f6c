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
package placement
