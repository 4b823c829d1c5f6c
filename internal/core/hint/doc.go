// Package hint is the NUMA arithmetic of the kubelet's Topology Manager: hints, the four policies, and their merge.
//
// A provider answers a request with a list of hints, one per mask of NUMA nodes that could serve it; the merge takes
// one hint of every list, intersects their masks and keeps the best. The kubelet walks the product of all lists. Here
// the preferred answer is the intersection of the lists' preferred masks, and the others are folded list by list, so
// the answer is the same and the cost is not exponential in the number of lists.
//
//	lists ──────────────────────────────► Rule.Answer ───► Answer
//	                                      Rule.Explain ──► Table: the hints of each resource, and which ones conflict
//	Capacity (machine) ─► Summary (state) ─ Verdict(Request) ─► Answer, without any list
//
// Masks are of dense NUMA indices in ascending order of the kernel's ids: that keeps the order of masks as numbers, so
// sparse ids and ids of 64 and more give the kubelet's answers.
package hint
