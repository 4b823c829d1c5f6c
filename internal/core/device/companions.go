package device

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// For a set of lead devices, which search enumerates, this file chooses the devices of the other types.
//
// Input: the set, and for each other type what the request asks of it. Output: one device for each claim, with the
// least sum of distances to the lead devices that the claims name, all on NUMA nodes that Options.Accept takes.
//
//	claimsOf ─► claims ─► assignNearest ─(claims compete)─► assignOptimal (Hungarian method)
//	   ▲                        once for each order of unequal bundles (chooseType)
//	   └── chooseCompanions: without regard to NUMA nodes, then, if Accept refuses, on each set of NUMA nodes
//
// Why the result is the least: for one order of bundles on one set of NUMA nodes, the types do not compete with each
// other for devices, and within a type the assignment has the least sum of costs; orders and sets of NUMA nodes are
// enumerated. Where there are more than maxPermutedBundles places or more than maxEnumeratedNodes NUMA nodes, not all
// of them are tried, and the search is marked as not complete.

// maxPermutedBundles is the number of claims up to which unequal bundles of a joint allocation are tried in every
// order.
const maxPermutedBundles = 6

// anyNodes stands for no restriction of NUMA nodes.
const anyNodes = ^topo.NodeSet(0)

// maxEnumeratedNodes is the number of NUMA nodes with open devices up to which every set of them is tried. Of more
// nodes, sets of at most two are.
const maxEnumeratedNodes = 10

// allotment is what one set of lead devices gets of another type.
type allotment struct {
	mask uint64           // the devices; 0 for none
	to   [MaxDevices]int8 // device to[j] has bundle j
}

// claim is one device of another type that a set of lead devices needs.
type claim struct {
	allowed uint64 // devices of the other type that may serve
	leads   uint64 // lead devices: the distance of the claim is the least to any of them
}

// chooseCompanions chooses devices of the other types for a set of the lead on nodes, into s.found, and returns the sum
// of their distances. It finds some wherever there are any, on machines with up to maxEnumeratedNodes NUMA nodes that
// have such devices.
func (s *combination) chooseCompanions(mask uint64, nodes topo.NodeSet) (total int64, ok bool) {
	total, around, ok := s.chooseOn(mask, anyNodes)
	if !ok || s.accepts(nodes|around) {
		return total, ok
	}
	open, chosen := topo.NodeSet(0), topo.NodeSet(0)
	for t := range s.rest {
		open |= s.view.nodes(s.rest[t].group, s.rest[t].open)
	}
	most := open.Len()
	if most > maxEnumeratedNodes {
		most, s.complete = 2, false
	}
	ok = false
	for k := range most + 1 {
		for within := range open.Subsets(k) {
			if !s.accepts(nodes | within) {
				continue
			}
			if d, _, found := s.chooseOn(mask, within); found && (!ok || d < total) {
				total, chosen, ok = d, within, true
			}
		}
	}
	if ok {
		s.chooseOn(mask, chosen) // s.found has the devices of the last set that was tried
	}
	return total, ok
}

// chooseOn chooses devices of every other type among those on the NUMA nodes within, and those whose NUMA node is
// unknown. around are the NUMA nodes of the chosen devices.
func (s *combination) chooseOn(mask uint64, within topo.NodeSet) (total int64, around topo.NodeSet, ok bool) {
	for t := range s.rest {
		p, n := &s.rest[t], &s.found[t]
		inside, d := ^uint64(0), int64(0)
		if within != anyNodes {
			inside = p.group.those(func(at int) bool { return s.view.units[at].node.Within(within) })
		}
		var found bool
		switch {
		case p.all:
			n.mask = p.match
			found = n.mask != 0 && n.mask&^(p.fits[0]&inside) == 0 && p.inScope(n.mask) && p.assign(n.mask, &n.to)
		case p.scopes != nil:
			d, found = s.chooseInScope(t, mask, inside)
		default:
			d, found = s.chooseType(t, mask, inside)
		}
		if !found {
			return 0, 0, false
		}
		total += d
		around |= s.view.nodes(p.group, n.mask)
	}
	return total, around, true
}

// chooseInScope chooses all devices of a type within one of the scopes that its hint demands: the scope with the least
// distances.
func (s *combination) chooseInScope(t int, mask, inside uint64) (total int64, ok bool) {
	var best allotment
	for _, scope := range s.rest[t].scopes {
		if d, found := s.chooseType(t, mask, inside&scope); found && (!ok || d < total) {
			total, best, ok = d, s.found[t], true
		}
	}
	s.found[t] = best
	return total, ok
}

