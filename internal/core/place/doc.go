// Package place answers whether a request fits a machine, and where exactly.
//
// Fits reads the summary of a view: it is what the scheduler's Filter asks, O(NUMA nodes), no allocation. Try computes
// the exact offer that Reserve commits, or the reason why there is none. On one view Fits accepts exactly when Try
// does.
//
// Under a topology policy CPUs (or shared pools) and every type of memory are asked together, of sets of NUMA nodes:
//
//	SingleNUMANode  a set of one node that holds all of it
//	Restricted      a set of k nodes, k being what each resource alone needs on an empty machine: one number for all
//	BestEffort      the smallest set there is; never a refusal
//
// Exclusive CPUs, shared pools and memory are rows of one enumeration (joint): a set of NUMA nodes holds the pod when
// it holds every row, and when the pods that are there keep what they were promised (ledger.Summary.Room).
//
// Of equally small sets fewest sockets count, then the smallest distances, then the strategy, then the lowest ids.
package place
