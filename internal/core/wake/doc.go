// Package wake decides which refused pods are tried again after an event. The rules only save work: a pod that an event
// may let fit is never left asleep.
//
//	event ─► Counts: may it let any refused pod fit?
//	      └► Refusal.After(event), for each refused pod ─┬► Sleep
//	                                                     ├► Ask      the hints of the plugins that refused it
//	                                                     └► Compare  what it asks for with the room on one node
//
// A pod that only the plugin of its gang refused waits for its siblings: no event of another pod is of use for it.
//
// A pod that each node refused by itself, and for its amounts, may fit after another pod has left a node, on that node
// alone. There, what it asks for is compared with what is free once pods of lower priority have left. If the pod that
// left is a member of a gang, pods may be evicted on other nodes that had to go with it, so nothing is compared.
package wake
