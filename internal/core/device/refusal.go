package device

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Fits is Choose without the choice. It allocates nothing for a request of one container for one type without further
// demands: as many devices serve it as are counted.
func (v *View) Fits(r *Request, o *Options) Reason {
	if reason, decided := v.count(r, o); decided {
		return reason
	}
	_, reason := v.Choose(r, o)
	return reason
}

// count answers Fits for a request of one container for one type without further demands: it counts the devices that
// can serve. decided is false for any other request.
func (v *View) count(r *Request, o *Options) (reason Reason, decided bool) {
	if len(r.Parts) != 1 || len(r.Hints) > 0 || r.Partition != nil || len(v.spec.Partitions.Table) > 0 ||
		v.spec.Partitions.Policy != NoPartitionPolicy {
		return Reason{}, false
	}
	part := &r.Parts[0]
	reason = Reason{Type: part.Type, Asked: part.Count}
	group := v.group(part.Type)
	if group == nil || part.Count > int64(group.n) {
		return Reason{}, false
	}
	s, p, b := search{view: v, req: r, opt: o}, pick{group: group}, [...]*Part{part}
	for i := range group.n {
		if u := &v.units[group.first+i]; u.Healthy && u.offered && s.serves(&p, b[:], i) {
			reason.Free++
		}
	}
	if reason.Free >= reason.Asked {
		return Reason{}, o.Accept == nil
	}
	if s.describe(&p, &reason); reason.OK() {
		reason.Code = why.InsufficientDevices
	}
	return reason, true
}

// refusal finds the first reason why nothing was found: what each type lacks by itself, then what they lack together.
func (v *View) refusal(r *Request, o *Options) Reason {
	s := v.search(r, o)
	if t := s.lacking.Type; s.lacking.Code == why.InsufficientDevices { // more than the node has in all
		p := pick{group: v.group(t), hint: r.Hints[t], bundles: []bundle{{&r.partsOf(t)[0]}}}
		s.prepare(&p)
		s.lacking.Free = int64(bits.OnesCount64(p.open))
		s.describe(&p, &s.lacking)
		s.lacking.Code = why.InsufficientDevices
	}
	if s.lacking.Code != why.None {
		return s.lacking
	}
	for i, t := range s.types {
		if reason := s.alone(i, t); !reason.OK() {
			return reason
		}
	}
	anywhere := *s.opt
	anywhere.Accept = nil
	if _, found := v.search(r, &anywhere).first(); found {
		return Reason{Code: why.InsufficientNUMADevices, Type: s.types[0]}
	}
	return Reason{Code: why.DeviceJointAllocation, Type: s.types[0]}
}

// alone asks for one type of a request, in the way with the fewest devices.
func (s *search) alone(i int, t Type) Reason {
	p := pick{group: s.view.group(t), hint: s.req.Hints[t], all: s.req.forAll(t)}
	reason := Reason{Type: t}
	for _, bundles := range s.packings[i] {
		p.bundles = bundles
		s.prepare(&p)
		if n := int64(bits.OnesCount64(p.open)); reason.Asked == 0 || n > reason.Free {
			reason.Asked, reason.Free = int64(len(bundles)), n
		}
		reason.InScope = 0
		for _, scope := range p.scopes {
			reason.InScope = max(reason.InScope, int64(bits.OnesCount64(p.open&scope)))
		}
		if reason.Free >= reason.Asked && !slices.Contains(p.fits, 0) {
			break
		}
	}
	if p.all {
		reason.Asked = int64(bits.OnesCount64(p.match))
	}
	if s.describe(&p, &reason); !reason.OK() {
		return reason
	}
	only := *s.req
	only.Parts, only.Joint = s.req.partsOf(t), Joint{}
	anywhere := *s.opt
	anywhere.Accept = nil
	if _, found := s.view.search(&only, &anywhere).first(); found {
		return Reason{}
	}
	switch {
	case reason.Free < max(reason.Asked, 1), p.all:
		reason.Code = why.InsufficientDevices
	case p.scopes != nil && reason.InScope < reason.Asked:
		reason.Code = why.InsufficientScopedDevices
	case p.tabled() && (s.req.Partition != nil || s.view.spec.Partitions.Policy != NoPartitionPolicy):
		reason.Code = why.InsufficientPartitions
	default:
		reason.Code = why.InsufficientDevices
	}
	return reason
}

// never finds what no free device would change.
func (s *search) never(p *pick) why.Code {
	r := p.group
	divisible, vfs, templates, shares, missing := false, false, true, false, false
	units := s.view.units[r.first : r.first+r.n]
	for i := range units {
		divisible = divisible || !slices.Contains(s.opt.WholeOnly, units[i].Model)
		vfs = vfs || p.hint.VF == nil || p.hint.hasVF(&units[i].Device)
	}
	for _, part := range s.req.partsOf(r.kind) {
		shares = shares || !part.Need.Whole
		matched, there := !part.Need.Template, false
		for i := range units {
			matched = matched || s.template(&part.Need, &units[i]) != nil
			there = there || units[i].offered && part.Need.accepts(&units[i])
		}
		templates, missing = templates && matched, missing || !there
	}
	asked, table := s.req.Partition, s.view.spec.Partitions
	byTable := p.tabled() && (asked != nil || table.Policy == HonorPartitions)
	switch {
	case missing:
		return why.DeviceMissing
	case !templates:
		return why.SharedTemplateMissing
	case shares && r.kind == GPU && !divisible:
		return why.DeviceShareUnsupported
	case !vfs:
		return why.VirtualFunctionsMissing
	case byTable && len(table.Table) == 0 && (asked == nil || asked.Restricted || table.Policy == HonorPartitions):
		return why.PartitionTableMissing
	case byTable && len(table.Table) > 0 && !slices.ContainsFunc(s.view.sets, func(row partition) bool {
		return bits.OnesCount64(row.mask) == len(p.bundles)
	}):
		return why.PartitionCountUnsupported
	}
	return why.None
}

// describe adds what is free of a type, and the reason that no free device would change, if there is one.
func (s *search) describe(p *pick, r *Reason) {
	r.Code = s.never(p)
	r.Whole = int64(bits.OnesCount64(s.view.untouched(p.group)))
	if r.Model = s.view.units[p.group.first].Model; r.Code == why.SharedTemplateMissing {
		var names []string
		for _, t := range s.opt.Templates {
			if t.Model == r.Model {
				names = append(names, t.Name)
			}
		}
		r.Model = strings.Join(names, ", ")
	}
	for i := range p.group.n {
		free := s.view.free(p.group.first + i)
		if main, best := free[Cores]+free[Share], r.Best[Cores]+r.Best[Share]; main > best ||
			main == best && free[Bytes] > r.Best[Bytes] {
			r.Best = free
		}
	}
}

// Reason says why a request gets no devices of a node. The zero value is "no reason".
type Reason struct {
	Code    why.Code
	Type    Type
	Asked   int64  // devices
	Free    int64  // devices that could serve the request
	Whole   int64  // devices that no pod has a part of
	InScope int64  // InsufficientScopedDevices: the most of Free in one scope
	Best    Vector // the most that one device has free, by cores or share and then bytes
	Model   string // DeviceShareUnsupported; the names of all templates where none matched
}

// OK reports whether r is the zero value.
func (r Reason) OK() bool { return r.Code == why.None }
