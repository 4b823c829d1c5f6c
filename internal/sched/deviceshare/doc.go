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
//
// # Scores
//
// The value of a node's free GPUs is what the expected pods can still use of them; expected are pods like those that
// have arrived (internal/core/fragment). The score of a node is the change in value with the pod on it, less a cost for
// each partition that the choice breaks and for each device that is likely to fail. So a share goes where GPUs are in
// use already, and pods without GPUs avoid nodes where they would take the CPUs that free GPUs need. NormalizeScore
// gives the best node 100 and all others less, so that the weight of the plugin decides against the small preferences
// of other plugins.
//
// Koordinator's strategies LeastAllocated and MostAllocated can be chosen instead; they learn nothing.
//
// # What is shared between profiles
//
// All profiles learn together, because they place pods on the same nodes. Metrics and endpoints read nodes from a
// survey of their own, as no cycle is under way when they are asked, and change nothing of what is learnt.
package deviceshare
