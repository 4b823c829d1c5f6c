// Package doctor checks a machine, or the API objects of a node, and reports what prevents Tenon from pinning pods to
// their CPUs there: each finding with the observed value and its source, the consequence, and one remedy.
//
//	files below a host.Root ─┐
//	processes (proc)         ├─► Machine ─► []Finding ─► table, JSON; exit code 5 where something fails
//	answers of runtime, agent┘
//	Node, NodeResourceTopology ─► Node ──┘
//
// Nothing is written and no program is started. What cannot be read is reported as unknown: it is never a pass.
package doctor
