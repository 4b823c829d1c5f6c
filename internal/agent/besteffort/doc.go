// Package besteffort makes the best-effort pods of a node give way to the others, as the NodeSLO of the node says.
//
//	NodeSLO ────────────┬─► Suppressor (core/suppress) ─► desired.Limit ─► apply.Engine
//	usage.Collector ────┴─► Evictor (core/suppress) ─► Eviction ─► status.Reporter: deletes the pod
//
// It decides nothing that core/suppress does not: it adds up what pods use and request, and hands the limit to the
// engine, whose table and order of writes hold for it too. Without a NodeSLO, or with one that is not enabled,
// best-effort pods have no limit and none is evicted. While measurements are missing, the last limit counts.
//
// The Evictor chooses pods that end already first, and waits until memory has been measured after the last of them has
// gone. Only pods with the label of the QoS class BE are evicted: those of Kubernetes' class BestEffort without it are
// suppressed, but may be programs that the node needs.
package besteffort
