// Package grid builds regular machines for tests: each socket has as many NUMA nodes, and each node as many cores.
package grid
