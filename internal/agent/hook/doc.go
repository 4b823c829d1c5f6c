// Package hook is what happens to containers on their way through a container runtime, whichever way the runtime tells
// of it: the decisions of apply.Engine in the terms of runtimes.
//
//	NRI plugin (nri) ──────────────────────┐
//	                                       ├─► Handler ─► apply.Engine ─► cgroup tree
//	CRI proxy (criproxy) ─► hooks socket ──┘       │
//	                                               └─► blocked containers: Events, metrics
//
// A pod that uses nothing of Tenon is moved between the shared pools and is never held back. A pod that does use it
// starts with what was decided for it, or not at all.
package hook
