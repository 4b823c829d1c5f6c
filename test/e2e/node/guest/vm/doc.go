// Package vm runs small Linux machines with NUMA nodes under QEMU's own emulation: no root, no KVM, nothing of the host
// is touched.
//
//	Image (kernel, first root, disk) ─ Prepare: boot once, run a script, save ─► snapshot
//	                                                                              │ copy
//	                                   Start ◄─────────────────────────────────────┘ ~1 s instead of ~15 s
//	                                     │ virtio port: scripts in, output out (Guest.Run)
//	                                     ▼
//	                                   Guest: a process that dies with the test
//
// A second, read-only disk carries what changes from run to run, so that a new program needs no new snapshot.
package vm
