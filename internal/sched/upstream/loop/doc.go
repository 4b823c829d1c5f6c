// Package loop is kube-scheduler as other packages use it: the steps of its scheduling loop, its parts, and New, which
// makes one.
//
//	Next (package podqueue) ──► Schedule ──► a Result: the pod is reserved and bound
//	                               └───────► an error: Fail reports it, and queues the pod again
//
// The loop calls the steps as functions, which layers surround. Core has the parts that gangs and Reservations use.
package loop
