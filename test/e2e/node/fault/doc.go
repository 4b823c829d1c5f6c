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
//
// # Faults
//
// test/e2e/node/fault breaks what the agent depends on while bound pods, pods of the pools and plain pods come and go,
// and a watch reads every container's set each two milliseconds. No bound container ever begins outside its set; none
// is outside it, and no other one on its CPUs, for longer than one period of reconciliation (one second there), or than
// the agent was away; all heals by itself. The run ends in a table of figures: how often, for how long, healed after,
// and the metric and the Event that showed it.
//
//   - agent killed at 50 random moments; runtime restarted; NRI socket gone; agent too slow for the runtime; kubelet
//     restarted; cgroups changed by hand; disk full; a second agent: on the stage
//   - API server gone for ten minutes; CPUs offline and back; and again disk full, a second agent, changes by hand: an
//     agent in the test's process over the simulated kernel, v1 and v2, each change of which is seen; the clock is the
//     test's
//
// Once in some 300 ends of a plugin containerd 2.4 stops to answer calls for good. The case that kills the agent starts
// it anew then, says so in the table, and fails when it happens twice.
package fault
