package ledger_test

import (
	"cmp"
	"maps"
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
	shared, be, allocatable, kstatic, lse, lsr cpuset.Set
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
	for _, p := range f.Pins {
		if e, ok := md.entries[p.UID]; ok && (e.Role.Binds() && e.CPUList != "" || e.Class == qos.LS || e.Class == qos.BE) {
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
		k := f.Kubelet.Static && f.Kubelet.Reserved.Has(c)
		never := f.NodeReserved.Has(c) || f.System.Has(c) || k && f.Kubelet.StrictReservation
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
		add(&out.allocatable, !never && !pinned[c] && !lse && !lsr && !k)
	}
	return out
}

// node recomputes one NUMA node of the summary.
func (md *model) node(n topo.NUMA) ledger.NodeSummary {
	m, p := md.facts.Machine, md.pools()
	out := ledger.NodeSummary{Socket: m.NUMASocket(n)}
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

// left is what constrained pods leave of each NUMA node with CPUs, in milli-CPU: pods with fewer nodes first, each
// spread in proportion to what is left, milli by milli where that does not divide.
func (md *model) left() []int64 {
	m := md.facts.Machine
	left := make([]int64, len(m.CPUNodes()))
	for i, n := range m.CPUNodes() {
		left[i] = 1000 * int64(md.node(n).PoolCPUs)
	}
	type pod struct {
		uid   string
		at    []int
		milli int64
	}
	var pods []pod
	for uid, e := range md.entries {
		p := pod{uid: uid, milli: e.MilliCPU}
		for i, n := range m.CPUNodes() {
			if e.Role == qos.SharedPool && slices.Contains(e.NUMAIDs, m.NUMAID(n)) {
				p.at = append(p.at, i)
			}
		}
		if len(p.at) > 0 {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b pod) int { return cmp.Or(cmp.Compare(len(a.at), len(b.at)), cmp.Compare(a.uid, b.uid)) })
	for _, p := range pods {
		before, total := slices.Clone(left), int64(0)
		for _, i := range p.at {
			total += max(before[i], 0)
		}
		rest := p.milli
		if total > 0 {
			for _, i := range p.at {
				share := min(p.milli, total) * max(before[i], 0) / total
				left[i] -= share
				rest -= share
			}
		}
		for _, i := range p.at {
			for ; rest > 0 && left[i] > 0; rest-- {
				left[i]--
			}
		}
		left[p.at[0]] -= rest
	}
	return left
}

// spare is how many CPUs may leave each pool, when pods that are connected by their NUMA nodes keep what they are owed.
func (md *model) spare(left []int64) []int {
	m := md.facts.Machine
	group := make([]int, len(left))
	for i := range group {
		group[i] = i
	}
	for range group { // joining once may join more
		for _, e := range md.entries {
			if e.Role != qos.SharedPool {
				continue
			}
			lowest := len(group)
			each := func(f func(i int)) {
				for i, n := range m.CPUNodes() {
					if slices.Contains(e.NUMAIDs, m.NUMAID(n)) {
						f(i)
					}
				}
			}
			each(func(i int) { lowest = min(lowest, group[i]) })
			each(func(i int) { group[i] = lowest })
		}
	}
	spare := make([]int, len(left))
	for i := range left {
		owed := int64(0)
		for j := range left {
			if group[i] == group[j] && left[j] < 0 && i != j {
				owed -= left[j]
			}
		}
		spare[i] = int(max(left[i]-owed, 0) / 1000)
	}
	return spare
}
