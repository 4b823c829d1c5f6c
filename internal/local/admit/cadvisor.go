package admit

import (
	"cmp"
	"maps"
	"slices"

	cadvisor "github.com/google/cadvisor/lib/model"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// machineInfo describes a machine as cadvisor would find it on the running system: online CPUs only, ids as the kernel
// has them.
func machineInfo(m *topo.Machine) *cadvisor.MachineInfo {
	online := m.Online()
	info := &cadvisor.MachineInfo{NumCores: online.Len(), NumSockets: m.NumSockets()}
	for i := range m.NumNUMA() {
		n := nodeInfo(m, topo.NUMA(i))
		info.NumPhysicalCores += len(n.Cores)
		info.MemoryCapacity += n.Memory
		info.Topology = append(info.Topology, n)
	}
	return info
}

func nodeInfo(m *topo.Machine, n topo.NUMA) cadvisor.Node {
	out := cadvisor.Node{Id: m.NUMAID(n), Memory: uint64(m.MemoryBytes(n))}
	pages := map[int64]int64{2 << 20: 0, 1 << 30: 0} // the kernel shows these sizes also without pages
	maps.Copy(pages, m.Hugepages(n))
	for size, count := range pages {
		out.HugePages = append(out.HugePages,
			cadvisor.HugePagesInfo{PageSize: uint64(size >> 10), NumPages: uint64(count)})
	}
	slices.SortFunc(out.HugePages, func(a, b cadvisor.HugePagesInfo) int { return cmp.Compare(a.PageSize, b.PageSize) })
	for o := range m.NumNUMA() {
		out.Distances = append(out.Distances, uint64(m.Distance(n, topo.NUMA(o))))
	}
	for _, core := range m.NUMACores(n) {
		if c, ok := coreInfo(m, core); ok {
			out.Cores = append(out.Cores, c)
		}
	}
	addCaches(m, &out)
	return out
}

func coreInfo(m *topo.Machine, core topo.Core) (cadvisor.Core, bool) {
	online := m.Online()
	out := cadvisor.Core{SocketID: m.SocketID(m.CoreSocket(core))}
	for _, cpu := range m.CoreCPUs(core) {
		if online.Has(int(cpu)) {
			out.Id = m.CoreID(cpu)
			out.Threads = append(out.Threads, m.CPUID(cpu))
		}
	}
	return out, len(out.Threads) > 0
}

// addCaches sets the L3 cache of cores where it is known. A cache of a whole NUMA node is a cache of the node. The
// kubelet then knows no L3 groups on that node, and treats the socket as one.
func addCaches(m *topo.Machine, n *cadvisor.Node) {
	online := m.Online()
	sharing := map[topo.L3]int{}
	for c := range online.All() {
		sharing[m.L3Of(topo.CPU(c))]++
	}
	for i := range n.Cores {
		core := &n.Cores[i]
		cpu, _ := m.CPUByID(core.Threads[0])
		l3 := m.L3Of(cpu)
		id := m.L3ID(l3)
		if id < 0 {
			continue
		}
		cache := cadvisor.Cache{Id: id, Type: "Unified", Level: 3}
		if sharing[l3] == len(n.Cores)*len(core.Threads) {
			if !slices.Contains(n.Caches, cache) {
				n.Caches = append(n.Caches, cache)
			}
			continue
		}
		core.UncoreCaches = []cadvisor.Cache{cache}
	}
}
