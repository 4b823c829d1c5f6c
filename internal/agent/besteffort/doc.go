// Package besteffort makes the best-effort pods of a node give way to the others, as the NodeSLO of the node says.
//
//	NodeSLO ────────────┐
//	usage.Sample ───────┴─► Suppressor (core/suppress) ─► desired.Limit ─► apply.Engine
//
// It decides nothing that core/suppress does not: it adds up what other pods use, and hands the limit to the engine,
// whose table and order of writes hold for it too. Without a NodeSLO, or with one that is not enabled, best-effort pods
// have no limit. While measurements are missing, the last limit counts.
package besteffort
