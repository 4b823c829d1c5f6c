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
// pod all pods of a set are on one node. This is exact if taking a pod off a node never makes it fit less, and if nodes
// accept pods independently of each other; a rule between nodes (affinity, spreading) can only make Works refuse a set,
// and a set that helps by such a rule alone is not found.
//
// Beyond two pods, the sets of each node that free more than any part of them are options, and unions of options of
// different nodes are tried in order. Both are bounded by Limits.Sets, which counts the sets of more than two pods. The
// first set that works is the result, and no set of at most two works. For a demand of one pod it is the smallest of
// all, unless the bound was reached.
package defrag
