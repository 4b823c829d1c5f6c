package usage

import (
	"bytes"
	"os"
	"path"
	"time"

	"github.com/tenon-project/tenon/internal/core/window"
)

// group is a cgroup that is measured.
type group struct {
	at                  string // its path below the root of the tree
	cpu, current, stats file
	v1                  bool
	counter, glanced    window.Counter
	used                Amounts
	hasMemory, tried    bool
	since               time.Time // of the first measurement
	averages            averages
	throttle            throttle
}

// averages are the averages of a group or of the node over one time.
type averages struct{ cpu, memory, cache window.Mean }

func (a *averages) add(span time.Duration, at time.Time, used Amounts) {
	a.cpu.Add(span, at, used.MilliCPU)
	a.memory.Add(span, at, used.MemoryBytes)
	a.cache.Add(span, at, used.CacheBytes)
}

// over returns the averages at a time; false without samples.
func (a *averages) over(now time.Time) (out Amounts, ok bool) {
	if out.MilliCPU, ok = a.cpu.At(now); !ok {
		return out, false
	}
	out.MemoryBytes, _ = a.memory.At(now)
	out.CacheBytes, _ = a.cache.At(now)
	return out, true
}

// newGroup returns a group that was not read yet.
func newGroup(at string, v1 bool) *group {
	const base = "sys/fs/cgroup"
	g := &group{at: at, v1: v1}
	if v1 {
		g.cpu.name = path.Join(base, "cpuacct", at, "cpuacct.usage")
		g.current.name = path.Join(base, "memory", at, "memory.usage_in_bytes")
		g.stats.name = path.Join(base, "memory", at, "memory.stat")
		return g
	}
	g.cpu.name = path.Join(base, at, "cpu.stat")
	g.current.name = path.Join(base, at, "memory.current")
	g.stats.name = path.Join(base, at, "memory.stat")
	return g
}

func (g *group) close() {
	g.cpu.close()
	g.current.close()
	g.stats.close()
}

// read measures the group; false when its files are gone, or are read for the first time. The memory that was read last
// counts unless it is to be read too.
func (g *group) read(root *os.Root, buf []byte, now time.Time, memory bool) bool {
	nanoseconds, ok := g.cpuTime(g.cpu.read(root, buf))
	if !ok {
		g.counter = window.Counter{}
		return false
	}
	if (memory || !g.hasMemory) && !g.readMemory(root, buf) {
		return false
	}
	milli, ok := g.counter.Advance(now, nanoseconds)
	if !ok {
		return false
	}
	if g.used.MilliCPU = milli; g.since.IsZero() || now.Before(g.since) {
		g.since = now
	}
	return true
}

// cpuTime reads the CPU time that the group has used, in nanoseconds.
func (g *group) cpuTime(text []byte) (int64, bool) {
	if g.v1 {
		n, _, ok := number(text)
		return n, ok
	}
	micro, ok := field(text, "usage_usec ")
	return micro * 1000, ok && micro < 1<<53
}

func (g *group) readMemory(root *os.Root, buf []byte) bool {
	current, _, ok := number(g.current.read(root, buf))
	if !ok {
		return false
	}
	text := g.stats.read(root, buf)
	prefix := ""
	if g.v1 {
		prefix = "total_"
	}
	inactive, hasInactive := field(text, prefix+"inactive_file ")
	active, hasActive := field(text, prefix+"active_file ")
	if !hasInactive || !hasActive {
		return false
	}
	cache := min(current, inactive+active)
	g.used.MemoryBytes, g.used.CacheBytes, g.hasMemory = current-cache, cache, true
	return true
}

// busy reads a line of /proc/stat, without its name: the CPU time in user, nice, system, irq and softirq, in
// nanoseconds. The kernel counts hundredths of a second.
func busy(line []byte) (nanoseconds int64, ok bool) {
	const user, nice, system, irq, softirq, fields = 0, 1, 2, 5, 6, 7
	for i := range fields {
		n, rest, has := number(line)
		if !has {
			return 0, false
		}
		line = rest
		switch i {
		case user, nice, system, irq, softirq:
			nanoseconds += min(n, 1<<36) * 10_000_000
		}
	}
	return nanoseconds, true
}

// eachCPU calls f for the lines of /proc/stat that are about CPUs: -1 for all together.
func eachCPU(text []byte, f func(cpu int, line []byte)) {
	for bytes.HasPrefix(text, []byte("cpu")) {
		line := text[len("cpu"):]
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			return // cut off
		}
		line, text = line[:end], line[end+1:]
		if len(line) > 0 && line[0] == ' ' {
			f(-1, line)
		} else if id, rest, ok := number(line); ok {
			f(int(id), rest)
		}
	}
}

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
	// Throttled is for how long pods were at their CPU limits since the Sample memoryTicks before, by UID. In a Sample
	// it has every fifth of them; none that were not throttled.
	Throttled map[string]time.Duration
	// NUMA are the NUMA nodes of the machine, by dense index. Empty while the machine is not known.
	NUMA []Amounts
	// MemoryPressure is the share of the last 10 seconds, in hundredths of a percent, in which all tasks of the node
	// that could run waited for memory; 0 where the kernel does not say. Tasks of one group that is at its own limit do
	// not raise it while others run.
	MemoryPressure int64
}
