// Package convert translates between the API's objects and the types of internal/core. It has no client: the same code
// serves the scheduler, the agent, simulate and diagnostics.
//
//	Pod  → place.Request (before it is bound), ledger.Entry (after)
//	Node, NodeResourceTopology, Device → ledger.Facts
//	ledger.Offer → annotation.ResourceStatus, annotation.DeviceAllocations
//	ElasticQuota → quota.Spec, Pod → amount.List, and amounts back
//	PodGroup → gang.Object, Pod → gang.Pod
//
// Translating what runs never fails: what cannot be used is left out and reported as a Problem. Only a request, which
// nothing holds yet, is refused.
package convert
