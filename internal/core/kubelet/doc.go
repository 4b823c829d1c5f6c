// Package kubelet predicts what the kubelet of a node answers to a pod, and what it gives it.
//
//	Node (machine, settings, what is registered) ─► State (what is given to whom) ─ Admit(pod) ─► State, Placement | Refusal
//
// It holds the state of the kubelet's CPU manager (static), memory manager (Static) and device manager, generates their
// hints, merges them by package hint, and allocates as they do: the same verdict, mask, CPU ids, memory blocks and
// device counts, version by version. States are immutable values.
package kubelet
