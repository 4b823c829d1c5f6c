// Package hook handles the lifecycle steps of containers that a container runtime reports over any protocol: it
// translates the decisions of apply.Engine into the terms of runtimes.
//
//	NRI plugin (nri) ──────────────────────┐
//	                                       ├─► Handler ─► apply.Engine ─► cgroup tree
//	CRI proxy (criproxy) ─► hooks socket ──┘       │
//	                                               └─► blocked containers: Events, metrics
//
// A pod that uses no Tenon resources moves between the shared pools and is never rejected. A pod that does use them
// starts with its allocation, or not at all.
package hook
