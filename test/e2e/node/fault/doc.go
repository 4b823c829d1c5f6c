// Package fault breaks what the agent stands on, and looks at what the containers of the node may do meanwhile: no
// container runs outside its set for longer than one period of reconciliation, no bound one starts unenforced, all
// heals by itself, and each fault is reported by a metric and an Event.
//
//	fault ─► node at work (pods come and go) ◄─ watch: every container's set, all the time ─► figures
//
// Faults of the runtime, of processes and of cgroups happen on a stage: containerd, runc and the agent as processes.
// Those of the API server, of CPUs and of time happen to an agent in this process over a simulated kernel, whose every
// change is seen, with a clock of its own.
//
// The tests end in a table of figures. They need the tag e2e_node.
package fault
