// Command compare measures tenon-scheduler beside the stock kube-scheduler of the same Kubernetes version, each a
// process of its own, on one embedded control plane, in interleaved rounds of one run.
//
//	compare --stock bin/kube-scheduler --tenon bin/tenon-scheduler [--nodes 1000,5000] [--pods 5000] [--rounds 3]
//	compare --suite quota --tenon bin/tenon-scheduler --go-tests bin [--nodes 1000] [--pods 5000] [--rounds 3]
//
// The suite quota measures tenon-scheduler's default profile beside the same one without ElasticQuota, and runs Go
// benchmarks of the parts.
//
//	compare --suite gang --stock bin/kube-scheduler --community bin/scheduler-plugins --tenon bin/tenon-scheduler
//
// The suite gang measures gangs in tenon-scheduler, in kube-scheduler with its gates and in scheduler-plugins, and
// plain pods in tenon-scheduler without and with Coscheduling.
//
//	compare --suite device --stock bin/kube-scheduler --tenon bin/tenon-scheduler
//
// The suite device measures plain pods in both, and in tenon-scheduler plain pods and pods with GPUs, on nodes with
// GPUs.
//
//	compare --suite reservation --tenon bin/tenon-scheduler --go-tests bin [--nodes 1000] [--pods 5000] [--rounds 3]
//
// The suite reservation measures plain pods in a cluster without Reservations and in one with 200 that are for other
// pods.
//
//	compare --suite load --tenon bin/tenon-scheduler [--nodes 1000] [--pods 2000] [--rounds 5]
//
// The suite load measures plain pods without and with LoadAwareScheduling, on nodes that report each minute.
//
//	compare --suite backlog --stock bin/kube-scheduler --tenon bin/tenon-scheduler [--nodes 1000,5000]
//
// The suite backlog measures an open loop of plain pods without other pods, beside pods that fit nowhere, and while
// nodes and bound pods change besides.
//
//	compare --suite workloads --stock bin/kube-scheduler --tenon bin/tenon-scheduler [--nodes 1000,5000]
//
// The suite workloads measures bursts of 50, 200 and 1,000 alternating sizes and ReplicaSets, and pods that have no
// ranking: spread by a constraint that must hold, one on each node, or with volumes.
//
//	compare --suite claims --stock bin/kube-scheduler --tenon bin/tenon-scheduler [--nodes 1000] [--pods 5000]
//
// The suite claims measures plain pods without and with ResourceSlices on the nodes, beside tenon-scheduler with
// --ignore-claims, and pods with a ResourceClaim each in both.
//
//	compare --suite start --stock bin/kube-scheduler --tenon bin/tenon-scheduler [--others bin/before] [--rounds 5]
//
// The suite start measures the time from the start to the first bind, the scheduler's CPU until then and until all pods
// are bound, and its memory, on servers of one kind and of many, without and with Devices.
//
// Closed bursts: all pods exist before the scheduler starts; bind times come from a watch. Open loop: a warm scheduler
// gets pods at a fixed rate and latency counts from each pod's due time. CPU is user + system time of the scheduler's
// process and of the control plane's between the first and the last bind. Ratios are formed within a round; the table
// shows the median of ratios. Every second round goes through the contenders in the opposite order.
package main
