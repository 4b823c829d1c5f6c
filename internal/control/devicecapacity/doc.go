// Package devicecapacity shows in each Node what its Device object says: the amounts of all devices that work, in
// status.capacity and status.allocatable, and the labels of its GPUs.
//
//	Device ─► convert.Capacity ─┐
//	                            ├─► what differs ─► server-side apply, under a field manager of its own
//	Node ───────────────────────┘
//
// What is more appears at once. What is less disappears when it has been so for a minute: a count that falls to nothing
// for a moment would start preemption. A kind of device that a node has no more is removed, not set to 0, at which a
// restarted kubelet would refuse the pods that it finds running.
package devicecapacity
