// Package explain is the answer to "why is this pod where it is, or nowhere": one object for every surface.
//
//	findings per node ─► New ─► Pod ─► diagnostics API (JSON) ─► command line, console
//
// A Pod contains the refusals (obstacles, counted by code), the smallest sets of codes that keep it from a node
// (minimal sets), the refusal that must be reported first (root cause), and per node what it has and what the pod
// needs. For a bound pod it contains its node and how that node was chosen. Fields are only ever added.
package explain