// chooseType chooses devices of one other type among inside. Bundles that differ are tried on the claims in every order
// where some claims are tied to a place; all claims are alike otherwise.
func (s *combination) chooseType(t int, mask, inside uint64) (total int64, ok bool) {
	p := &s.rest[t]
	var claims [MaxDevices]claim
	count, tied, ok := s.claimsOf(t, mask, p.open&inside, &claims)
	if !ok {
		return 0, false
	}
	var order [MaxDevices]int8 // bundle by claim
	for j := range count {
		order[j] = int8(j)
	}
	if p.equal || tied == 0 {
		return s.assignNearest(t, claims[:count], &order)
	}
	if count > maxPermutedBundles {
		s.complete = false
		return s.assignNearest(t, claims[:count], &order)
	}
	var best allotment
	permute(order[:count], 0, func() {
		if d, found := s.assignNearest(t, claims[:count], &order); found && (best.mask == 0 || d < total) {
			total, best = d, s.found[t]
		}
	})
	s.found[t] = best
	return total, best.mask != 0
}

// permute calls try with every order of list.
func permute(list []int8, from int, try func()) {
	if from == len(list) {
		try()
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		permute(list, from+1, try)
		list[from], list[i] = list[i], list[from]
	}
}

// claimsOf lists the claims of a set of the lead on another type. A joint allocation has one claim for each place of
// the lead (a root complex, or the bridge below it), and more where the request asks for more devices; any other
// allocation has as many as the request asks for, each close to a device of the lead. The first tied claims are tied to
// a place. With a scope, each place must have an open device, and no device of another place is allowed; without one,
// places without an open device have no claim.
func (s *combination) claimsOf(t int, mask, open uint64, list *[MaxDevices]claim) (count, tied int, ok bool) {
	p, j := &s.rest[t], &s.req.Joint
	own, devices := len(p.bundles), bits.OnesCount64(mask)
	joint := p.joint && s.lead.joint
	primary := joint && j.Types[0] == p.group.kind
	scoped := joint && j.Scope != Anywhere
	rest, union := mask, open
	if scoped {
		union = 0
	}
	for m := mask; m != 0 && joint && (scoped || !primary); {
		one := bits.TrailingZeros64(m)
		here, there := s.samePlace[one]&mask, s.others[t].samePlace[one]&open
		m &^= here
		switch {
		case there != 0:
		case scoped:
			return 0, 0, false
		default:
			continue
		}
		list[tied] = claim{there, here}
		if own >= devices {
			list[tied].leads = 1 << one
		}
		rest &^= 1 << one
		union |= there
		tied++
	}
	count = max(own, tied)
	if primary && scoped && (tied > own || devices != max(len(s.lead.bundles), tied)) {
		return 0, 0, false
	}
	if count > p.group.n {
		return 0, 0, false
	}
	for i := tied; i < count; i++ {
		list[i] = claim{union, mask}
		if own >= devices && rest != 0 {
			list[i].leads = rest & -rest
			rest &= rest - 1
		}
	}
	return count, tied, true
}

// assignNearest gives each claim the nearest device that may serve it. Where two claims would get the same one,
// assignOptimal decides about all of them. order has the bundle of each claim.
func (s *combination) assignNearest(t int, claims []claim, order *[MaxDevices]int8) (total int64, ok bool) {
	p, n, o := &s.rest[t], &s.found[t], &s.others[t]
	n.mask = 0
	for i, c := range claims {
		may := c.allowed & p.fit(int(order[i]))
		d, closest := o.closest(may, c.leads)
		if closest == 0 {
			return 0, false
		}
		if closest &^= n.mask; closest == 0 {
			return s.assignOptimal(t, claims, order)
		}
		n.mask |= closest & -closest
		n.to[order[i]] = int8(bits.TrailingZeros64(closest))
		total += int64(d)
	}
	return total, true
}

