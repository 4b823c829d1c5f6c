// Package app is tenon-scheduler: kube-scheduler, with its flags and configuration file, and Tenon's plugins. Without
// --config the profile is upstream's default one plus ours, under the names of --serve-scheduler-names. It gives the
// scheduling core its clients, accounts and options, and wires what answers questions about it:
//
//	sched/core              kube-scheduler with all that surrounds it
//	sched/diag/refusals     refusals reported by their root cause
//	sched/follow            what becomes of bound pods
//	sched/diag              diagnostics beside metrics and health, with the endpoints that plugins mount
//
// Package sched/core builds kube-scheduler with these parts around it, and says in which order.
//
// The events of objects go the other way: each one reaches the accounts first, then the scheduler's cache and the log
// of changed nodes, and only then the queue. So a hint that is asked about an event finds the accounts as the next
// attempt of the pod will.
//
// Questions (explain, whatif), and explanations of refusals that are made beside the scheduling loop, have profiles of
// their own on snapshots of their own, made from the same factories when the first one comes. They share the accounts
// with the scheduler that runs, read them, and reserve on trial alone.
package app
