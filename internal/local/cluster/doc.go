// Package cluster starts a local cluster in the right order, watches over it, and stops it in the reverse one.
//
//	lock, ports, certificates ─ etcd, API server ─ CRDs, RBAC ─┬─ controllers
//	                                                           ├─ manager ─ webhook configurations
//	                                                           ├─ simulated nodes ─ tokens of their agents
//	                                                           └─ scheduler
//
// It also converts common errors (a second start, a full disk, a damaged folder) to texts that say what to do; see
// Fault.
package cluster
