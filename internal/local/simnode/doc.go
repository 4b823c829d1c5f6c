// Package simnode runs simulated nodes: the real agent of each node over a generated machine and a simulated kernel,
// and beside it the small part of a kubelet and a container runtime that workloads need.
//
//	Node, Lease ◄── register ─┐                                    ┌─► kernel.Tree  DIR/sys/fs/cgroup
//	pods of the node ────────►│ kubelet ── Create, Start, Stop ──► agent (internal/agent/app)
//	pod status ◄──────────────┘   containers are tasks of the tree └─► NodeResourceTopology
//
// A container runs until its pod is deleted; a Job's for a second; the annotation tenon.sh/simulate changes both. What
// cannot be enforced does not start. A node whose process is restarted takes its containers up from the tree and the
// pod statuses: none is restarted and no cpuset changes.
package simnode
