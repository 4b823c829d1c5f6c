// Package gang decides when pods that must start together may start. A gang needs a minimum of members; gangs that list
// each other are one group, which starts as a whole.
//
//	PodGroup ─┐
//	pods ─────┼─► State ─► gate: may members be tried?
//	attempts ─┤           ─► round: which reservations end, which members may be bound
//	time ─────┘
//
//	Pending ──Place──► Waiting ──all gangs have their minimum──► Allowed ──► Bound
//	   ▲                  │                                         │
//	   └──Lose── Returning ◄── a gang cannot be completed           └──Lose──► Pending
//
// A State has no clock and no goroutine: events go in, and the Effects that come out are for the caller to carry out.
// The source is seed 003 with the scheduling cycle of Koordinator's release 0.7; the round belongs to the group, and
// ends in the step in which its last member was tried or left.
//
// # Progress
//
// Step is what a PodGroup's status says: a function of what it said before and of the pods that exist, ended ones too.
// Nothing is counted up and down.
//
//	Pending ─► PreScheduling ─► Scheduling ─► Scheduled ◄─► Running ─► Finished, Failed
//	 no pods    none has a node   some have      the minimum has a node, or runs
//	                                              └─► Unknown: fewer than the minimum are left, and others wait
//
// A PodGroup that was Scheduled once never goes back to the left of it while it has pods, as a gang that has started
// once stays started. A set of pods that follows the end of another one begins on the left again.
//
// # After a restart
//
// A State that is given pods of which some are bound does not know whether the gang has started whole. A gang of a
// Strict group was interrupted in its start, and its other members follow together or not at all, if
//
//   - fewer members than the minimum are bound, but as many as the minimum exist, and
//   - a member that is not bound existed when the first of them was bound: a replacement is created after the start.
//     Where no bound member says when that was, each other member counts as that old.
//
// Otherwise, or if the PodGroup's status says that the gang has started, the others follow one by one. Where all that
// were not bound are deleted and created again before the restart, they look like replacements. Members that the
// minimum did not need and that still wait make a gang that has lost some of its minimum look interrupted: then as many
// as it lacks must fit together. If fewer members exist than the minimum, some have ended, and the others would wait
// for them for ever. The settings of the gang are those that its pods and its PodGroup have now.
package gang
