// Package load computes what a node uses, from the last report of its use and from estimates of the pods that the
// report does not contain yet, and judges nodes by it.
//
//	report: use of the node, of pods by namespace and name, time ──┐
//	                                                               ├─► Node ─► View: Use, ProdUse ─► Exceeds, Score
//	pods assigned to the node: UID, estimate, time of assignment ──┘
//
// A pod counts once: with its use where the report contains it, and else with its estimate. In between, while the
// report covers only a part of the pod's life, it counts with the larger of the two. Reports carry no UID, so an entry
// of a report is the pod's only if the report was made after the pod was assigned.
//
// The average of a node counts pods for as long as they ran in its time. Where the report has what the system and each
// pod used while it ran, their sum counts instead: what pods have used that have ended is free.
//
// A Node keeps what it has added for each pod, by UID, so that removing the pod subtracts exactly that, in any order of
// events. One event costs O(1); a report costs one step per pod of the node.
//
// What is lost never makes a node look emptier: a pod missing in a report counts with its estimate, and where the use
// of the node is missing, the estimates of all of its pods count.
//
// Returns says which nodes the pods of a workload avoid because these have evicted one of them.
//
// A Pool compares nodes by their use, to move pods from high nodes to low ones. It is greedy: pods leave in a given
// order, each for one of the targets whose use is below their high thresholds with all pods moved before, and no move
// is undone. This costs sources × pods × targets. A Detector says for how long a node has been high.
package load
