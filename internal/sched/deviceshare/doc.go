// Package deviceshare is the scheduler plugin DeviceShare: GPUs and other devices, whole or in part. It is the
// placement of a profile (internal/sched/placement) with arguments and a score of its own.
//
//	pods that are tried ─► learner: histogram ─┬► generation of values (internal/core/fragment)
//	what GPUs of each model have free ──────────┘     │
//	account of a node's devices, its free CPUs ───────┴─► Score: how much the value falls with the pod on the node
//	                                                  └─► Reserve: which device a share is put on
//
// A generation is made at certain numbers of arrivals, by the attempt that reaches one; so equal input gives equal
// decisions, whatever the speed of the machine.
package deviceshare
