// Package suppress decides how much of a node's CPUs best-effort pods may have now, on which CPUs, and which pods are
// evicted where that is not enough.
//
//	use of the node ─► Allowed ─┬─► NextCPUs ─► Order (a beginning of it)
//	                            └─► NextQuota
//	memory in use ─► Excess, by Bounds or Early ───────┐
//	requested, allowed, used ─► Short ─► Lasting.For ──┴─► Victims
//
// What best-effort pods may have is what others leave below a share of the node's CPUs. It shrinks at once and grows in
// steps of a tenth of the node, so that load which comes back soon finds its CPUs free.
//
// Order lists the CPUs that best-effort pods may use so that each beginning of the list takes the same part of each
// NUMA node, and of the CPUs of LSR pods and of the shared pool on it. A set is a beginning of the list: a smaller set
// is a part of each larger one, and pods keep CPUs when the size changes. The order is found by choosing, for each
// place, the part that lacks most of its share of the next CPU. As the parts lack one CPU together, the chosen one
// lacks something, so no part is ever a core ahead of its share. It costs the product of cores and parts.
//
// Victims go in the order of their priorities, then of use over request, until what is needed is free: without the last
// of them it would not be. Pods that leave already count as gone.
package suppress
