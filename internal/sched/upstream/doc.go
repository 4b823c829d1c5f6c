// Package upstream replaces parts of kube-scheduler. A test holds that kube-scheduler calls each of them, and the sums
// in testdata that the functions around them are those that were read.
//
// The cache (Changes.Watch) and the informers (Informers, Resources) give each event to the accounts before the
// scheduler's queue has it. Gate takes no pod from it before all accounts are known, nor while as many Bindings are on
// their way as the API server takes at once. Reporter replaces what the failure handler reports, and Server the server.
// Events counts the events of the queue that may let a pod fit, and Rejections remembers where a Binding was refused.
//
// Profile replaces the batching of equal pods. Upstream's keeps one list of scored nodes for pods that follow each
// other, and only while each pod fills its node. Here each signature has a ranking of its own: the raw score that every
// plugin gave each feasible node. The next pod of the signature evaluates again only the nodes that changed since the
// last one:
//
//	cache, accounts ── node ──► Changes ──► ranking: filter and score the changed nodes
//	                                           │     normalize and total over arrays
//	                                           ▼
//	GetNodeHint ◄──────────────────────── best node ──► upstream runs all filters on it
//
// The node is a proposal, as upstream's hint is: a pod that the filters refuse goes the whole way over all nodes.
package upstream
