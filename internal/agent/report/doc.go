// Package report writes a node's objects to the API, above all its NodeResourceTopology: by server-side apply under one
// field manager, only when something changed, at most twelve times a minute, and never over another writer.
//
//	Changed() ─► coalesce 1 s ─► other writers? ─► equal? ─► apply at the version that was looked at ─► acknowledged
//	                               │ yes             │ yes      │ conflict: read the object, look again
//	Observe(object) ───────────────┴─ condition      └─ nothing └ other error: back off, try again
//
// The managedFields of an object name its writers. A program that owns zones, attributes or policies (NFD, a topology
// exporter) keeps them: the agent applies the rest. A program that owns one of the annotations (koordlet) keeps the
// agent from the whole object, as long as the program has written within the last ten minutes, and the Node's condition
// tenon.sh/TopologyWriterConflict says so. Edits by a person with kubectl are reverted. A Device that another program
// writes is left alone until it is deleted. A Numatopology is replaced as a whole: see NumatopologyReporter. The status
// of a NodeMetric is written where the object exists, on its own interval: see MetricReporter.
package report