// assignOptimal gives each claim a device of its own with the least sum of distances, where claims compete for devices.
func (s *combination) assignOptimal(t int, claims []claim, order *[MaxDevices]int8) (total int64, ok bool) {
	p, n, o := &s.rest[t], &s.found[t], &s.others[t]
	var cost costs
	for i, c := range claims {
		for j := range p.group.n {
			cost[i][j] = never
		}
		for may := c.allowed & p.fit(int(order[i])); may != 0; {
			d, closest := o.closest(may, c.leads)
			for may &^= closest; closest != 0; closest &= closest - 1 {
				cost[i][bits.TrailingZeros64(closest)] = int16(d)
			}
		}
	}
	var to [MaxDevices]int8
	if total, ok = assignment(len(claims), p.group.n, &cost, &to); !ok {
		return 0, false
	}
	n.mask = 0
	for i := range claims {
		n.mask |= 1 << to[i]
		n.to[order[i]] = to[i]
	}
	return total, true
}

// neighbours are the devices of another type by where they are from each device of the lead. They depend on the
// inventory and the joint scope alone.
type neighbours struct {
	samePlace [MaxDevices]uint64 // by device of the lead: those in its place
	// level has them by device of the lead and distance: 0 below one switch, 1 below several switches, 2 at one root
	// complex, 3 on one NUMA node, 4 on another or an unknown one.
	level [MaxDevices][5]uint64
}

// closest returns the devices of may with the least distance to a device of leads, a mask of devices of the lead.
func (o *neighbours) closest(may, leads uint64) (distance int, mask uint64) {
	for d := range 5 {
		for m := leads; m != 0; m &= m - 1 {
			mask |= o.level[bits.TrailingZeros64(m)][d] & may
		}
		if mask != 0 {
			return d, mask
		}
	}
	return 0, 0
}

// measureDistances fills in s.samePlace and s.others. Two devices are in one place where they are at one root complex,
// or with the joint scope SamePCIeSwitch below one bridge of it.
func (s *combination) measureDistances() {
	units := func(r *typeGroup) []unit { return s.view.units[r.first : r.first+r.n] }
	same := int64(SameRoot)
	if s.req.Joint.Scope == SamePCIeSwitch {
		same = SameBridges
	}
	s.others, s.found = make([]neighbours, len(s.rest)), make([]allotment, len(s.rest))
	lead := units(s.lead.group)
	for i := range lead {
		s.samePlace[i] = 1 << i
		for j := range lead {
			if closeness(&lead[i], &lead[j]) >= same {
				s.samePlace[i] |= 1 << j
			}
		}
		for t := range s.rest {
			others := units(s.rest[t].group)
			for j := range others {
				c := closeness(&lead[i], &others[j])
				if c >= same {
					s.others[t].samePlace[i] |= 1 << j
				}
				s.others[t].level[i][(SameSwitch-c)/10] |= 1 << j
			}
		}
	}
}

// never is the cost of an assignment that is not allowed. It is larger than the sum of all others.
const never = 1000

// costs are of rows for columns; never is the one of what is not allowed.
type costs [MaxDevices][MaxDevices]int16

// assignment is the Hungarian method: each of m rows gets one of n columns, with the least sum of costs; false where
// some row cannot have any.
func assignment(m, n int, cost *costs, to *[MaxDevices]int8) (total int64, ok bool) {
	if m > n {
		return 0, false
	}
	const most = 1 << 30
	// rows and columns are the potentials: no cost is less than the sum of its two. owner is the row of each column, 0
	// for none; a new row begins in column 0. way is the column before each one on the path that is being searched.
	var rows, columns, slack [MaxDevices + 1]int
	var owner, way [MaxDevices + 1]int
	for i := 1; i <= m; i++ {
		// Row i is added. The search ends at a column without a row; then all rows on the path move to the next column.
		owner[0] = i
		at := 0
		var seen [MaxDevices + 1]bool
		for j := range n + 1 {
			slack[j] = most
		}
		for owner[at] != 0 {
			seen[at] = true
			row, least, next := owner[at], most, 0
			for j := 1; j <= n; j++ {
				if seen[j] {
					continue
				}
				if d := int(cost[row-1][j-1]) - rows[row] - columns[j]; d < slack[j] {
					slack[j], way[j] = d, at
				}
				if slack[j] < least {
					least, next = slack[j], j
				}
			}
			for j := range n + 1 {
				if seen[j] {
					rows[owner[j]] += least
					columns[j] -= least
				} else {
					slack[j] -= least
				}
			}
			at = next
		}
		for at != 0 {
			owner[at] = owner[way[at]]
			at = way[at]
		}
	}
	for j := 1; j <= n; j++ {
		if i := owner[j]; i != 0 {
			if cost[i-1][j-1] >= never {
				return 0, false
			}
			to[i-1], total = int8(j-1), total+int64(cost[i-1][j-1])
		}
	}
	return total, true
}
