// Package probe computes the objects that an agent publishes of its node: pure functions from the machine, the
// kubelet's settings and the pods' allocations to a NodeResourceTopology.
//
//	Machine ─┐                                       ┌─ annotations of seed 000: cpu-topology, pools, allocations …
//	Kubelet ─┼─► Draft ─ convert.Facts ─► ledger ─►──┼─ zones: what each NUMA node has, may give and has left
//	Node ────┤                                       └─ topologyPolicies, attributes
//	Entries ─┘
//
// The pools come from the same ledger, built through the same conversion, that the scheduler decides on: agent and
// scheduler cannot disagree about what a shared pool is.
package probe
