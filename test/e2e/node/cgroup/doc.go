// Package cgroup is level 2 of the tests of a node: the kernel of the machine that runs them. It runs the rulebook of
// internal/local/kernel to the simulated kernel and to this one, and lets the agent's engine work on it.
//
// Everything happens below one group, tenon-e2e-PID, in each hierarchy; the root group and those of others are only
// read. Without root, or where the kernel gives no groups, the one line "NOT RUN: level 2 (…)" is printed.
//
//	go test -c -tags e2e_cgroup -o cgroup.test ./test/e2e/node/cgroup && ./cgroup.test -test.v
//
// -own-machine lets the tests take CPU 1 offline: for guests alone.
package cgroup
