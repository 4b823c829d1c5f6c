// Package claim ranks the devices that ResourceClaims of a pod can get on one node. It allocates nothing: an allocator,
// which knows requests, selectors, constraints, counters and taints, accepts or refuses each proposal.
//
//	first answer of the allocator ──► Choose: sets of devices like those, in the order of their keys
//	                                    │
//	                                    ├──► Ask: the allocator again, without the devices that are hidden
//	                                    ▼
//	                                  the best answer; the first one where nothing is known of the devices' places
//
// # What may be hidden
//
// An answer of the allocator about fewer devices is also an answer about all of them if these rules hold (hideable):
//
//   - A device that is allocated and uses up counters remains: what is left of the counters is computed from it.
//   - A device that a request for all devices has got remains: such a request must get all that it selects.
//   - If an alternative asks for all devices, nothing is hidden: it may have failed because one of them is allocated.
//   - Only pools that have a device in an answer are narrowed: the allocator found them whole and valid. Without the
//     device that makes a pool invalid it would be a valid one.
//
// The caller must keep the slices of hidden devices, which tell whether a pool is complete, and must refuse answers
// with a later alternative than the first answer has.
//
// # The order of answers
//
// An answer is better if the rest of the pod fits with it; then by fewer devices of an unknown NUMA node, where others
// have a known one; by fewer NUMA nodes for devices and rest together; by the weakest link between devices of one kind,
// the sum of these links, and the links between devices of different kinds; by less that it breaks up that was whole
// (cards, root complexes, NUMA nodes), and by less that it leaves over there. In the end the order of the allocator
// counts. So the first answer is kept where nothing is known.
//
// # Cost
//
// Choose looks at no more than mostSets sets of devices and asks no more than mostAsks times. To find out whether a
// required alignment is possible, Align and then Choose may ask once more for each set of NUMA nodes, twice where
// devices have no known NUMA node: where Align finds one, Choose does.
package claim
