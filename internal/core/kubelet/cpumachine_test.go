package kubelet

import (
	"strconv"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// hybrid has cores of two threads, p of them, then e cores of one; one NUMA node.
func hybrid(p, e int) topo.Spec {
	var spec topo.Spec
	for i := range 2*p + e {
		core := i / 2
		if i >= 2*p {
			core = i - p
		}
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: core, L3: 0})
	}
	return spec
}

// drawSpec draws a machine, an odd one every second time: offline CPUs, cores with fewer threads, sparse ids, NUMA
// nodes without CPUs, sockets that cross NUMA nodes.
func drawSpec(t *rapid.T) topo.Spec {
	odd := rapid.Bool().Draw(t, "odd")
	crossing := odd && rapid.IntRange(0, 3).Draw(t, "crossing") == 0
	sockets := rapid.SampledFrom([]int{1, 1, 2, 2, 3, 4}).Draw(t, "sockets")
	nodes := rapid.SampledFrom([]int{1, 2, 2, 3, 4, 4, 5, 6, 8}).Draw(t, "nodes")
	if crossing {
		nodes = min(nodes, 3)
	}
	perNode := rapid.IntRange(1, 6).Draw(t, "cores per node")
	threads := rapid.SampledFrom([]int{1, 2, 2, 2, 4}).Draw(t, "threads")
	l3 := rapid.SampledFrom([]int{1, 2, 3, 4, 6}).Draw(t, "cores per L3 group")
	l3ID := rapid.SampledFrom([]func(int) int{
		func(group int) int { return group },
		func(group int) int { return 2 * (group ^ 1) }, // out of order, with gaps
		func(int) int { return -1 },
		func(group int) int { return max(-1, group-1) }, // of some CPUs only
	}).Draw(t, "ids of L3 groups")
	stride := rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "stride of ids")
	adjacent := rapid.Bool().Draw(t, "adjacent threads")
	thin := odd && rapid.Bool().Draw(t, "thin cores")
	nodeStride := 1
	if odd {
		nodeStride = rapid.SampledFrom([]int{1, 8}).Draw(t, "stride of nodes")
	}
	var spec topo.Spec
	total := nodes * perNode
	for core := range total {
		socket := core / perNode * sockets / nodes
		if sockets > nodes {
			socket = core * sockets / total
		}
		if crossing {
			socket = core % sockets
		}
		for thread := range threads {
			if thin && thread > 0 && core%3 == 1 {
				continue
			}
			id := core + thread*total
			if adjacent {
				id = core*threads + thread
			}
			offline := odd && rapid.IntRange(0, 11).Draw(t, "offline") == 0 && len(spec.CPUs) > 0
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{
				ID: id * stride, Core: core, L3: l3ID(core / l3), Socket: socket,
				NUMA:    core / perNode * nodeStride,
				Offline: offline,
			})
		}
	}
	if nodeStride > 1 {
		spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: 3, MemoryBytes: 1 << 30})
	}
	return spec
}

// drawConfig draws settings that a kubelet starts with on a machine.
func drawConfig(t *rapid.T, m *topo.Machine) Config {
	c := Config{Model: minorModel(rapid.IntRange(33, 37).Draw(t, "minor")), CPU: CPU{Static: true}}
	switch rapid.SampledFrom([]string{"plain", "l3", "spread", "distributed", "distributed"}).Draw(t, "order") {
	case "l3":
		c.CPU.AlignL3 = true
		c.CPU.FullPCPUsOnly = rapid.Bool().Draw(t, "full-pcpus-only")
	case "spread":
		c.CPU.DistributeAcrossCores = true
	case "distributed":
		c.CPU.DistributeAcrossNUMA = true
		c.CPU.FullPCPUsOnly = rapid.Bool().Draw(t, "full-pcpus-only")
	}
	layout := newCPULayout(m)
	if len(layout.sockets) <= len(layout.nodes) {
		c.CPU.AlignBySocket = rapid.Bool().Draw(t, "align-by-socket")
	}
	c.CPU.Reserved = drawCPUs(t, m.Online(), "reserved", 10)
	return c
}

// drawCPUs draws a subset of CPUs with about percent of them; now and then whole cores' worth of neighbours.
func drawCPUs(t *rapid.T, from cpuset.Set, label string, percent int) cpuset.Set {
	var set cpuset.Set
	for c := range from.All() {
		if rapid.IntRange(0, 99).Draw(t, label) < percent {
			set.Add(c)
		}
	}
	return set
}

// minorModel is the model of a release.
func minorModel(minor int) Model {
	m, ok := ModelOf("v1." + strconv.Itoa(minor) + ".0")
	if !ok {
		panic("no model of 1." + strconv.Itoa(minor))
	}
	return m
}
