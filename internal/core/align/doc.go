// Package align has the rows of resources that pods hold on NUMA nodes besides CPUs: what a machine has of each, what
// pods ask for and hold, and what they leave.
//
//	Amounts of a machine ─► Row, one for each resource ─ Hold (of a pod) ─► Row.Free, by NUMA node
//
// Ordinary memory and each size of hugepages are rows. Rows, accounts and the search for NUMA nodes are the same for
// all.
package align
