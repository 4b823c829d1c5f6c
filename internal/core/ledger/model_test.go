package ledger_test

import (
	"maps"
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// model computes a machine's pools in the dullest way: CPU by CPU, from facts and entries, with maps.
type model struct {
	facts   ledger.Facts
	entries map[string]ledger.Entry
}

// ids reads a CPU list; unknown and offline ones are left out.
func (md *model) cpus(list string) map[int]bool {
	out := map[int]bool{}
	ids, err := cpuset.ParseIDs(list)
	if err != nil {
		return out
	}
	online := md.facts.Machine.Online()
	for _, id := range ids {
		if c, ok := md.facts.Machine.CPUByID(id); ok && online.Has(int(c)) {
			out[int(c)] = true
		}
	}
	return out
}

type pools struct {
	shared, be, allocatable, kstatic, lse, lsr, isolated cpuset.Set
}

func (md *model) pools() pools {
	f, m := md.facts, md.facts.Machine
	holds := map[qos.Role]map[int]bool{qos.Exclusive: {}, qos.ExclusiveWithBE: {}}
	for _, e := range md.entries {
		if e.Role.Binds() {
			maps.Copy(holds[e.Role], md.cpus(e.CPUList))
		}
	}
	pinned := map[int]bool{}
	for _, p := range f.Given {
		if e, ok := md.entries[p.UID]; ok &&
			(e.Role.Binds() && e.CPUList != "" || e.Class == qos.LS || e.Class == qos.BE) {
			continue
		}
		for c := range p.CPUs.All() {
			pinned[c] = true
		}
	}
	var out pools
	online := m.Online()
	for c := range online.All() {
		lse, lsr := holds[qos.Exclusive][c], holds[qos.ExclusiveWithBE][c]
		k := f.Model.Config.CPU.Static && f.Model.Config.CPU.Reserved.Has(c)
		outside := f.NodeReserved.Has(c) || f.System.Has(c)
		never := outside || f.Isolated.Has(c) || k && f.Model.Config.CPU.StrictReservation
		add := func(s *cpuset.Set, in bool) {
			if in {
				s.Add(c)
			}
		}
		add(&out.lse, lse)
		add(&out.lsr, lsr)
		add(&out.kstatic, pinned[c])
		add(&out.be, !never && !pinned[c] && !lse)
		add(&out.shared, !never && !pinned[c] && !lse && !lsr)
		add(&out.isolated, f.Isolated.Has(c) && !outside && !pinned[c] && !lse && !lsr && !k)
		add(&out.allocatable, !never && !pinned[c] && !lse && !lsr && !k)
	}
	return out
}

// node recomputes one NUMA node of the summary.
func (md *model) node(n topo.NUMA) ledger.NodeSummary {
	m, p := md.facts.Machine, md.pools()
	var out ledger.NodeSummary
	online := m.Online()
	for _, core := range m.NUMACores(n) {
		here, alive := 0, 0
		for _, c := range m.CoreCPUs(core) {
			if online.Has(int(c)) {
				alive++
			}
			if p.allocatable.Has(int(c)) {
				here++
			}
			if p.shared.Has(int(c)) {
				out.PoolCPUs++
			}
		}
		out.Free += here
		if here > 0 {
			out.FreeCores++
			if here == alive {
				out.FreeWhole += here
			}
		}
	}
	return out
}

// rooms is, by set of NUMA nodes, what may still be taken of their pools: the least, over all sets that contain it, of
// what they have above the promises to pods that may run nowhere else; above the lowest of these figures where it is
// negative.
func (md *model) rooms() []int64 {
	m := md.facts.Machine
	slack := make([]int64, 1<<m.NumNUMA())
	for _, n := range m.CPUNodes() {
		pool := 1000 * int64(md.node(n).PoolCPUs)
		for set := range slack {
			if set&(1<<n) != 0 {
				slack[set] += pool
			}
		}
	}
	for _, e := range md.entries {
		nodes := md.confinedTo(e)
		for set := range slack {
			if nodes != 0 && nodes&^set == 0 {
				slack[set] -= e.MilliCPU
			}
		}
	}
	lowest, rooms := slices.Min(slack), make([]int64, len(slack))
	for set := range rooms {
		rooms[set] = math.MaxInt64
		for above := range slack {
			if set&^above == 0 {
				rooms[set] = min(rooms[set], slack[above]-lowest)
			}
		}
	}
	return rooms
}

// confinedTo is the NUMA nodes with CPUs that an entry is confined to.
func (md *model) confinedTo(e ledger.Entry) int {
	nodes := 0
	for _, n := range md.facts.Machine.CPUNodes() {
		if e.Role == qos.SharedPool && slices.Contains(e.NUMAIDs, md.facts.Machine.NUMAID(n)) {
			nodes |= 1 << n
		}
	}
	return nodes
}
