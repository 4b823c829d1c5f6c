// Package host reads what a machine is from the files under a Root: CPUs, caches, packages and NUMA nodes out of
// sysfs, memory and architecture out of procfs, boot id and cgroup layout.
//
//	Root{Dir}/sys/devices/system/cpu    ─┐
//	Root{Dir}/sys/devices/system/node   ─┼─► topo.Spec ─► topo.Machine, and Notes on what the files left open
//	Root{Dir}/proc                      ─┘
//
// A Root is "/" on a real node, a generated tree on a simulated one and an unpacked capture in tests. Nothing outside
// of the Root is ever read: links that lead out of it are errors. Missing values are filled by documented rules and
// reported in a note; contradictions are an error that names the file.
package host
