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
package gang
