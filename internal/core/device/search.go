package device

import (
	"iter"
	"math/bits"
	"reflect"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Sets yields the sets of devices that serve a request, best first, each with all of its devices. It searches anew for
// each: readers take a few. Containers share devices as far as that is feasible; other ways are tried where none is.
// Each set is searched from the start of its walk, without the sets that were returned before.
func (v *View) Sets(r *Request, o *Options) iter.Seq[Choice] {
	return func(yield func(Choice) bool) {
		v.search(r, o).each(func(s *combination) bool {
			seen := map[uint64]bool{} // a set may be in the table and free
			for _, w := range s.walks() {
				w.interchangeable = nil
				other := func(k Keys) (Keys, bool) {
					if seen[k.Mask] {
						return k, false
					}
					return s.check(k)
				}
				for {
					w.at = 0
					keys, found := w.best(s.left, s.opt.Demand.orEqual(), other)
					if !found {
						break
					}
					if seen[keys.Mask] = true; !yield(s.choice(&keys, w)) {
						return true
					}
				}
			}
			return len(seen) > 0
		})
	}
}

// Choose returns the best set of devices for a request, or says why there is none. A request without devices gets the
// zero Choice.
func (v *View) Choose(r *Request, o *Options) (Choice, Reason) {
	s := v.search(r, o)
	if len(s.types) == 0 {
		return Choice{}, Reason{}
	}
	if chosen, found := s.first(); found {
		return chosen, Reason{}
	}
	if s.opt.Within != nil {
		anywhere := *s.opt
		anywhere.Within = nil
		return v.Choose(r, &anywhere)
	}
	return Choice{}, v.refusal(r, o)
}

// first returns the best choice of the first combination of packings that has one.
func (s *search) first() (chosen Choice, found bool) {
	s.each(func(s *combination) bool {
		for _, w := range s.walks() {
			var keys Keys
			if keys, found = w.best(s.left, s.opt.Demand.orEqual(), s.check); found {
				chosen = s.choice(&keys, w)
				return true
			}
		}
		return false
	})
	return chosen, found
}

// search is one request on one account.
type search struct {
	view *View
	req  *Request
	opt  *Options // never nil
	// types are those of the request, the lead first.
	types []Type
	// packings are the ways in which the containers of the request share devices, by type, in the order in which they
	// are tried.
	packings [][][]bundle
	lacking  Reason // why a type has no packing; then nothing is searched
	// complete is set while all packings, and all sets, are looked at. Else the Choice is Approximate.
	complete bool
	// limit is how many degraded devices the lead may have; below 0 the other types have none either. each raises it.
	limit int
	// answers are those of Accept, which may be dear and depends on the NUMA nodes alone.
	answers map[topo.NodeSet]bool
}

// combination is one way in which the containers of the request share devices of each type. Masks are of devices by
// their index in the group of their type.
type combination struct {
	*search
	lead      *pick              // the type whose sets are enumerated
	rest      []pick             // the other types, whose devices follow a set of the lead
	left      uint64             // devices of the lead that are untouched
	samePlace [MaxDevices]uint64 // devices of the lead in the place of each
	others    []neighbours       // by other type
	found     []allotment        // what chooseCompanions has chosen last, by other type
}

// search prepares a search: the packings of each type, or why one has none.
func (v *View) search(r *Request, o *Options) *search {
	s := &search{view: v, req: r, opt: o, types: r.Types(), complete: true, limit: MaxDevices}
	if o == nil {
		s.opt = &Options{}
	}
	s.order()
	for _, t := range s.types {
		group := v.group(t)
		if group == nil {
			s.lacking = Reason{Code: why.DeviceMissing, Type: t}
			return s
		}
		parts, asked := r.partsOf(t), int64(0)
		for _, p := range parts {
			asked = max(asked, p.Count)
		}
		switch {
		case r.forAll(t):
			var all bundle
			for i := range parts {
				all = append(all, &parts[i])
			}
			s.packings = append(s.packings, [][]bundle{{all}})
			continue
		case asked > int64(group.n):
			s.lacking = Reason{Code: why.InsufficientDevices, Type: t, Asked: asked, Free: int64(group.n)}
			return s
		}
		list, complete := packings(parts, group.n)
		if len(list) == 0 {
			s.lacking = Reason{Code: why.InsufficientDevices, Type: t, Asked: int64(group.n) + 1, Free: int64(group.n)}
			return s
		}
		s.packings, s.complete = append(s.packings, list), s.complete && complete
	}
	return s
}

// order puts the type whose sets are enumerated first: GPUs, unless they take no part in a joint allocation; else its
// primary type; else any that does not get all devices.
func (s *search) order() {
	first := 0
	if joint := s.req.Joint.Types; len(joint) > 0 && !slices.Contains(joint, GPU) {
		first = slices.Index(s.types, joint[0])
	} else if i := slices.IndexFunc(s.types, func(t Type) bool { return !s.req.forAll(t) }); i > 0 {
		first = i
	}
	if first > 0 {
		t := s.types[first]
		s.types = slices.Insert(slices.Delete(slices.Clone(s.types), first, first+1), 0, t)
	}
}

// each calls try with every combination of packings until it returns true: first for sets without degraded devices,
// then for sets with as few as possible.
func (s *search) each(try func(*combination) bool) {
	if s.lacking.Code != why.None || len(s.types) == 0 {
		return
	}
	picks := make([]pick, len(s.types))
	var from func(i int) bool
	from = func(i int) bool {
		if i == len(picks) {
			return try(s.combine(picks))
		}
		t := s.types[i]
		for _, bundles := range s.packings[i] {
			picks[i] = pick{
				group: s.view.group(t), hint: s.req.Hints[t], all: s.req.forAll(t), bundles: bundles,
				joint: slices.Contains(s.req.Joint.Types, t),
			}
			s.prepare(&picks[i])
			if slices.Contains(picks[i].fits, 0) && !picks[i].all {
				continue
			}
			if from(i + 1) {
				return true
			}
		}
		return false
	}
	for first, end := s.limits(); first < end; first++ {
		if s.limit = first; from(0) {
			return
		}
	}
	s.limit = MaxDevices
	from(0)
}

// limits are the first limit and the first one that allows all sets.
func (s *search) limits() (first, end int) {
	for i, t := range s.types {
		switch n := bits.OnesCount64(s.view.group(t).degraded); {
		case i == 0:
			end = n
		case n > 0:
			first = -1
		}
	}
	return first, end
}

// degradable is how many degraded devices of a type a set may have.
func (s *search) degradable(p *pick) int {
	switch {
	case p.all:
		return MaxDevices
	case p.group.kind == s.types[0]:
		return max(s.limit, 0)
	case s.limit < 0:
		return 0
	}
	return MaxDevices
}

// combine returns a combination of packings.
func (s *search) combine(picks []pick) *combination {
	c := &combination{search: s, lead: &picks[0], rest: picks[1:]}
	c.left = s.view.untouched(c.lead.group) & s.within(c.lead.group)
	if len(c.rest) > 0 {
		c.measureDistances()
	}
	return c
}

// walks are the ways through the sets of the lead: of each number of devices that the request can mean, first those of
// its partition table, then free ones.
func (s *combination) walks() []*walk {
	p, fine := s.lead, len(s.rest) == 0
	if p.all {
		return []*walk{p.group.class.listed([]Keys{p.group.class.keys(p.match)})}
	}
	var list []*walk
	for k := len(p.bundles); k <= s.most(); k++ {
		partitions, free := s.partitions(k)
		if partitions != nil {
			list = append(list, partitions)
		}
		if free {
			w := &walk{class: p.group.class, open: p.open, k: k}
			apart := uint64(0)
			switch alone := fine && p.scopes == nil; {
			case !p.bundles[0].whole() || !p.equal:
				apart = p.open // shares of equal devices differ by what is free
			case p.group.degraded != 0:
				apart = p.group.degraded
			case alone:
				w.interchangeable = w.class.peers
			default:
				w.interchangeable = w.class.groups
			}
			if w.class.order == nil {
				w = w.class.many(p.open, apart, k, p.scopes...)
			}
			list = append(list, w)
		}
	}
	for _, w := range list {
		w.fine = fine
	}
	return list
}

// most is the largest number of devices of the lead. It is more than what is asked for where another type is the
// primary one of a joint allocation within a scope: then it follows the number of that type's places.
func (s *combination) most() int {
	own := len(s.lead.bundles)
	if j := &s.req.Joint; j.Scope != Anywhere && s.lead.joint && j.Types[0] != s.lead.group.kind {
		for i := range s.rest {
			if s.rest[i].group.kind == j.Types[0] {
				return max(own, min(len(s.rest[i].bundles), s.lead.group.n))
			}
		}
	}
	return own
}

// check applies the hard rules to a set of the lead, the cheap ones first, and fills in the keys that depend on the
// account.
func (s *combination) check(k Keys) (Keys, bool) {
	p, nodes := s.lead, s.view.nodes(s.lead.group, k.Mask)
	var to [MaxDevices]int8
	if k.Mask == 0 || bits.OnesCount64(k.Mask&p.group.degraded) > s.degradable(p) ||
		p.all && k.Mask&^p.fits[0] != 0 || !p.inScope(k.Mask) || !s.carries(&k) ||
		!p.equal && !p.assign(k.Mask, &to) || !s.accepts(nodes) {
		return k, false
	}
	ok := true
	if len(s.rest) > 0 {
		k.NICs, ok = s.chooseCompanions(k.Mask, nodes)
	}
	k.Worth, k.Spare = s.shared(k.Mask)
	return k, ok
}

// accepts asks Accept, each question once.
func (s *search) accepts(nodes topo.NodeSet) bool {
	if s.opt.Accept == nil {
		return true
	}
	answer, known := s.answers[nodes]
	if !known {
		if s.answers == nil {
			s.answers = map[topo.NodeSet]bool{}
		}
		answer = s.opt.Accept(nodes)
		s.answers[nodes] = answer
	}
	return answer
}

// shared are the keys of shares of a set: their worth, and how much of the devices is free.
func (s *combination) shared(mask uint64) (worth, spare int64) {
	if s.lead.bundles[0].whole() && s.lead.equal {
		return 0, 0
	}
	for ; mask != 0; mask &= mask - 1 {
		at := s.lead.group.first + bits.TrailingZeros64(mask)
		u, free := &s.view.units[at], s.view.free(at)
		if u.Type == GPU {
			spare += min(1000*free[Cores]/max(u.Total[Cores], 1), 1000*free[Bytes]/u.Total[Bytes])
		} else {
			spare += 1000 * free[Share] / u.Total[Share]
		}
		if s.opt.Worth != nil {
			worth += s.opt.Worth(u.Type, u.ID)
		}
	}
	return worth, spare
}

// Union returns the best-linked set of GPUs that several requests could have together, by ID, and its keys; ok is
// false where they do not all ask for whole GPUs of one kind, or so many are not free. A request that chooses within it
// leaves the others what is best linked of the rest.
func (v *View) Union(requests []*Request, o *Options) (ids map[string]bool, keys Keys, ok bool) {
	all := &Request{}
	for _, r := range requests {
		parts := r.partsOf(GPU)
		if len(parts) == 0 {
			continue
		}
		group := v.group(GPU)
		if group == nil || slices.ContainsFunc(parts, func(p Part) bool { return !p.Need.Whole }) {
			return nil, Keys{}, false
		}
		packed, _ := packings(parts, group.n)
		part := Part{Type: GPU, Need: parts[0].Need}
		switch {
		case len(packed) == 0:
			return nil, Keys{}, false
		case len(all.Parts) == 0:
			all.Parts = []Part{part}
			all.Hints = map[Type]Hint{GPU: r.Hints[GPU]}
		case part.Need != all.Parts[0].Need || !reflect.DeepEqual(r.Hints[GPU], all.Hints[GPU]):
			return nil, Keys{}, false
		}
		all.Parts[0].Count += int64(len(packed[0]))
	}
	if len(all.Parts) == 0 {
		return nil, Keys{}, false
	}
	chosen, refused := v.Choose(all, o)
	if refused.Code != why.None {
		return nil, Keys{}, false
	}
	ids = map[string]bool{}
	group := v.group(GPU)
	for mask := chosen.Keys.Mask; mask != 0; mask &= mask - 1 {
		ids[v.units[group.first+bits.TrailingZeros64(mask)].ID] = true
	}
	return ids, chosen.Keys, true
}

// within returns the devices of a group that are to be chosen.
func (s *search) within(r *typeGroup) uint64 {
	if s.opt.Within == nil || r.kind != GPU {
		return ^uint64(0)
	}
	return r.those(func(at int) bool { return s.opt.Within[s.view.units[at].ID] })
}
