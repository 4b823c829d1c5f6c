// Package view is what people see of a pod, of a node and of a quota, as JSON types, and how it is filled from the
// accounts. The command line draws it, the diagnostics API serves it, simulate is answered with it.
//
//	findings per node ─► Explain ─┐
//	the pod's object ─► Subject ──┼─► Pod       why it is where it is, or nowhere
//	account ─► PlacementOf ───────┘
//	account, request ─► HintsOf ────► Hints     how the NUMA nodes of a machine satisfy a pod
//	account ─► NodeOf, LoadOf ──────► Node, Load
//	quota.Forest ─► QuotaOf ────────► Quota     what a quota may use, lends and borrows, and why
//	Installation ─► StatusOf ───────► Status    whether what is installed in a cluster works
//
// A Pod contains the refusals (obstacles, counted by code), the smallest sets of codes that keep it from a node
// (minimal sets), the refusal that must be reported first (root cause), and per node what it has and what the pod
// needs. For a bound pod it contains its node and how that node was chosen. Fields are only ever added. What comes from
// API objects is read by internal/kube/describe.
package view
