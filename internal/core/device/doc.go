// Package device is the account of the devices of one node (GPUs, NICs, FPGAs and types that no one has compiled in):
// what a pod asks of them, what each has free, and which ones are chosen.
//
//	Pod ──NewRequest──► Request (parts by container)          Spec ──NewInventory──► Inventory (links, places)
//	                       │                                                            │
//	                       └──► bundles: what falls on one device ─┐     holdings ──► View (free, used, holders)
//	                                                               ▼                    ▼
//	                                              Search: sets of devices in the order of their Keys
//
// Amounts are integers. Bytes are the only account of GPU memory; percent of it are converted on the device. All names
// of GPUs debit one vector, so that whole GPUs, shares and slices never overlap.
//
// A set of devices is better by the slowest link of its best ring, then by the sum of its links, by the distance of its
// NICs, and so on (Keys). Tables for each kind of server hold all sets of up to 16 devices in that order. Of more
// devices, those that nothing distinguishes count as one, a ring is the weakest link of all in its set, and what is
// left over is valued by its links alone; where there are more than 50,000 sets, those of close devices are looked at.
package device
