// Package kube converts the API server's objects into one account per machine.
//
//	Node ────┐
//	NRT  ────┼─► Store ─► node record ─► ledger.Ledger ─► *ledger.View   (atomic pointer: read without a lock)
//	Numa ────┤              │            (Numatopology: read where no NRT has a CPU topology)
//	Device ──┤              │
//	Pod  ────┘              │
//	                        └─ facts are parsed once per change; machines with equal topology share one topo.Machine
//
// Quotas is the account of all pods in their ElasticQuotas, fed in the same way.
//
// The Store is fed by the table of the package accounts (Put…, Remove…), in any order, with duplicates and replays: its
// state depends on the last object of each kind alone. A pod may come before its node or the node's topology; it is
// accounted from the first moment and its CPUs count as soon as the topology says which they are.
package kube
