// Package kernel is a cgroup tree on disk that behaves like the kernel's: a plain directory accepts every write, this
// one refuses what a v1 or v2 kernel refuses, keeps the effective files and the tasks, and says what happened.
//
//	Write(group, file, value) ─► rules of the dialect ─► memory ─► files below the directory ─► Observe
//
// Memory leads. The files are there to be read by people, tests and a later process, which takes the tree up with its
// tasks alive. A cpuset file that someone edits by hand is taken as a write when the group is read next.
//
// Modelled are the cpuset files, CPU quotas and core files that a node agent deals with, on kernels 6.18 (v1) and 6.12
// (v2). Tasks are numbers. Faults can be injected before every call.
package kernel
