// Package kernel is a cgroup tree on disk that behaves like the kernel's. A plain directory accepts every write. This
// one refuses what a v1 or v2 kernel refuses, keeps the effective files and the tasks, and reports each change.
//
//	Write(group, file, value) ─► rules of the dialect ─► memory ─► files below the directory ─► Observe
//
// The state in memory is authoritative. The files are for people, for tests, and for a later process, which continues
// with the same groups and tasks. A manual edit of a cpuset file counts as a write when the group is read next.
//
// The package models the cpuset files, CPU quotas and core files that a node agent uses, on kernels 6.18 (v1) and 6.12
// (v2). Tasks are numbers. Faults can be injected before every operation.
package kernel
