package place

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// joint is everything that a pod asks of NUMA nodes at once, a row for each resource. A set of NUMA nodes holds the pod
// if its nodes together have what each row asks. In Own mode this plays the part of the kubelet's merge, whose hints
// are the sets that hold one resource, and which takes a set that is in all lists.
//
// What a row has on a NUMA node is never negative, so a set that holds the pod still does with one more node.
type joint struct {
	machine  *topo.Machine
	summary  *ledger.Summary
	strategy cpualloc.Strategy
	policy   hint.Policy
	// spread is the number of NUMA nodes that the policy allows. wide is the number that the devices need; it counts if
	// it is larger, and is 0 unless allowForDevices set it.
	spread, wide int

	// open are the NUMA nodes that may be in the set, must those that have to be. Invariant: the set contains must and
	// is within open.
	open, must topo.NodeSet
	wants      NUMAExclusive

	// The first leading rows, 1 or 2, are of CPU; needs is what they ask. For exclusive CPUs there is one row, cpus:
	// what each NUMA node has of the CPUs that the bind policy counts. For a shared pool there are two: cpus is the
	// size of each node's pool, and milli what of the pool is not promised.
	leading     int
	needs       [2]int64
	cpus, milli [topo.MaxNodes]int64
	// poolNeed is needs[0] of a shared pool in milli-CPU, as the user wrote it.
	poolNeed int64
	// more[:others] are the other rows.
	more   [align.MaxRows]demand
	others int

	// limits bound the exclusive CPUs of several NUMA nodes together. shares is how many each node gives in the answer
	// of most, if limits reduced it.
	limits []ledger.Limit
	shares [topo.MaxNodes]int64
	// wholeCores is true if limits may leave whole cores only; free and usable then have the CPUs that cores consist
	// of.
	wholeCores bool
	free       cpuset.Set
	usable     []cpualloc.NodeCount
}

// demand is a row besides CPU.
type demand struct {
	*align.Row
	need int64
}

// begin sets what holds for all resources of the request on a node.
func (j *joint) begin(v *ledger.View, r *Request) {
	j.wants = r.NUMAExclusive
	j.machine, j.summary, j.strategy = v.Machine(), v.Summary(), v.Facts().Strategy
}

// askOthers adds the rows besides CPU. Without a policy they take no part, nor does a resource that the machine does
// not report. BestEffort never refuses: there a resource of which the NUMA nodes have not enough is left out, and so
// remains unbound.
func (j *joint) askOthers(v *ledger.View, r *Request) {
	if j.policy == hint.None {
		return
	}
	s := v.Summary()
	for i := range r.Needs {
		known := align.Find(s.Rows, r.Needs[i].Resource)
		if known == nil || j.others == len(j.more) {
			continue
		}
		row := demand{known, r.Needs[i].N}
		if j.policy == hint.BestEffort && row.sum(j.open) < row.need {
			continue
		}
		j.more[j.others] = row
		j.others++
	}
}

// sum returns what a set of nodes has free.
func (d *demand) sum(nodes topo.NodeSet) int64 { return sumOver(d.Free, nodes) }

// sumOver adds up what the nodes of a set have.
func sumOver(have []int64, nodes topo.NodeSet) int64 {
	total := int64(0)
	for ; nodes != 0; nodes &= nodes - 1 {
		total += have[nodes.First()]
	}
	return total
}

// least is the number of NUMA nodes that the resource needs on an empty machine.
func (d *demand) least() int { return leastOf(d.Capacity, d.need) }

// reach is how many rows a set of NUMA nodes holds, in the order of the rows, and how much it has of the first row that
// it does not hold.
type reach struct {
	nodes topo.NodeSet
	rows  int
	have  int64
}

// exceeds reports whether r satisfies more rows than o, or as many and has more of the next one.
func (r reach) exceeds(o reach) bool {
	return r.rows > o.rows || r.rows == o.rows && r.have > o.have
}

// allowed returns the number of NUMA nodes that the pod may use.
func (j *joint) allowed() int { return max(j.spread, j.wide) }

// rows is the number of resources that are compared.
func (j *joint) rows() int { return j.leading + j.others }

