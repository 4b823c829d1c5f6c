// Package app is the agent of one node, wired: it reads the machine, watches the node's pods, keeps the cgroup tree
// equal to their allocations and publishes the node's topology. Package command has its flags.
//
//	host.Root ─► machine ─┐                         ┌─► apply.Engine ─► cgroup tree
//	kubelet state ────────┼─► facts, entries ───────┤       ▲ hooks: Create, Start, Stop, Remove
//	Node, Pods (watch) ───┘                         └─► report.Reporter ─► NodeResourceTopology, Node conditions
//
// An Agent has no process-wide state: a hundred of them run in one process for the simulated nodes of a local cluster.
// What they can share is Shared.
package app
