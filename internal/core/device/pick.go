package device

import (
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Template is a part of a device that its maker allows. A request for one must be equal to it.
type Template struct {
	// Model is the model of the devices that the template divides.
	Name, Model string
	Amount      Vector
	Ratio       int64
}

// Options are what a choice depends on besides the account and the request.
type Options struct {
	// Accept reports whether the rest of the pod can be had on NUMA nodes, or on others in addition to them where the
	// policy allows that. What accepts a set accepts its subsets; the empty set asks nothing. nil accepts all.
	Accept func(topo.NodeSet) bool
	Demand Demand
	// Worth ranks devices for a share of one, higher is better; nil ranks all alike.
	Worth     func(Type, string) int64
	Templates []Template
	WholeOnly []string // models whose devices are not shared
	// Within has the IDs of GPUs that Choose takes, where these serve the request; others where they do not. What it
	// leaves of them is valued, not what is left of all.
	Within map[string]bool
}

// pick is one type of a search: what is asked of it, and which devices could serve.
type pick struct {
	group *typeGroup
	hint  Hint
	// all is true if every device that matches gets the one bundle, as with the strategy ApplyForAll.
	all bool
	// joint is true if the type takes part in the joint allocation of the request.
	joint bool
	// bundles are what the pod takes of each device, one bundle a device.
	bundles []bundle
	// fits has the devices that can serve each bundle; equal is true if all bundles need the same.
	fits   []uint64
	equal  bool     // the bundles are
	open   uint64   // devices of any bundle
	match  uint64   // devices that hints allow and that are healthy, whatever is free
	scopes []uint64 // all devices are within one of these; nil asks nothing
}

// prepare finds the devices that can serve each bundle.
func (s *search) prepare(p *pick) {
	v := s.view
	p.fits, p.open, p.equal, p.scopes = make([]uint64, len(p.bundles)), 0, true, nil
	within := s.within(p.group)
	if s.degradable(p) == 0 {
		within &^= p.group.degraded
	}
	p.match = within & p.group.those(func(at int) bool { return v.matches(p, at) })
	for b := range p.bundles {
		if b > 0 && p.bundles[b].equal(p.bundles[b-1]) {
			p.fits[b] = p.fits[b-1]
			continue
		}
		p.equal = b == 0
		for m := p.match; m != 0; m &= m - 1 {
			if i := bits.TrailingZeros64(m); s.serves(p, p.bundles[b], i) {
				p.fits[b] |= 1 << i
			}
		}
		p.open |= p.fits[b]
	}
	switch p.hint.Scope {
	case DeviceLevel:
		for i := range p.group.n {
			p.scopes = append(p.scopes, 1<<i)
		}
	case PCIeLevel:
		p.scopes = p.group.pcie
	case NUMALevel:
		p.scopes = p.group.numa
	}
}

// matches reports whether a unit works, and its labels and those of its VFs are asked for.
func (v *View) matches(p *pick, at int) bool {
	u := &v.units[at]
	return u.Healthy && u.offered && p.hint.Selector.Matches(u.Labels) &&
		(p.hint.VF == nil || p.hint.hasVF(&u.Device))
}

// serves reports whether device i of a group can serve a bundle: every dimension is free, and every hard rule about the
// device holds.
func (s *search) serves(p *pick, b bundle, i int) bool {
	v, at := s.view, p.group.first+i
	u := &v.units[at]
	for _, part := range b {
		n := &part.Need
		switch {
		case !n.accepts(u),
			u.blind && n.Amount[Bytes] > 0,
			n.Template && (len(b) > 1 || s.template(n, u) == nil),
			!n.Whole && u.Type == GPU && slices.Contains(s.opt.WholeOnly, u.Model):
			return false
		}
	}
	need, free := b.on(u), v.free(at)
	if !need.Within(&free) || b.whole() && v.states[at].holders > 0 {
		return false
	}
	if p.hint.VF != nil && v.vf(p, i) == "" {
		return false
	}
	switch p.hint.Exclusive {
	case DeviceLevel:
		return v.states[at].holders == 0
	case PCIeLevel:
		beside := func(at int) bool { return v.units[at].pcie == u.pcie && v.states[at].holders > 0 }
		return u.pcie >= 0 && p.group.those(beside) == 0
	}
	return true
}

// accepts reports whether a device is one of those that are asked for by vendor and profile.
func (n *Need) accepts(u *unit) bool {
	return n.Profile == u.Profile && (n.Vendor == "" || u.Vendor == "" || n.Vendor == u.Vendor)
}

// template returns the template of a unit's model that is equal to a need; nil if there is none.
func (s *search) template(n *Need, u *unit) *Template {
	i := slices.IndexFunc(s.opt.Templates, func(t Template) bool {
		return t.Model == u.Model && t.Amount == n.Amount && t.Ratio == n.Ratio
	})
	if i < 0 {
		return nil
	}
	return &s.opt.Templates[i]
}

// vf returns the free virtual function with the lowest address that is asked for; "" for none.
func (v *View) vf(p *pick, i int) string {
	lowest, used := "", v.states[p.group.first+i].vfs
	for _, vf := range v.units[p.group.first+i].VFs {
		if _, taken := slices.BinarySearch(used, vf.Bus); !taken && p.hint.VF.Matches(vf.Labels) &&
			(lowest == "" || vf.Bus < lowest) {
			lowest = vf.Bus
		}
	}
	return lowest
}

// untouched are the devices of a group of which a pod could have all.
func (v *View) untouched(r *typeGroup) uint64 {
	return r.those(func(at int) bool { return v.offers(at) && v.states[at].holders == 0 })
}

// nodes are the NUMA nodes of devices of a group.
func (inv *Inventory) nodes(r *typeGroup, mask uint64) topo.NodeSet {
	var nodes topo.NodeSet
	for ; mask != 0; mask &= mask - 1 {
		nodes |= inv.units[r.first+bits.TrailingZeros64(mask)].node
	}
	return nodes
}

// inScope reports whether devices are in one of the scopes that are demanded.
func (p *pick) inScope(mask uint64) bool {
	return p.scopes == nil ||
		slices.ContainsFunc(p.scopes, func(scope uint64) bool { return mask&^scope == 0 })
}

// assign gives bundles to the devices of mask, one each, and those beyond the bundles to the first; to[j] is the
// device of bundle j. It finds a way where there is one.
func (p *pick) assign(mask uint64, to *[MaxDevices]int8) bool {
	if p.equal {
		for j := 0; mask != 0; j, mask = j+1, mask&(mask-1) {
			to[j] = int8(bits.TrailingZeros64(mask))
		}
		return true
	}
	var cost costs
	k := bits.OnesCount64(mask)
	for j := range k {
		for i := range p.group.n {
			if cost[j][i] = never; mask&p.fit(j)>>i&1 != 0 {
				cost[j][i] = 0
			}
		}
	}
	_, ok := assignment(k, p.group.n, &cost, to)
	return ok
}

// fit returns the devices for want j: a want beyond the bundles is one more of the first.
func (p *pick) fit(j int) uint64 {
	if j < len(p.fits) {
		return p.fits[j]
	}
	return p.fits[0]
}

// bundle returns what want j takes.
func (p *pick) bundle(j int) bundle {
	if j < len(p.bundles) {
		return p.bundles[j]
	}
	return p.bundles[0]
}
