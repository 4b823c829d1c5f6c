// Package apply makes the cgroup tree of a machine equal to the desired table, in an order that never lets an exclusive
// CPU be in the effective cpuset of a pod that is not allowed on it.
//
//	Update, Delete, Prune (pods) ┐                    ┌─ shrink   deepest groups first, read back
//	SetFacts (machine, pins)     ├─► account ► table ─┤─ grant    exclusive CPUs that no other group has any more
//	Create, Start, Stop, Remove  ┘   (ledger)         └─ grow     shallowest groups first, up to what is free
//
// Four rules give the order.
//
// Shrink before grow: a group that has CPUs outside of its row first loses them; one that also gains is first set to
// the intersection. A set is read back from the kernel's effective file, never assumed.
//
// Grow to what is free: a shared group never grows onto a CPU that is in the effective set of an exclusive pod's group,
// whatever the table says; exclusive CPUs are granted, at Start, only when no other group has them. So each single
// write is safe by itself, and a crash between two writes leaves a safe tree.
//
// Hold until death: a pod that is gone from the API keeps its entry in the account while a process lives in its groups.
// After a restart the same is done for groups of unknown pods, by what the tree itself shows.
//
// First come, first kept: a pod whose allocation changes while it runs keeps what it was granted until it ends, and
// pods that another program put on each other's CPUs remain there until one of them ends. Both are reported.
//
// An Engine reads and writes the tree through the small interface Cgroup. Errors, retries and back-off live here alone.
// An Enforcer runs the Engine of a machine as long as the agent may write, and describes what the kernel has for a pod.
package apply
