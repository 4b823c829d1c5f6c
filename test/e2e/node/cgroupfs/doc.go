// Package cgroupfs gives tests cgroups of their own in every hierarchy that the machine has, of cgroup v1 and of v2,
// and takes them away again, also those that a killed test left behind.
//
// All groups of a test lie below one at the root of each hierarchy that is named after the test's process:
// tenon-e2e-PID. Groups of others, and the root groups, are only read.
package cgroupfs
