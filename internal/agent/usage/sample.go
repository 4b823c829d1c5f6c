package usage

import "time"

// Amounts are what something uses.
type Amounts struct {
	MilliCPU int64
	// MemoryBytes is without page cache, CacheBytes the page cache.
	MemoryBytes, CacheBytes int64
}

func (a *Amounts) add(b Amounts) {
	a.MilliCPU += b.MilliCPU
	a.MemoryBytes += b.MemoryBytes
	a.CacheBytes += b.CacheBytes
}

// without returns a less b, 0 where b is more.
func (a Amounts) without(b Amounts) Amounts {
	return Amounts{
		max(0, a.MilliCPU-b.MilliCPU), max(0, a.MemoryBytes-b.MemoryBytes), max(0, a.CacheBytes-b.CacheBytes),
	}
}

// Sample is what a node used in the last second before Time.
type Sample struct {
	Time time.Time
	// Node is all of it, Capacity what the node has: its online CPUs, and its memory in MemoryBytes.
	Node, Capacity Amounts
	// Average is Node over the time of the policy of the last Status, DefaultAverage before.
	Average Amounts
	// System is what belongs to no pod and to no application of Hosts.
	System Amounts
	// Pods are those that have a cgroup and were there a tick earlier too, by the UID that the node knows them by. Pods
	// that are gone from the API are here as long as they have a cgroup.
	Pods map[string]Amounts
	// Hosts are the applications of SetHosts, by name.
	Hosts map[string]Amounts
	// NUMA are the NUMA nodes of the machine, by dense index. Empty while the machine is not known.
	NUMA []Amounts
	// MemoryPressure is the share of the last 10 seconds, in hundredths of a percent, in which all tasks of the node
	// that could run waited for memory; 0 where the kernel does not say. Tasks of one group that is at its own limit do
	// not raise it while others run.
	MemoryPressure int64
}
