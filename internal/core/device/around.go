package device

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// mostOrders is the number of places up to which unequal bundles of a joint allocation are tried in every order.
const mostOrders = 6

const anyNodes = ^topo.NodeSet(0)

// wideNodes is the number of NUMA nodes up to which every set of them is tried for the devices beside the lead.
const wideNodes = 10

// gift is what a set of the lead gets of another type: device to[j] for want j.
type gift struct {
	mask uint64
	to   [MaxDevices]int8
}

// want is one device of another type: one of allowed, close to one of from, which are devices of the lead.
type want struct{ allowed, from uint64 }

// surround finds devices of the other types for a set of the lead on nodes, into s.found: those with the least
// distances, all together on NUMA nodes that Accept takes. It finds some where there are any, for machines with up to
// wideNodes NUMA nodes that have such devices.
func (s *search) surround(mask uint64, nodes topo.NodeSet) (total int64, ok bool) {
	total, around, ok := s.nearest(mask, anyNodes)
	if !ok || s.accepts(nodes|around) {
		return total, ok
	}
	open, limit := topo.NodeSet(0), topo.NodeSet(0)
	for t := range s.rest {
		open |= s.view.nodes(s.rest[t].rack, s.rest[t].open)
	}
	most := open.Len()
	if most > wideNodes {
		most, s.complete = 2, false
	}
	ok = false
	for k := range most + 1 {
		for within := range open.Subsets(k) {
			if !s.accepts(nodes | within) {
				continue
			}
			if d, _, found := s.nearest(mask, within); found && (!ok || d < total) {
				total, limit, ok = d, within, true
			}
		}
	}
	if ok {
		s.nearest(mask, limit)
	}
	return total, ok
}

// nearest is surround with devices on given NUMA nodes, and unknown ones.
func (s *search) nearest(mask uint64, within topo.NodeSet) (total int64, around topo.NodeSet, ok bool) {
	for t := range s.rest {
		p, n := &s.rest[t], &s.found[t]
		inside, d := ^uint64(0), int64(0)
		if within != anyNodes {
			inside = p.rack.those(func(at int) bool { return s.view.units[at].node.Within(within) })
		}
		var found bool
		switch {
		case p.all:
			n.mask = p.match
			found = n.mask != 0 && n.mask&^(p.fits[0]&inside) == 0 && p.inScope(n.mask) && p.assign(n.mask, &n.to)
		case p.scopes != nil:
			d, found = s.scoped(t, mask, inside)
		default:
			d, found = s.reach(t, mask, inside)
		}
		if !found {
			return 0, 0, false
		}
		total += d
		around |= s.view.nodes(p.rack, n.mask)
	}
	return total, around, true
}

// scoped is reach within one of the scopes that the type's hint demands.
func (s *search) scoped(t int, mask, inside uint64) (total int64, ok bool) {
	var kept gift
	for _, scope := range s.rest[t].scopes {
		if d, found := s.reach(t, mask, inside&scope); found && (!ok || d < total) {
			total, kept, ok = d, s.found[t], true
		}
	}
	s.found[t] = kept
	return total, ok
}

