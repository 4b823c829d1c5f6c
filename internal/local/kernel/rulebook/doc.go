// Package rulebook has what a cgroup kernel answers, as one table of short stories, and tells them to a kernel: to the
// simulated one in every test run, to a real one where there is root. What passes here behaves alike, so that tests on
// the simulated kernel stay true.
//
// The stories need two online CPUs with the ids 0 and 1 and the memory node 0, and work in the groups p and p/c that
// every story begins with: p has CPUs 0–1 and node 0, p/c nothing yet.
package rulebook
