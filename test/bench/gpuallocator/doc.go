// Command gpuallocator chooses GPUs by their links with NVIDIA's go-gpuallocator, which its device plugin uses, and
// with Tenon, on a node of 16 that are in use at random:
//
//	CGO_ENABLED=1 go run . -states 8
//
// The GPUs are pairs with four NVLink lanes on one switch, two pairs to a root complex, two root complexes to a NUMA
// node. A call of go-gpuallocator is a process of its own, which ends after -limit. Calls of less than a millisecond
// are repeated, and the median counts. W is the weight of the links of a set: 100 for each lane, and closeness.
package main
