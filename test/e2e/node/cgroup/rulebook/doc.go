// Package rulebook contains the answers of a cgroup kernel as one table of short stories, and runs them on a kernel: on
// the simulated one in every test run, on a real one as root. Kernels that pass behave alike, so tests on the simulated
// kernel remain valid for a real one.
//
// The stories need two online CPUs with the ids 0 and 1 and the memory node 0, and work in the groups p and p/c that
// every story begins with: p has CPUs 0–1 and node 0, p/c nothing yet.
package rulebook
