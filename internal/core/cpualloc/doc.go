// Package cpualloc chooses which CPUs of a machine a pod gets.
//
// Allocate is a pure function: equal input, equal output. Its answers are optimal in a lexicographic order, not merely
// greedy (seed 000):
//
//	1  fewest NUMA nodes, or the smallest even split (DistributeEvenly)
//	2  fewest sockets
//	3  smallest sum of SLIT distances
//	4  FullPCPUs: fewest partial cores         SpreadByPCPUs: lowest exclusive stage
//	5  FullPCPUs: lowest exclusive stage       SpreadByPCPUs: most distinct cores
//	6  strategy: fewest or most free CPUs on the chosen nodes, or the least deviation
//	7  least damage to whole cores, then fewest L3 groups (before, with PreferL3)
//	8  most CPUs without a tick (nohz_full), then the lowest CPU ids
//
// The work is done in three steps:
//
//	survey ─ what each core and NUMA node has to give (survey.go)
//	choose ─ the set of NUMA nodes, by what taking them would cost (nodes.go, cost.go, even.go)
//	fill   ─ core by core, from the best kind of core to the worst (fill.go, l3.go)
//
// Rows 1 and 2 hold on every machine of up to 64 NUMA nodes with CPUs. Rows 3 to 6 hold where at most 128 sets of nodes
// come into question, which is always so on 8 nodes; beyond, the answer is as good as exchanging one node for another
// makes it. Rows 7 and 8 hold within one NUMA node for whole cores and for spreading on cores of up to two threads;
// between sets of nodes that are equal so far the one with more CPUs without a tick wins, then the lowest nodes. CPUs
// without a tick are as many as possible where each core has all of its threads without a tick or none, and all cores
// share one L3. On cores of different sizes the larger ones are given first. oracle_test.go proves it against a search
// of all subsets of the free CPUs.
//
// Whether a request fits is a question of three counts per NUMA node: Feasible answers it for Filter, exactly as
// Allocate does.
package cpualloc
