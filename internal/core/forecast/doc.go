// Package forecast estimates when pods that wait can start: it plays the ends of pods that run forward in time.
//
//	run times: declared, else learned ─► ends of what runs ─┐
//	the queue, in the scheduler's order ────────────────────┼─► Run ─► a range for each unit, and what it waits for
//	a Cluster: copies of all accounts ──────────────────────┘
//
// # Input and output
//
// A unit is a pod, or the pods of a gang that start together. A unit that runs has a range in which it ends; one that
// waits has a range for how long it will run. The Cluster starts a unit as a whole or not at all, with the filters,
// quotas and accounts of the scheduler, and releases what a unit holds. The output is the earliest start of each unit
// that waits, as a range, and the units after whose end it starts.
//
// # The idea
//
// Nothing changes between two ends. So Run goes from end to end; after each it tries all units that wait, in the order
// of the queue, each beside those that started before it. It does so twice: once as if each unit ended as early as it
// may, once as late. If all times are exact, as declared ones are, the second pass is left out. A shorter run of one
// unit can make another one start later, so the range of a unit is the smaller and the larger of both starts. It is an
// estimate, not a bound.
//
// A unit whose end is not known never ends. A unit that starts at no end of another has an unknown start.
//
// # Cost
//
// Two passes, and in each a trial of each kind of unit after each end. Units of one kind ask for the same: once one of
// them did not fit, no other is tried until the next end. The caller bounds the time, of which each pass has half. What
// only the first pass found has no latest start; what neither found is counted.
package forecast
