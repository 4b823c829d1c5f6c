// Package schedperf runs upstream's scheduler_perf harness with Tenon's plugins beside the stock profile:
//
//	go test -run '^$' -bench . -benchtime 1x -perf-scheduling-label-filter performance
//
// The test binary stands in for the etcd program that the harness looks for in PATH.
//
// The harness has cases of gangs (podgroup, workload_preemption), which switch the feature gate GenericWorkload on.
// Tenon's Coscheduling does not run beside that gate, and could not run in the harness either: a scheduler whose
// NextEntity is to be replaced before it runs is out of reach.
package schedperf
