// Package usage measures what a node, its pods and its host applications use: each second, from files under a Root.
//
//	/proc/stat, meminfo, pressure/memory ──┐
//	sys/devices/system/node/nodeN/meminfo ─┼─► Collector ─► Sample ─► Options.Sampled, Read
//	cgroups of pods and applications ──────┘        └─► core/window: Series, Mean ─► Report
//
// Nothing is started, and nothing is asked over a network. Files are kept open: a tick reads each from its beginning,
// and allocates nothing for a pod that it knows. The CPU time of all pods is read each second; their memory, which the
// kernel has to add up, each fifth second, a fifth of the pods at a time. Each half second, a glance at the node and a
// few of the pods says whether others have begun to use more.
//
// Of interrupts on the CPUs that a pod has alone, it counts those between two reports: see /proc/interrupts.
//
// CPU of a node is its time in user, nice, system, irq and softirq; what a hypervisor took is not used by the node.
// Memory is what is left without page cache: MemTotal less MemAvailable of the node, current less inactive_file and
// active_file of a group. The cache is kept beside it.
//
// What cannot be read is not guessed: a pod whose files are gone is not in the Sample, and without /proc/stat or
// /proc/meminfo the last Sample remains. Its Time says how old it is.
package usage