// reach returns how many rows a set of nodes satisfies, in their order, and what it has of the first other one.
func (j *joint) reach(nodes topo.NodeSet) reach {
	r := reach{nodes: nodes}
	if r.have, _ = j.most(nodes); r.have < j.needs[0] {
		return r
	}
	r.rows++
	if j.leading > 1 {
		if r.have = j.summary.Room(nodes); r.have < j.needs[1] {
			return r
		}
		r.rows++
	}
	for i := range j.others {
		if r.have = j.more[i].sum(nodes); r.have < j.more[i].need {
			return r
		}
		r.rows++
	}
	return r
}

// holds reports whether the pod may be placed on exactly these NUMA nodes.
func (j *joint) holds(nodes topo.NodeSet) bool {
	return j.must.Within(nodes) && nodes.Within(j.open) && j.reach(nodes).rows == j.rows()
}

// excludeMixed closes the NUMA nodes that have pods of the other kind, if the pod wants that and the policy determines
// how many NUMA nodes the pod uses: under Restricted, fewer than spread cannot have its CPUs. It returns ok = false if
// no set of the other nodes was found to hold a pod that requires this; if the pod only prefers it, the nodes remain
// open. whole is false if not all sets were looked at.
func (j *joint) excludeMixed() (ok, whole bool) {
	open := j.open
	if j.wants == ShareNUMANodes || j.policy < hint.Restricted || open&j.summary.Mixed(j.spread) == 0 {
		return true, true
	}
	j.open &^= j.summary.Mixed(j.spread)
	best, whole := j.bestReach(min(j.allowed(), j.open.Len()))
	if ok = best.rows == j.rows(); !ok && j.wants == PreferNUMAExclusive {
		j.open, ok = open, true
	}
	return ok, whole
}

// check decides whether the policy finds NUMA nodes for the pod. The first row that is short names the resource: CPU,
// then each other row. check may drop rows: j must not be used to choose NUMA nodes afterwards.
func (j *joint) check() why.Reason {
	if j.policy < hint.Restricted {
		return why.Reason{}
	}
	var alone why.Reason
	for i := 0; i < j.others && alone.OK(); i++ {
		alone = j.more[i].check(j.open, j.policy, j.spread)
	}
	if !alone.OK() {
		j.others = 0 // no set is feasible; it remains to check whether CPU alone is short
	}
	best, whole := j.bestReach(min(j.allowed(), j.open.Len()))
	held := best.rows == j.rows()
	if held && alone.OK() {
		held, whole = j.excludeMixed()
		if !held && whole {
			return why.Reason{Code: why.NUMANodeShared, Resource: why.CPU, Extra: int64(j.allowed())}
		}
	}
	switch {
	case held:
		return alone
	case !whole:
		return why.Reason{Code: why.TopologyUndecided, Resource: why.CPU, Extra: int64(j.allowed())}
	}
	return j.short(best)
}

// bestReach returns the largest reach of k open nodes; whole is false if not all sets were looked at.
func (j *joint) bestReach(k int) (best reach, whole bool) {
	first := j.reach(j.largest(k))
	if first.rows == j.rows() || first.rows == 0 && len(j.limits) == 0 {
		return first, true // no set has more of the first row
	}
	least := int64(0)
	if first.rows > 0 {
		least = j.needs[0] // sets without it come less far
	}
	whole = j.sets(k, least, func(nodes topo.NodeSet) bool {
		if r := j.reach(nodes); best.nodes == 0 || r.exceeds(best) {
			best = r
		}
		return best.rows < j.rows()
	})
	return best, whole
}

// largest returns the k open nodes that have most of the first row, the lowest of equals.
func (j *joint) largest(k int) topo.NodeSet {
	left := j.open
	for range k {
		at, most := topo.NUMA(0), int64(-1)
		for rest := left; rest != 0; rest &= rest - 1 {
			if n := rest.First(); j.cpus[n] > most {
				at, most = n, j.cpus[n]
			}
		}
		left &^= 1 << at
	}
	return j.open &^ left
}

