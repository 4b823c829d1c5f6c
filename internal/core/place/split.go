package place

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// wholeUnit is what ordinary memory is split in, so that shares read well.
const wholeUnit = 1 << 20

// place says what of each row goes where: to the NUMA nodes with CPUs of the pod first, in proportion to
// what is free there; what they do not have goes to the others of nodes in the same way. Together, preferred and nodes
// hold the pod. Hugepages are not split.
func (j *joint) place(preferred, nodes topo.NodeSet) []align.Amount {
	var list []align.Amount
	for i := range j.others {
		row := &j.more[i]
		var shares [topo.MaxNodes]int64
		left := row.spread(preferred, row.need, &shares)
		row.spread(nodes&^preferred, left, &shares)
		for m := preferred | nodes; m != 0; m &= m - 1 {
			n := m.First()
			if shares[n] > 0 {
				list = append(list, align.Amount{NUMAID: j.machine.NUMAID(n), Resource: row.Resource, N: shares[n]})
			}
		}
	}
	return list
}

// holding returns the nodes on which amounts are.
func holding(m *topo.Machine, list []align.Amount) topo.NodeSet {
	var nodes topo.NodeSet
	for i := range list {
		n, _ := m.NUMAByID(list[i].NUMAID)
		nodes |= 1 << n
	}
	return nodes
}

// spread adds up to need to the shares of nodes and returns what they do not have.
func (d *demand) spread(nodes topo.NodeSet, need int64, shares *[topo.MaxNodes]int64) (left int64) {
	unit := d.Page
	if d.Resource == why.Memory {
		unit = wholeUnit
	}
	free := d.sum(nodes)
	left = need
	for rest := nodes; rest != 0 && free > 0; rest &= rest - 1 {
		n := rest.First()
		shares[n] = proportion(min(need, free), d.Free[n], free) / unit * unit
		left -= shares[n]
	}
	for rest := nodes; rest != 0; rest &= rest - 1 { // what did not divide
		n := rest.First()
		more := min(left, d.Free[n]-shares[n])
		shares[n] += more
		left -= more
	}
	return left
}

// proportion is amount · part / whole, for amounts of any size with part ≤ whole.
func proportion(amount, part, whole int64) int64 {
	high, low := bits.Mul64(uint64(amount), uint64(part))
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}
