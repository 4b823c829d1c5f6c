// Package ranking replaces kube-scheduler's batching of equal pods, by a Profile around each framework.
//
// Upstream keeps one list of scored nodes for pods that follow each other, and only while each pod fills its node. Here
// each signature has a ranking of its own: the raw score that every plugin gave each feasible node. The next pod of the
// signature evaluates again only the nodes that changed since the last one. Workloads with equal pods share a ranking;
// each has a spread, which counts its pods where some are, and counts again only the pods of changed nodes. Rankings
// and spreads together take as much memory as the profile allows:
//
//	cache, accounts ── node ──► hooks.Changes ──► ranking: filter and score the changed nodes
//	                                                 │     spread: count the workload's pods on changed nodes
//	                                                 │     normalize and total over arrays
//	                                                 ▼
//	GetNodeHint ◄────────────────────────────── best node ──► upstream runs all filters on it
//
// Pods that differ only in the amounts that they ask for are a family. What the plugins that read no amounts say of a
// node is kept once for all of them, and they share the sample of nodes that was taken last: a pod of a size that comes
// for the first time, or seldom, costs the plugins that compare amounts, on the nodes of the sample. Where few of these
// have room for it, it goes the whole way.
//
// A pod that all nodes refuse leaves a refusal: the status of each node, and counts of them (Remember). The next pod of
// which the filters read the same asks the changed nodes alone, and where all nodes refuse it too, PreFilter leaves no
// node to ask. Its FitError is the one of a pass over all nodes. Preemption looks at no node where no pod of lower
// priority runs.
//
// The node is a proposal, as upstream's hint is: a pod that the filters refuse is evaluated on all nodes. A test
// compares each proposal with the node that a pass over all nodes gives. Rejections remembers to which nodes the API
// server refused to bind a pod, so that such a node does not win every cycle.
package ranking
