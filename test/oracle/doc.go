// Package oracle proves internal/core/kubelet against the kubelet itself.
//
//	Draw ─► Case (machine, settings, pods that come and go)
//	           ├─► State.Admit ───────────────┐
//	           └─► kubelet (a program) ───────┴─► Compare ─► equal | documented | undocumented, shrunk
//
// The folder kubelet is a module of its own, with one module file per kubelet minor: a program that holds the managers
// of the kubelet and nothing of ours. Both sides read the same v1.Pod; ours goes through internal/kube/convert.
// Machines, settings and pods are drawn from a seed, each admission is put to both sides, and a difference is shrunk to
// a small case. The runs require the build tag oracle.
package oracle
