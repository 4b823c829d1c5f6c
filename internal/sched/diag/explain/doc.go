// Package explain is the answer to "why is this pod where it is, or nowhere": one object for every surface.
//
//	findings per node ─► New ─► Pod ─► diagnostics API (JSON) ─► command line, console
//
// A Pod says what refused it (obstacles, counted by code), which smallest sets of codes stand between it and a node
// (minimal sets), which of all of these a person must hear first (root cause), and per node what it has and what the
// pod needs. For a bound pod it says where it is and how that node was chosen. Fields are only ever added.
package explain
