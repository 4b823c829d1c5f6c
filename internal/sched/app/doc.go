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
//
// # The order of the parts
//
// Where one part wraps another, the order decides what each of them sees. A pod goes through these on its way:
//
//	next pod    queue ─► share of gangs ─► gate ─► siblings of the pod before (coscheduling.Rounds)
//	cycle       record of decisions ─► Rounds ─► rejections by the API server ─► remembered refusals ─► kube-scheduler
//	profile     ranking.Profile ─► filters inside Reservations ─► kube-scheduler's framework
//	failure     Reservations ─► Rounds ─► refusals.Reporter ─► kube-scheduler's handler
//
// The events of objects go the other way: each one reaches the accounts first, then the scheduler's cache and the log
// of changed nodes, and only then the queue. So a hint that is asked about an event finds the accounts as the next
// attempt of the pod will.
//
// Questions (explain, whatif), and explanations of refusals that are made beside the scheduling loop, have profiles of
// their own on snapshots of their own, made from the same factories when the first one comes. They share the accounts
// with the scheduler that runs, read them, and reserve on trial alone.
package app
