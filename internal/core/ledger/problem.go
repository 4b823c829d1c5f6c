package ledger

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Kinds of Problem.
const (
	Unknown       = "unknown"
	Offline       = "offline"
	Malformed     = "malformed"
	HeldTwice     = "held twice"
	Reserved      = "reserved"
	UnknownNUMA   = "unknown NUMA node"
	Overcommitted = "overcommitted"
)

// Problem is one contradiction.
type Problem struct {
	UID, Other string // Other: the second holder of CPUs that are held twice, "" for the other kinds
	Kind       string // one of the constants above
	CPUs       string // list format, kernel ids; the text as it is when malformed; NUMA node ids for UnknownNUMA
	// Debt says for Overcommitted which NUMA node has less of which resource than pods hold there: they hold Asked, it
	// has Free. Zero for the other kinds.
	Debt why.Reason
}

// Problems lists entries that contradict the machine or each other: unknown or offline ids, CPUs held twice, CPUs
// inside a reservation, more memory or shared CPUs on a NUMA node than it has. They are kept as they are and reported,
// by UID, the last kind at the end. It is empty while no machine is known.
func (v *View) Problems() []Problem {
	m := v.facts.Machine
	if m == nil {
		return nil
	}
	reserved := v.facts.NodeReserved.Union(v.facts.System).Union(v.kubeletReserved)
	var out []Problem
	for i, a := range v.accounts {
		report := func(kind, other, cpus string) {
			if cpus != "" {
				out = append(out, Problem{UID: a.UID, Other: other, Kind: kind, CPUs: cpus})
			}
		}
		named, unknown, err := m.ParseList(a.CPUList)
		if err != nil {
			report(Malformed, "", a.CPUList)
		}
		report(Unknown, "", cpuset.FormatIDs(unknown))
		report(Offline, "", m.FormatList(named.Minus(m.Online())))
		report(UnknownNUMA, "", cpuset.FormatIDs(v.foreignHolders(a)))
		report(Reserved, "", m.FormatList(a.cpus.Intersect(reserved)))
		for _, b := range v.accounts[i+1:] {
			report(HeldTwice, b.UID, m.FormatList(a.cpus.Intersect(b.cpus)))
		}
		for _, g := range v.facts.Given {
			if g.UID != a.UID {
				report(HeldTwice, g.UID, m.FormatList(a.cpus.Intersect(g.CPUs).Intersect(v.kubeletStatic)))
			}
		}
	}
	for _, d := range v.Debts() {
		out = append(out, Problem{UID: d.Holders[0], Kind: Overcommitted, Debt: d.Reason})
	}
	return out
}

// Debt is a NUMA node of which pods hold more of a resource than it has, as after a resize that no webhook saw.
type Debt struct {
	// Reason has the NUMA node and the resource: pods hold Asked, the node has Free.
	why.Reason
	// Holders are the UIDs of the pods that hold some of it, the pod with the most first.
	Holders []string
}

// Debts returns the debts of NUMA nodes: memory, huge pages, and CPUs of the shared pool that pods are confined to.
func (v *View) Debts() []Debt {
	var out []Debt
	add := func(row why.Reason, has int64, node int, held func(*account) int64) {
		holders, sum := []*account{}, int64(0)
		for _, a := range v.accounts {
			if n := held(a); n > 0 {
				sum += min(n, 1<<56)
				holders = append(holders, a)
			}
		}
		if sum <= has {
			return
		}
		slices.SortStableFunc(holders, func(a, b *account) int { return cmp.Compare(held(b), held(a)) })
		row.Asked, row.Free, row.Where = sum, has, v.numaNode(topo.NUMA(node))
		d := Debt{Reason: row}
		for _, a := range holders {
			d.Holders = append(d.Holders, a.UID)
		}
		out = append(out, d)
	}
	for i := range v.rows {
		row := &v.rows[i]
		for node := range row.Free {
			add(why.Reason{Code: why.InsufficientMemory, Resource: row.Resource, Unit: why.Bytes}, row.Free[node], node,
				func(a *account) (held int64) {
					for j := range a.holds {
						if h := &a.holds[j]; h.Resource == row.Resource && int(h.Node) == node {
							held += h.N
						}
					}
					return held
				})
		}
	}
	for node := range v.summary.Nodes {
		add(why.Reason{Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU},
			1000*int64(v.summary.Nodes[node].PoolCPUs), node, func(a *account) int64 {
				if a.nodes != 1<<node {
					return 0
				}
				return min(a.milli, mostMilli)
			})
	}
	return out
}

// foreignHolders returns the NUMA ids of a that the machine does not have; of those that it is constrained to, also
// the ones without CPUs.
func (v *View) foreignHolders(a *account) []int {
	var ids []int
	for _, id := range a.NUMAIDs {
		if _, ok := v.facts.Machine.CPUNodeByID(id); !ok {
			ids = append(ids, id)
		}
	}
	for _, m := range a.Amounts {
		if _, known := v.facts.Machine.NUMAByID(m.NUMAID); !known {
			ids = append(ids, m.NUMAID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
