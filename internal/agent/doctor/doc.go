// Package doctor looks at a machine, or at what the API says of a node, and tells what keeps Tenon from holding pods on
// their CPUs there: each finding with what was found and where, why it matters, and one remedy.
//
//	files below a host.Root ─┐
//	processes (proc)         ├─► Machine ─► []Finding ─► table, JSON; exit code 5 where something fails
//	answers of runtime, agent┘
//	Node, NodeResourceTopology ─► Node ──┘
//
// Nothing is written and no program is started. What cannot be looked at is told as unknown: it is never a pass.
package doctor
