// Package whatif answers where pods would go if the cluster were another one, beside a running scheduler.
//
// An Engine has plugin instances and a snapshot of its own. A session is one question: it copies a node of the snapshot
// when it changes it, keeps the accounts of nodes that differ in a Trial, and runs the framework's own cycle for each
// pod: filters, scores, and the reservation of exact CPUs and devices. When the question is answered, the copies are
// dropped. Nothing that the running scheduler reads is ever written.
//
// What it does not try: HTTP extenders are not asked; a gang's members are placed one after the other, without the
// gang's rules; quotas admit each pod by what is used now, unless setQuota or scaleGang makes the session count for
// itself. All nodes are scored, and among equal scores the first name wins, where the running scheduler alternates.
//
// # Placing pods
//
// Without a mode, and with mode preempt, the named pods are placed one after the other, each beside those before it. A
// pod that fits nowhere then gets, with mode preempt, the node and the victims that the dry run of the running
// scheduler would choose. Its rules for victims are the same, because Preemption returns what chooses
// victims for the profile.
//
// # Counting pods
//
// Input: a pod, and the nodes that count. Output: how many more pods like it fit, by groups of nodes that answer alike,
// and what each group lacks for one more.
//
//	each filter decides about a node by that node alone (nodeByNode) ──► fill: all nodes side by side
//	some filter looks at other nodes, as spreading does                ──► repeat: one pod after the other
//
// Where no pod on one node changes what another node answers, the order in which nodes are filled does not matter, so
// filling them side by side gives the number that whole cycles would give. It costs one run of the filters and one
// reservation for each pod, and no score. One of equal nodes is filled for all of them: nodes that take a first pod,
// with the same amounts and ports, whose accounts differ in the names of pods and devices alone. The quotas are asked
// once, at the end, about all of them. What the counted pods will use is not estimated.
//
// # Making room
//
// core/defrag enumerates sets of pods that may move, and asks the cluster three questions, which room answers:
//
//	Capacity  how many pods of the demand fit on one node without some pods: the filters on a copy of the node
//	Targets   where the successor of a pod could go: the feasible nodes, the best score first
//	Works     whether some moves work together: whole cycles for all successors, then for the demand
//
// The first two only narrow the search. An answer is a set for which Works has said yes, so every move of it was made
// on copies, with exact CPUs, devices and quotas. The other mode of core/defrag looks for moves that lower what of the
// free room is unusable, and measures that before and after each move.
//
// # Fixes
//
// For a pod that waits, Fixes tries single changes, each in a session begun anew, and returns those after which a cycle
// places the pod. What takes one trial comes before what takes several:
//
//	members       of a gang: the members that it lacks are created, or its minimum is what fits
//	quota         the max that refuses the pod is raised by what is missing
//	terminating   the pods that terminate on a node are gone
//	nodeChanges   a cordon, a taint or a missing label that alone keeps the pod off a node is lifted
//	policies      one requirement of the pod is left out
//	addNode       a node like one that refuses the pod is added, for a gang as many as it takes
//	requests      one amount of one container is rounded up, or else lowered to the largest amount that fits
//	evict         one pod is deleted whose priority is not higher and that no PodDisruptionBudget or gang protects
//
// A member of a gang is placed if as many members are as must start together, one after the other, within their quotas;
// changes of a pod are made to all members that wait, if these are alike. The rules of a gang about domains are not
// tried: for a gang that has one, the only fix is to leave it out, once its members are placed without it.
//
// The explanation of the pod says what is worth a trial, and no fix is returned that was not tried. mostTrials and
// fixTime bound the search; the answer says if either ended it.
package whatif
