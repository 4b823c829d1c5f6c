// Package colocation computes what batch and mid pods may have of a node: what its other pods do not use.
//
//	NodeMetric ─► Node (capacity, use, reserved, pods) ─► Strategy.Compute ─► Account of CPU, of memory
//	                                                                              │
//	              what the Node shows, and since when ─► Strategy.Next ◄──────────┘ ─► Grant: what it is to show
//
// Of each resource, batch pods get
//
//	capacity · reclaim % − max(system, reserved) − Σ high pods
//
// where a high pod is one that is neither batch nor free. It counts with its use, its request or the greater of both,
// as the Policy says; a pod without a row in the report counts with its request, and the CPUs of an LSE pod, which are
// never reclaimed, always do. A pod that is gone counts with its row until the next report has none.
//
// The use of a node is an average over minutes, the row of a pod one over the part of them in which it ran. Their
// difference is what the system uses only if no pod has ended or begun meanwhile: an ended pod is in the average and
// has no row, a young one has a row of which the average has a part. So the system counts with its own average.
//
// Spread divides what a node grants batch pods over its NUMA nodes, by what others leave of each.
//
// Two rules hold under every policy:
//
//   - What is granted, what high pods use and what the system uses is never more than the capacity (Account.Bound).
//   - Less knowledge never means more room. What a pod without a row uses is in the system's share, which then does not
//     overlap what is reserved. A report that is too old grants nothing (Strategy.Fresh).
//
// The source is Koordinator's colocation design. Differences: there, a pod without metrics counts nothing under
// maxUsageRequest, a percentage above 100 grants more than others leave, and amounts grow in one step.
package colocation
