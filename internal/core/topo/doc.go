// Package topo is what a machine is: its CPUs with core, last-level cache, socket and NUMA node, and its NUMA
// nodes with memory and distances.
//
//	socket ▸ NUMA node ▸ L3 group ▸ core ▸ thread (= CPU)
//
// A Machine is immutable and speaks in dense, typed indices: CPU 0…n-1 in ascending order of the kernel's ids, and so
// for cores, L3 groups, sockets and NUMA nodes. The kernel's ids, which may be sparse, live at the gate only:
// New takes them, ParseList and FormatList translate CPU lists, NodesByID and NodeIDs sets of NUMA nodes, CPUID,
// NUMAID, SocketID and CoreID answer for one. A NodeSet is a set of NUMA nodes by dense index, with its subsets and
// distances.
// Equal machines share one value through a Pool, so a cluster of 5,000 equal nodes holds one topology.
package topo
