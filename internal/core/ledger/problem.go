package ledger

import (
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
// inside a reservation, more memory on a NUMA node than it has. They are kept as they are and reported, by UID, the
// last kind at the end. It is empty while no machine is known.
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
	return v.addDebts(out)
}

// addDebts adds the NUMA nodes of which pods hold more than there is, as after a resize that no webhook saw. Each names
// the pod that holds the most.
func (v *View) addDebts(out []Problem) []Problem {
	for i := range v.rows {
		row := &v.rows[i]
		if row.Chooser != nil {
			continue
		}
		for node := range row.Free {
			held, most, holder := int64(0), int64(0), ""
			for _, a := range v.accounts {
				for j := range a.holds {
					h := &a.holds[j]
					if h.Resource != row.Resource || int(h.Node) != node {
						continue
					}
					if held += min(h.N, 1<<56); h.N > most {
						most, holder = h.N, a.UID
					}
				}
			}
			if held > row.Free[node] {
				out = append(out, Problem{UID: holder, Kind: Overcommitted, Debt: why.Reason{
					Code: row.Short, Resource: row.Resource, Unit: row.Unit, Asked: held, Free: row.Free[node],
					Where: v.numaNode(topo.NUMA(node)),
				}})
			}
		}
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
