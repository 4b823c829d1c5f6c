// Package oracle proves internal/core/kubelet against the kubelet itself.
//
//	Draw ─► Case (machine, settings, pods that come and go)
//	           ├─► State.Admit ───────────────┐
//	           └─► k136, k135, … (a program) ─┴─► Compare ─► equal | documented | undocumented, shrunk
//
// The folders k136 to k133 are modules of their own: each is a program that holds the managers of one kubelet minor and
// nothing of ours. Machines, settings and pods are drawn from a seed, each admission is put to both sides, and a
// difference is shrunk to a small case. The runs stand behind the build tag oracle.
package oracle
