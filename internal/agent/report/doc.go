// Package report writes a node's NodeResourceTopology to the API: by server-side apply, only when something changed, at
// most twelve times a minute, and never over another live writer.
//
//	Changed() ─► coalesce 1 s ─► claim ─► equal? ─► apply ─► acknowledged
//	                               │        │ yes      │ conflict: look again who owns what
//	Observe(object) ───────────────┘        └─ nothing └ error: back off, try again
//
// The claim follows from the object's managedFields. No other manager: everything is ours. Another manager owns zones
// or attributes (NFD, a topology exporter): our numbers are only in the annotations. Another manager owns the
// annotations (koordlet): the agent stops writing until that writer has been silent for ten minutes, and the Node's
// condition tenon.sh/TopologyWriterConflict says so.
package report