// reach finds devices of another type among inside.
func (s *search) reach(t int, mask, inside uint64) (total int64, ok bool) {
	p := &s.rest[t]
	var wants [MaxDevices]want
	count, groups, ok := s.wants(t, mask, p.open&inside, &wants)
	if !ok {
		return 0, false
	}
	var order [MaxDevices]int8 // bundle by want
	for j := range count {
		order[j] = int8(j)
	}
	if p.equal || groups == 0 {
		return s.settle(t, wants[:count], &order)
	}
	if count > mostOrders {
		s.complete = false
		return s.settle(t, wants[:count], &order)
	}
	var kept gift
	permute(order[:count], 0, func() {
		if d, found := s.settle(t, wants[:count], &order); found && (kept.mask == 0 || d < total) {
			total, kept = d, s.found[t]
		}
	})
	s.found[t] = kept
	return total, kept.mask != 0
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

// wants lists what a set of the lead asks of another type: in a joint allocation one device for each place of the lead,
// a root complex or the bridge below it, and more of them where the request says so; else as many as the request says,
// each close to a device of the lead. groups are those that are tied to a place. Without a scope, places without a
// device are left out; else there is none, and no device is in any other place.
func (s *search) wants(t int, mask, open uint64, list *[MaxDevices]want) (count, groups int, ok bool) {
	p, j := &s.rest[t], &s.req.Joint
	own, devices := len(p.bundles), bits.OnesCount64(mask)
	joint := p.joint && s.lead.joint
	primary := joint && j.Types[0] == p.rack.kind
	scoped := joint && j.Scope != Anywhere
	rest, union := mask, open
	if scoped {
		union = 0
	}
	for m := mask; m != 0 && joint && (scoped || !primary); {
		one := bits.TrailingZeros64(m)
		here, there := s.here[one]&mask, s.others[t].there[one]&open
		m &^= here
		switch {
		case there != 0:
		case scoped:
			return 0, 0, false
		default:
			continue
		}
		list[groups] = want{there, here}
		if own >= devices {
			list[groups].from = 1 << one
		}
		rest &^= 1 << one
		union |= there
		groups++
	}
	count = max(own, groups)
	if primary && scoped && (groups > own || devices != max(len(s.lead.bundles), groups)) {
		return 0, 0, false
	}
	if count > p.rack.n {
		return 0, 0, false
	}
	for i := groups; i < count; i++ {
		list[i] = want{union, mask}
		if own >= devices && rest != 0 {
			list[i].from = rest & -rest
			rest &= rest - 1
		}
	}
	return count, groups, true
}

// settle gives each want a device of its own, with the least distances in total.
func (s *search) settle(t int, wants []want, order *[MaxDevices]int8) (total int64, ok bool) {
	p, n, o := &s.rest[t], &s.found[t], &s.others[t]
	n.mask = 0
	for i, w := range wants { // what is nearest to each, where they do not want the same
		may := w.allowed & p.fit(int(order[i]))
		d, closest := o.nearest(may, w.from)
		if closest == 0 {
			return 0, false
		}
		if closest &^= n.mask; closest == 0 {
			return s.share(t, wants, order)
		}
		n.mask |= closest & -closest
		n.to[order[i]] = int8(bits.TrailingZeros64(closest))
		total += int64(d)
	}
	return total, true
}

// share is settle where wants compete for devices.
func (s *search) share(t int, wants []want, order *[MaxDevices]int8) (total int64, ok bool) {
	p, n, o := &s.rest[t], &s.found[t], &s.others[t]
	var cost costs
	for i, w := range wants {
		for j := range p.rack.n {
			cost[i][j] = never
		}
		for may := w.allowed & p.fit(int(order[i])); may != 0; {
			d, closest := o.nearest(may, w.from)
			for may &^= closest; closest != 0; closest &= closest - 1 {
				cost[i][bits.TrailingZeros64(closest)] = int16(d)
			}
		}
	}
	var to [MaxDevices]int8
	if total, ok = assignment(len(wants), p.rack.n, &cost, &to); !ok {
		return 0, false
	}
	n.mask = 0
	for i := range wants {
		n.mask |= 1 << to[i]
		n.to[order[i]] = to[i]
	}
	return total, true
}

// neighbours are the devices of another type as devices of the lead see them.
type neighbours struct {
	there [MaxDevices]uint64 // those in the place of a device of the lead
	// level has them by distance: 0 one switch, 1 several, 2 one root complex, 3 one NUMA node, 4 another or unknown.
	level [MaxDevices][5]uint64
}

// nearest returns the devices of may with the least distance to any of from.
func (o *neighbours) nearest(may, from uint64) (distance int, mask uint64) {
	for d := range 5 {
		for m := from; m != 0; m &= m - 1 {
			mask |= o.level[bits.TrailingZeros64(m)][d] & may
		}
		if mask != 0 {
			return d, mask
		}
	}
	return 0, 0
}

// survey finds the places and distances of all devices of a search. A place is a root complex, or the bridge below it.
func (s *search) survey() {
	units := func(r *rack) []unit { return s.view.units[r.first : r.first+r.n] }
	near := int64(SameRoot)
	if s.req.Joint.Scope == SamePCIeSwitch {
		near = SameBridges
	}
	s.others, s.found = make([]neighbours, len(s.rest)), make([]gift, len(s.rest))
	lead := units(s.lead.rack)
	for i := range lead {
		s.here[i] = 1 << i
		for j := range lead {
			if closeness(&lead[i], &lead[j]) >= near {
				s.here[i] |= 1 << j
			}
		}
		for t := range s.rest {
			others := units(s.rest[t].rack)
			for j := range others {
				c := closeness(&lead[i], &others[j])
				if c >= near {
					s.others[t].there[i] |= 1 << j
				}
				s.others[t].level[i][(SameSwitch-c)/10] |= 1 << j
			}
		}
	}
}
