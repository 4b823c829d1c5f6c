// Package tune sets files of the machine that have a value of their own, as the affinity of interrupts and how deep a
// CPU may sleep, while pods with exclusive CPUs ask for it, and gives each file its value back.
//
//	pods, machine ─► Settings: file, value as a function of the original ─┐
//	records: file, identity, original, written ───────────────────────────┼─► Engine ─► files, records, Findings
//	files: present value, identity ───────────────────────────────────────┘
//
// Four rules make it safe.
//
// Record before write: what a file had, and what it is to get, is in the agent's folder, synced to the disk, before the
// first write. A new agent reads it and goes on, wherever the last one was killed. Records of another boot are
// dropped and nothing is written back: the kernel has reset all of it, and numbers of interrupts have a new meaning.
//
// Function of the original: a value is computed from the original value and the exclusive CPUs of this moment, not from
// the present value. So the order of pods does not matter, and without pods the value is the original one.
//
// Respect other writers: a file that has neither its original value nor one that the Engine wrote belongs to another
// program. The Engine drops the record, leaves the file, and names the value, until pods ask for something else.
//
// Never in the way: no container waits for a file. An error is a Finding, and the file is tried again with growing
// pauses, unless the kernel says that an interrupt cannot be moved.
package tune
