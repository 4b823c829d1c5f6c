// Package report writes a node's NodeResourceTopology to the API: by server-side apply, only when something changed, at
// most twelve times a minute, and never over another live writer.
//
//	Changed() ─► coalesce 1 s ─► claim ─► equal? ─► apply ─► acknowledged
//	                               │        │ yes      │ conflict: look again who owns what
//	Observe(object) ───────────────┘        └─ nothing └ error: back off, try again
//
// The claim follows from the object's managedFields. Nobody else: everything is ours. Somebody else owns zones or
// attributes (NFD, a topology exporter): our numbers travel in the annotations alone. Somebody else owns the annotations
// (koordlet): the agent stops writing, and the Node's condition tenon.sh/TopologyWriterConflict says so.
package report
