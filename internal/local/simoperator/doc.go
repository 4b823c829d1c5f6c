// Package simoperator simulates the operators of Kubeflow, Ray, Spark, JobSet and LeaderWorkerSet on a local cluster.
//
// It installs definitions of their kinds without a schema, and creates what the operators create of an object: pods,
// or the Jobs, StatefulSets and objects of other kinds that lead to pods.
// The table of core/workload says which pods an object has, with their names and labels. This package adds what the
// table has no need to know: the objects between an object and its pods, and the order in which they are created.
// It writes nothing about gangs, no status, and restarts nothing that failed.
//
//	object ─ rule.Plan ─► sets of pods ─ wanted ─► children, each with its owner
//	                                                 └─ created when what they wait for runs; deleted when not wanted
//
// All objects are looked at again whenever one of them, or one of their pods, changes. A child that exists is not
// created twice, for its name follows from its owner.
package simoperator
