// Package hint is the NUMA arithmetic of the kubelet's Topology Manager: hints, the four policies, and their merge.
//
//	lists ──────────────────────────────► Rule.Answer ───► Answer                      the exact model
//	                                      Rule.Explain ──► Table: the hints of each resource, and which ones conflict
//	Capacity (machine) ─► Summary (state) ─ Verdict(Request) ─► Answer, without lists   the counting fast path
//
// Masks are of dense NUMA indices in ascending order of the kernel's ids: that keeps the order of masks as numbers, so
// sparse ids and ids of 64 and more give the kubelet's answers.
//
// # The merge
//
// A provider answers a request with a list of hints, one for each mask of NUMA nodes that could serve it. The kubelet
// takes one hint of every list in every way. A combination's mask is the intersection of its masks, a hint for any
// nodes restricting nothing; the combination is preferred if all its hints are, and their masks are equal. The best
// combination wins: preferred ones first, the smaller mask first, then the closer one, then the lower number. Of
// combinations that are not preferred, masks of size w come first, w being the largest of the lists' narrowest masks;
// then smaller masks from large to small, then larger ones from small to large (ranking).
//
// Answer gives the same without walking the product, whose size is exponential in the number of lists:
//
// M1. The preferred masks are those that all lists prefer, where a list with a preferred hint for any nodes imposes
// nothing: a preferred combination has one mask, which every list contributes. If no list imposes anything, the
// preferred masks of single lists and all nodes remain. (preferred; TestMergeIsTheProductOfAllLists)
//
// M2. Without a preferred mask, the rank of a combination depends on its mask alone, so the set of all masks that
// combinations come to is enough. Intersection is associative, so the set is folded list by list. (reachable, fold)
//
// M3. One step of the fold counts. There are f(m)·g(m) pairs whose masks both contain m, where f and g count the masks
// of either side that contain m. Subtracting the pairs that contain more than m (Möbius inversion) leaves the pairs
// whose intersection is m, at most 3^18 for a mask m that is not empty, so that arithmetic modulo 2^32 is exact. The
// cost is n·2^n for n nodes, whatever the lengths of the lists. (intersectList; TestMergeOfManyNodesIsTheProduct,
// TestLongListsOfManyNodesEnd)
//
// M4. Under SingleNUMANode the kubelet drops all hints but preferred ones of at most one node. A combination of what is
// left is preferred or empty, so M1 decides alone. (takes; TestMergeIsTheProductOfAllLists)
//
// # Counting
//
// Verdict answers what Answer answers to the lists that the kubelet's managers would make, from counters. It assumes
// that amounts are additive: each unit belongs to one NUMA node or to none, so a mask has what its nodes have together.
// TestVerdictIsTheMergeOfTheListsThatProvidersMake and TestVerdictIsTheProductOfTheListsThatProvidersMake compare the
// whole with lists made mask by mask; the kubelet package's TestHintsAreTheirDefinition shows that these are the
// managers' lists.
//
// C1. A provider prefers hints of one size: the smallest number of walked nodes whose capacity holds the amount, or all
// of them. As capacities are additive, the k nodes with the most capacity hold the most, so prefix sums of the sorted
// capacities give the size. Several types of memory must fit the same nodes; their size is searched. (stock.least,
// leastOf; TestPreferredMasksAreOfLeastSize)
//
// C2. By M1 and C1, a mask that all providers prefer has the size of each. If two sizes differ, there is none. (size)
//
// C3. A preferred mask has a unit of every resource on each of its nodes, used or free: without a node that has none,
// the mask would hold the same capacity with one node less, against C1. So only nodes that host every resource are
// combined. A memory mask is a single node outside all groups, exactly a group, or several nodes without assignments;
// groups are looked at one by one, and the others are combined of unassigned nodes. (ofSize, oneNode, mayHold)
//
// C4. Masks of one size are visited in ascending order of their numbers, so the first one that fits is the best; with
// distances all of them are compared. (walk.start)
//
// C5. BestEffort needs the best mask that is not preferred, which M2 folds. A node that some list never has is in no
// candidate, so masks are cut to the other, active nodes. Of a resource's masks with equal cuts, the one with all nodes
// outside has the most, so a cut occurs exactly if that one holds the amount. The narrowest mask of a resource is made
// of the nodes with the most free units. The list of memory is folded once for each type, as the kubelet attaches it
// so. A resource without any hint restricts nothing. (problem.reachable; TestBestEffortOnManyNodesEnds holds the cost)
//
// C6. How many masks hold an amount is counted without visiting them all: nodes are looked at one by one, with and
// without each, and once what is left of the amount is 0, or more than all nodes that follow have, the rest of the
// count is known. A memory mask is one of those that C3 names. (countSets, countMemory;
// TestLengthsAreThoseOfTheListsThatProvidersMake)
package hint
