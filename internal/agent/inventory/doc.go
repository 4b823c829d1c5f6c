// Package inventory finds the devices of a machine and decides which of them work: what drivers describe, and programs
// report in drop files.
//
//	sysfs, procfs ─┐                                  health by device, kept
//	NVML, program ─┼─► Driver ─► a call that may hang ─► for one boot ─► merged ─┐
//	               │    events ───────────────────────►                         ├─► []host.Dropped
//	drop files ────┴────────────────────────────────────────────────────────────┘
//
// A driver that hangs or fails makes its own devices unhealthy and holds up nothing else. A program that writes drop
// files decides itself when its devices work.
package inventory
