// Package schedperf runs upstream's scheduler_perf harness with Tenon's plugins beside the stock profile:
//
//	go test -run '^$' -bench . -benchtime 1x -perf-scheduling-label-filter performance
//
// The test binary stands in for the etcd program that the harness looks for in PATH.
package schedperf
