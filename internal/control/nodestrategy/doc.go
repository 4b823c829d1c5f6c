// Package nodestrategy makes the objects of each Node what the strategy of its cluster says.
//
//	slo-controller-config ─┬─► NodeMetric.spec   how use is measured; the agent of the node writes the status
//	 labels, annotations   ├─► NodeSLO.spec      what the agent does for latency
//	   of the Node ────────┘
//	NodeMetric.status, pods ─► core/colocation ─► Node.status: batch-cpu, batch-memory, mid-cpu, mid-memory
//
// Everything is written by server-side apply under one field manager, only on change, and never by force: where another
// manager has a field, as while a cluster moves from Koordinator, the object is left to it. The amounts of a Node go
// when its strategy is not enabled, or its report is missing or too old. When they were written is read from the Node,
// so that a restart grants nothing sooner.
package nodestrategy
