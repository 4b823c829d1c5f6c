package usage

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/window"
)

const (
	// Interval is the default time between two ticks.
	Interval = time.Second
	// memoryTicks is in how many ticks the memory of all groups is read once.
	memoryTicks = 5
	// DefaultAverage is over which time Status averages unless its policy says another.
	DefaultAverage = 5 * time.Minute
	maxFileBytes   = 256 << 10
	mebibyte       = 1 << 20
)

// Options are what a Collector needs.
type Options struct {
	Root  host.Root
	Pods  Pods
	Agent Agent
	// Interval is the time between two ticks; 0 for Interval, with a glance in the middle between two.
	Interval time.Duration
	Clock    clock.WithTicker
}

// Pods are the pods of the node.
type Pods interface {
	// Groups writes into a map the cgroup of each pod by UID: its path below the root of the tree.
	Groups(into map[string]string)
	// Containers calls f with the UID of a pod and the cgroup of a container of it, for all of them. f returns at once.
	Containers(f func(uid, group string))
	// IsBestEffort reports whether a pod gives way to others.
	IsBestEffort(uid string) bool
}

// Agent is the agent of the node. It must not call the Collector.
type Agent interface {
	// Machine returns the node's machine.
	Machine() *topo.Machine
	// Sampled is called after each tick that made a Sample, which it must not keep.
	Sampled(*Sample)
	// Glanced is called at each glance and tick with what others use than best-effort pods, and than the System of the
	// last Sample, in milli-CPU since it was called last: it sees a load of which a tick sees a part.
	Glanced(at time.Time, milliCPU int64)
}

// Host is an application that Kubernetes does not run.
type Host struct {
	// Name, Priority and QoS are reported as the NodeSLO has them.
	Name, Priority, QoS string
	// Group is its cgroup, a path below the root of the tree.
	Group string
}

// Collector measures a node. Run does, once; the other methods are safe for concurrent use.
type Collector struct {
	o       Options
	glances bool
	root    *os.Root
	v1      bool
	buf     []byte

	stat, meminfo, pressure file
	cpu, glanced            window.Counter
	numa                    []numaNode
	numaOf                  []int // dense NUMA node of each CPU by kernel id, -1 for none
	machine                 *topo.Machine
	groups                  map[string]string
	limited                 map[string]*limited // by group
	tick                    int

	mu      sync.Mutex // guards the fields below
	average time.Duration
	sample  Sample
	sampled bool
	pods    map[string]*group
	hosts   map[string]*group
	said    []Host          // the applications of hosts, by name
	prod    map[string]bool // the pods that prodCPU and prodMem are of, by UID: those of the last Status
	history history
	refused int          // how often Status has waited for pods; patience after the first report
	fired   quiet.Counts // of the last Status, at firedAt
	firedAt time.Time
	// busy is as of the last tick, reported as of the last Status, or of the first tick.
	busy, reported busyTimes
}

// busyTimes is for how long CPUs had been busy at a time: nanoseconds by the kernel's id, -1 where that is not known.
type busyTimes struct {
	at    time.Time
	nanos []int64
}

// numaNode is a NUMA node that is measured.
type numaNode struct {
	id       int // the kernel's
	meminfo  file
	cpu      window.Counter
	nanos    int64 // of its CPUs, in this tick
	averages averages
}

// history is what the node, its system and its prod pods used. It begins at since.
type history struct {
	since            time.Time
	node, system     averages
	nodeCPU, nodeMem *window.Series
	sysCPU, sysMem   *window.Series
	prodCPU, prodMem *window.Series
}

// New returns a Collector that has measured nothing yet. An error names a Root that cannot be read.
func New(o Options) (*Collector, error) {
	layout, err := host.Cgroups(o.Root)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(o.Root.Path())
	if err != nil {
		return nil, fmt.Errorf("open machine root: %w", err)
	}
	glances := o.Interval <= 0
	if glances {
		o.Interval = Interval
	}
	shared := window.NewBuckets()
	return &Collector{
		o: o, glances: glances, root: root, v1: layout.Version == 1, buf: make([]byte, maxFileBytes),
		stat: file{name: "proc/stat"}, meminfo: file{name: "proc/meminfo"},
		pressure: file{name: "proc/pressure/memory"},
		groups:   map[string]string{}, limited: map[string]*limited{},
		pods: map[string]*group{}, hosts: map[string]*group{},
		average: DefaultAverage, sample: Sample{
			Pods: map[string]Amounts{}, Hosts: map[string]Amounts{},
			Throttled: map[string]time.Duration{},
		},
		history: history{
			nodeCPU: shared.Series(1), nodeMem: shared.Series(mebibyte),
			sysCPU: shared.Series(1), sysMem: shared.Series(mebibyte),
			prodCPU: shared.Series(1), prodMem: shared.Series(mebibyte),
		},
	}, nil
}

