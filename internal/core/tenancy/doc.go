// Package tenancy computes what each pod on a node has of the node's kubelet: exclusive CPUs, memory blocks and
// devices.
//
//	Report (what the node says) ─┐
//	Tenants (the bound pods) ────┴─ New ─► State: one Assignment per pod, and the kubelet.State with all of them
//
// Every pod that takes part has one Source, the surest that is available:
//
//	Reported   the node's report has the pod's whole placement
//	Pinned     the report has the pod's CPUs or devices alone; package kubelet computes the rest
//	Predicted  the scheduler predicted the placement when it bound the pod, and no report has the pod yet
//	Computed   nothing is known of the pod; package kubelet computes its placement
//
// A kubelet's answer depends on its state alone, so the placements of Reported and Predicted pods are applied in any
// order. Pods that are Pinned or Computed are then admitted one by one, in the order of their creation:
//
//	empty ─ Reported ─► confirmed ─ Predicted ─► base ─ Pinned, Computed, by creation ─► the kubelet's state
//
// Predictions build on each other. When a report contradicts one of them, all predictions that are older than the
// report are void, and their pods become Computed.
//
// Only the order in which the kubelet admits unreported pods remains unknown. Unconfirmed lists these pods; package
// place tries every order of a few of them, and ranks nodes with more of them last.
//
// Change updates a State by one pod. It costs one addition or removal, and one admission for each Pinned or Computed
// pod that is admitted after the changed one. Its result equals New's; where it cannot guarantee that, it declines.
package tenancy
