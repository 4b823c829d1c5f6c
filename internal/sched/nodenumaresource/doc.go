// Package nodenumaresource is the scheduler plugin NodeNUMAResource: fine-grained CPU orchestration (seed 000).
//
//	PreFilter   parse the pod once; Skip when no node can treat it differently from any other pod
//	Filter      place.Fits on the node's view: the summary alone, no lock
//	Score       place.Score
//	Reserve     place.Try on the live account, then Commit; Unreserve reverts
//	Bind        the allocation travels in the Binding: recorded and bound in one write
//	PreBind     the same record as a patch, only where another binder binds
//
// Where a node's kubelet is predicted, Filter also asks its model; in Follow mode Reserve commits what the kubelet will
// give. A Tracker, one for all profiles, follows bound pods: it holds reports against predictions and keeps the
// replacements of pods that a kubelet rejected off that node.
//
// Preemption's dry runs work on a copy of one node's view that lives in the cycle's state. Everything that decides is
// in internal/core; this package translates.
package nodenumaresource