// SetHosts sets the applications to measure. Of those with one name the first counts.
func (c *Collector) SetHosts(hosts []Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := map[string]string{}
	c.said = nil
	for _, h := range hosts {
		if _, again := wanted[h.Name]; !again {
			wanted[h.Name], c.said = h.Group, append(c.said, h)
		}
	}
	slices.SortFunc(c.said, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	c.keep(c.hosts, wanted)
}

// Read calls f with the latest Sample, which f must not keep; false while there is none.
func (c *Collector) Read(f func(*Sample)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sampled {
		f(&c.sample)
	}
	return c.sampled
}

// Run measures until ctx ends, and returns nil then. The Collector is not usable afterwards.
func (c *Collector) Run(ctx context.Context) error {
	defer c.close()
	pause := c.o.Interval
	if c.glances {
		pause /= 2
	}
	ticker := c.o.Clock.NewTicker(pause)
	defer ticker.Stop()
	for whole := true; ; whole = !whole || !c.glances {
		now := c.o.Clock.Now()
		if whole {
			c.Tick(now)
			c.Read(c.o.Agent.Sampled)
		}
		if c.glances {
			c.Glance(now)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Collector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range []*file{&c.stat, &c.meminfo, &c.pressure} {
		f.close()
	}
	for i := range c.numa {
		c.numa[i].meminfo.close()
	}
	for _, l := range c.limited {
		l.stat.close()
	}
	c.keep(c.pods, nil)
	c.keep(c.hosts, nil)
	_ = c.root.Close()
}

// Tick measures once. Run calls it; a test may do so instead.
func (c *Collector) Tick(now time.Time) {
	clear(c.groups)
	c.o.Pods.Groups(c.groups)
	c.tick++
	c.followMachine()
	c.followLimited()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(c.pods, c.groups)
	others, isNew := c.readGroups(c.pods, c.sample.Pods, now)
	c.readThrottled(now)
	hosts, _ := c.readGroups(c.hosts, c.sample.Hosts, now)
	others.add(hosts)
	if !c.readNode(now) {
		return
	}
	before := c.sample.System.MilliCPU
	c.sample.System = c.sample.Node.without(others)
	if isNew && c.sampled { // what such a pod has used is not that of the system
		c.sample.System.MilliCPU = min(c.sample.System.MilliCPU, before)
	}
	c.sample.Time, c.sampled = now, true
	c.sample.MemoryPressure, _ = hundredths(c.pressure.read(c.root, c.buf), "full avg10=")
	h := &c.history
	if h.since.IsZero() || now.Before(h.since) {
		h.since = now
	}
	h.node.add(c.average, now, c.sample.Node)
	c.sample.Average, _ = h.node.over(now)
	h.system.add(c.average, now, c.sample.System)
	h.nodeCPU.Add(now, c.sample.Node.MilliCPU)
	h.nodeMem.Add(now, c.sample.Node.MemoryBytes)
	h.sysCPU.Add(now, c.sample.System.MilliCPU)
	h.sysMem.Add(now, c.sample.System.MemoryBytes)
	for i := range c.numa {
		c.numa[i].averages.add(c.average, now, c.sample.NUMA[i])
	}
	var prod Amounts
	for uid, used := range c.sample.Pods {
		if c.prod[uid] {
			prod.add(used)
		}
	}
	h.prodCPU.Add(now, prod.MilliCPU)
	h.prodMem.Add(now, prod.MemoryBytes)
}

// Glance measures the node and the pods that yield, and leaves the Sample as it is. Run calls it; a test may do so
// instead.
func (c *Collector) Glance(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	milli, ok := int64(0), false
	eachCPU(c.stat.read(c.root, c.buf), func(id int, line []byte) {
		if nanos, read := busy(line); id < 0 && read {
			milli, ok = c.glanced.Advance(now, nanos)
		}
	})
	milli = min(milli, c.sample.Capacity.MilliCPU) - c.sample.System.MilliCPU
	for uid, g := range c.pods {
		if !c.o.Pods.IsBestEffort(uid) {
			continue
		}
		if nanos, read := g.cpuTime(g.cpu.read(c.root, c.buf)); read {
			used, known := g.glanced.Advance(now, nanos)
			milli, ok = milli-used, ok && known // what a pod used before it was known is not that of others
		}
	}
	if ok && c.sampled {
		c.o.Agent.Glanced(now, max(0, milli))
	}
}

// keep makes groups those that are wanted, by their path.
func (c *Collector) keep(groups map[string]*group, wanted map[string]string) {
	for name, g := range groups {
		if at, ok := wanted[name]; !ok || at != g.at {
			g.close()
			delete(groups, name)
		}
	}
	for name, at := range wanted {
		if groups[name] == nil {
			groups[name] = newGroup(at, c.v1)
		}
	}
}

// readGroups measures groups into a part of the Sample, and returns their sum, and whether one of a pod that yields was
// read for the first time.
func (c *Collector) readGroups(groups map[string]*group, into map[string]Amounts, now time.Time) (
	sum Amounts, isNew bool,
) {
	clear(into)
	for name, g := range groups {
		read, first := g.read(c.root, c.buf, now, g.turn(name, c.tick)), !g.tried
		if g.tried = true; !read {
			isNew = isNew || first && c.o.Pods.IsBestEffort(name)
			continue
		}
		g.averages.add(c.average, now, g.used)
		into[name] = g.used
		sum.add(g.used)
	}
	return sum, isNew
}

// turn reports whether the memory of a group is read in a tick: each group has one of memoryTicks.
func (g *group) turn(name string, tick int) bool {
	return len(name) == 0 || (int(name[len(name)-1])+tick)%memoryTicks == 0
}

// followMachine opens the files of the NUMA nodes of another machine than before.
func (c *Collector) followMachine() {
	m := c.o.Agent.Machine()
	if m == c.machine {
		return
	}
	for i := range c.numa {
		c.numa[i].meminfo.close()
	}
	c.machine, c.numa, c.numaOf = m, make([]numaNode, m.NumNUMA()), nil
	for n := range m.NumNUMA() {
		id := m.NUMAID(topo.NUMA(n))
		c.numa[n].id = id
		c.numa[n].meminfo.name = path.Join("sys/devices/system/node", "node"+strconv.Itoa(id), "meminfo")
		for _, cpu := range m.NUMACPUs(topo.NUMA(n)).Slice() {
			kernel := m.CPUID(topo.CPU(cpu))
			for len(c.numaOf) <= kernel {
				c.numaOf = append(c.numaOf, -1)
			}
			c.numaOf[kernel] = n
		}
	}
	c.mu.Lock()
	c.sample.NUMA, c.busy.nanos = make([]Amounts, len(c.numa)), make([]int64, len(c.numaOf))
	c.mu.Unlock()
}

// readNode measures the node as a whole and its NUMA nodes; false when it cannot.
func (c *Collector) readNode(now time.Time) bool {
	var total int64
	known, cpus := false, int64(0)
	for i := range c.numa {
		c.numa[i].nanos = 0
	}
	for i := range c.busy.nanos {
		c.busy.nanos[i] = -1
	}
	eachCPU(c.stat.read(c.root, c.buf), func(cpu int, line []byte) {
		nanos, ok := busy(line)
		switch {
		case !ok:
		case cpu < 0:
			total, known = nanos, true
		default:
			cpus++
			if cpu < len(c.numaOf) && c.numaOf[cpu] >= 0 {
				c.numa[c.numaOf[cpu]].nanos += nanos
				c.busy.nanos[cpu] = nanos
			}
		}
	})
	if c.busy.at = now; len(c.reported.nanos) != len(c.busy.nanos) {
		c.reported = c.busy.copied()
	}
	if !known {
		c.cpu = window.Counter{}
		return false
	}
	for i := range c.numa {
		if milli, ok := c.numa[i].cpu.Advance(now, c.numa[i].nanos); ok {
			c.sample.NUMA[i].MilliCPU = milli
		}
	}
	milli, ok := c.cpu.Advance(now, total)
	memory, all, hasMemory := c.readMemory()
	if !ok || !hasMemory {
		return false
	}
	c.sample.Capacity = Amounts{MilliCPU: cpus * 1000, MemoryBytes: all}
	memory.MilliCPU = min(milli, c.sample.Capacity.MilliCPU)
	c.sample.Node = memory
	return true
}

// readMemory reads the memory that is used of the node and of its NUMA nodes, and how much the node has.
func (c *Collector) readMemory() (used Amounts, total int64, ok bool) {
	for i := range c.numa {
		readNUMAMemory(c.numa[i].meminfo.read(c.root, c.buf), &c.sample.NUMA[i])
	}
	text := c.meminfo.read(c.root, c.buf)
	total, hasTotal := field(text, "MemTotal:")
	free, hasFree := field(text, "MemFree:")
	available, hasAvailable := field(text, "MemAvailable:")
	if !hasTotal || !hasFree || !hasAvailable || max(total, free, available) > 1<<50 {
		return used, 0, false
	}
	used.MemoryBytes = max(0, total-available) << 10
	used.CacheBytes = max(0, max(0, total-free)<<10-used.MemoryBytes)
	return used, total << 10, true
}

// readNUMAMemory reads the memory of a NUMA node, whose kernel has no estimate of what is available: the cache is files
// without shared memory, and what the kernel can reclaim. Memory that cannot be read stays as it was.
func readNUMAMemory(text []byte, into *Amounts) {
	total, hasTotal := after(text, "MemTotal:")
	free, hasFree := after(text, "MemFree:")
	if !hasTotal || !hasFree || max(total, free) > 1<<50 {
		return
	}
	files, _ := after(text, "FilePages:")
	shared, _ := after(text, "Shmem:")
	reclaimable, _ := after(text, "SReclaimable:")
	used := max(0, total-free)
	cache := min(used, max(0, files-shared)+reclaimable)
	into.MemoryBytes, into.CacheBytes = (used-cache)<<10, cache<<10
}
