// Package cgroup is level 2 of the tests of a node: the kernel of the machine that runs them. It runs the rulebook of
// internal/local/kernel to the simulated kernel and to this one, and lets the agent's engine work on it.
//
// Everything happens below one group, tenon-e2e-PID, in each hierarchy; the root group and those of others are only
// read. Without root, or where the kernel gives no groups, the one line "NOT RUN: level 2 (…)" is printed.
//
//	go test -c -tags e2e_cgroup -o cgroup.test ./test/e2e/node/cgroup && ./cgroup.test -test.v
//
// -own-machine lets the tests take CPU 1 offline, and -set-files set affinities of interrupts and use all CPUs: both
// are for guests.
//
// # What it runs
//
// test/e2e/node/cgroup/rulebook has what cgroup kernels answer as some forty short stories: what a v1 kernel refuses
// with EACCES, EBUSY, ENOSPC, EINVAL and ERANGE, what a v2 kernel takes and then gives the parent's whole set for, CPUs
// that go offline, quotas, shares, limits, tasks that pin themselves or fork while they are moved. Every go test
// ./internal/local/kernel runs them against the simulated kernel; level 2 runs them against the machine's own as well,
// so that the two cannot drift apart. The agent's engine also works on the machine's kernel: hand-over between bound
// pods, pools that shrink first, drift, nested groups, quotas that are lifted, frozen containers, an OOM kill, and an
// agent that takes up what runs. It takes about a second.
//
//	go test -c -tags e2e_cgroup -o .cache/l2 ./test/e2e/node/cgroup && .cache/l2 -test.v
//
// -own-machine lets it take CPU 1 offline too: for guests, where level 5 runs the same binary on cgroup v2.
package cgroup
