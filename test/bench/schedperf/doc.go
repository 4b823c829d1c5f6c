// Package schedperf runs upstream's scheduler_perf harness with Tenon's plugins beside the stock profile:
//
//	go test -run '^$' -bench . -benchtime 1x -perf-scheduling-label-filter performance
//
// The test binary stands in for the etcd program that the harness looks for in PATH.
//
// Kubernetes 1.36.3 has no cases of gangs there: its harness serves scheduling.k8s.io/v1alpha2 for a case that switches
// the feature gate GenericWorkload on, and none does. Coscheduling could not run in it either: a scheduler whose
// NextPod is to be replaced before it runs is out of reach.
package schedperf
