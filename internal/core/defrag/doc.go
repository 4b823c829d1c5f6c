// Package defrag finds the smallest set of moves after which a demand fits: a pod, or equal members of a gang.
//
// Input: the nodes, the pods that may be moved with what a move costs, and a Cluster that answers from copies of the
// accounts. A set of moves works if each pod of it finds a place on another node while no pod has moved yet (its place
// is held before it leaves), and the demand fits once all of them have left. Sets are compared by the number of pods,
// then by the sum of costs, then by priorities, the highest first, then by UIDs.
//
// Sets of one and two pods are enumerated completely, so the set that is found among them is the smallest one, and none
// means that there is none. A set is tried only if the room that it frees suffices without the places that it takes,
// which is cheap to know: the capacity of a node depends on the pods that leave that node alone. For a demand of one
// pod all pods of a set are on one node. This is exact if nodes accept pods independently of each other.
//
// Rules between nodes (affinity, anti-affinity, spreading over zones) break that. The Cluster says which pods such a
// rule of the demand counts, or counts the demand: the linked pods. Any node's answer can change with the move of one.
// So a set also qualifies, whatever it frees, if it has a linked pod and each other pod of it is linked as well, or
// leaves a node that takes more then, or would but for a rule. Whether a qualified set helps is left to Works. A rule
// of a pod that is to move can refuse it each target until the successor of another pod is placed: pairs of such a pod
// and one that its rules count qualify too, and both may go to nodes that a rule refuses now.
//
// Beyond two pods, the sets of each node that free more than any part of them are options, and unions of options of
// different nodes are tried in order. Both are bounded by Limits.Sets, which counts the sets of more than two pods. The
// first set that works is the result, and no set of at most two works. For a demand of one pod it is the smallest of
// all, unless the bound was reached or a rule between nodes counts.
package defrag
