// Package app is tenon-scheduler: kube-scheduler, with its flags and configuration file, and Tenon's plugins. Without
// --config the profile is upstream's default one plus ours, under the names of --serve-scheduler-names. It wires what
// surrounds the scheduling core:
//
//	sched/upstream/hooks    accounts before the queue, no pod before all is known or while too many Bindings are on
//	                        their way
//	sched/upstream/ranking  a ranking of the nodes for equal pods
//	sched/diag/refusals     refusals reported by their root cause
//	sched/follow            what becomes of bound pods
//	sched/diag              diagnostics beside metrics and health, with the endpoints that plugins mount
package app