// short returns the policy's refusal, with what the set of the largest reach has of the row that it does not hold.
func (j *joint) short(best reach) why.Reason {
	reason := why.Reason{Code: why.TopologyPolicy, Resource: why.CPU, Extra: int64(j.allowed())}
	switch row := best.rows; {
	case row >= j.leading:
		d := &j.more[row-j.leading]
		reason.Resource, reason.Unit, reason.Asked, reason.Free = d.Resource, why.Bytes, d.need, best.have
	case j.leading == 1:
		reason.Unit, reason.Asked, reason.Free = why.CPUs, j.needs[0], best.have
	case row == 0:
		reason.Unit, reason.Asked, reason.Free = why.MilliCPU, j.poolNeed, 1000*best.have
	default:
		reason.Unit, reason.Asked, reason.Free = why.MilliCPU, j.needs[1], best.have
	}
	if j.allowed() == 1 {
		reason.Where = why.Where{Scope: why.NUMA, Index: int32(j.machine.NUMAID(best.nodes.First()))}
	}
	return reason
}

// check looks at one resource alone. Under Restricted no set is preferred by all resources when they need different
// numbers of NUMA nodes: such a pod never fits.
func (d *demand) check(open topo.NodeSet, policy hint.Policy, spread int) why.Reason {
	possible := len(d.Capacity) > 0 && d.Capacity[len(d.Capacity)-1] >= d.need
	if k := d.least(); policy == hint.Restricted && possible && k != spread {
		return why.Reason{Code: why.TopologyMismatch, Resource: d.Resource, Asked: int64(k), Free: int64(spread)}
	}
	free := d.sum(open)
	switch {
	case free >= d.need:
		return why.Reason{}
	case free+d.Apart >= d.need: // without a policy the pod would use NUMA nodes without CPUs
		return why.Reason{
			Code: why.TopologyPolicy, Resource: d.Resource, Unit: why.Bytes, Asked: d.need, Free: free,
			Extra: int64(spread),
		}
	}
	return why.Reason{Code: why.InsufficientMemory, Resource: d.Resource, Unit: why.Bytes, Asked: d.need, Free: free}
}

// rank orders sets of equally many NUMA nodes; smaller is better: fewest sockets, least distances, then the strategy.
type rank struct {
	sockets            int
	distance, strategy int64
}

// betterThan reports whether a set of nodes is better: fewer sockets, then nearer nodes, then the node's strategy.
func (r rank) betterThan(o rank) bool {
	switch {
	case r.sockets != o.sockets:
		return r.sockets < o.sockets
	case r.distance != o.distance:
		return r.distance < o.distance
	}
	return r.strategy < o.strategy
}

// rankOf ranks a set. MostAllocated and DistributeEvenly leave the NUMA nodes with more free CPU whole, LeastAllocated
// takes them.
func (j *joint) rankOf(nodes topo.NodeSet) rank {
	free := j.cpus[:]
	if j.leading > 1 {
		free = j.milli[:]
	}
	strategy := sumOver(free, nodes)
	if j.strategy == cpualloc.LeastAllocated {
		strategy = -strategy
	}
	return rank{j.machine.SocketsOf(nodes), j.machine.DistanceWithin(nodes), strategy}
}

// choose returns the best set of NUMA nodes that holds the pod: fewest of them, then rank, then the lowest ids; 0 =
// none.
func (j *joint) choose() topo.NodeSet {
	for k := 1; k <= j.allowed(); k++ {
		var chosen topo.NodeSet
		var best rank
		j.sets(k, j.needs[0], func(nodes topo.NodeSet) bool {
			if !j.holds(nodes) {
				return true
			}
			r := j.rankOf(nodes)
			if chosen == 0 || r.betterThan(best) || r == best && nodes.Before(chosen) {
				chosen, best = nodes, r
			}
			return true
		})
		if chosen != 0 {
			return chosen
		}
	}
	return 0
}

// singleNodes returns the NUMA nodes that hold the pod alone.
func (j *joint) singleNodes() topo.NodeSet {
	var nodes topo.NodeSet
	for m := j.open; m != 0; m &= m - 1 {
		if one := m & -m; j.holds(one) {
			nodes |= one
		}
	}
	return nodes
}

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
