// Package amount is the arithmetic of amounts of resources: milli-CPUs, bytes, or numbers of whatever the name says.
// A List has any resources by name, a Pair has CPU and memory. Sums that no int64 holds are the nearest int64.
//
// A device has several names: a GPU is 1 of nvidia.com/gpu, and 100 of koordinator.sh/gpu-core and of
// koordinator.sh/gpu-memory-ratio; each has deprecated spellings too. List.Asked and List.Offered count devices under
// all names that the caller limits.
package amount
