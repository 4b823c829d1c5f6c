package device_test

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// oracle tries every set of devices for every container.
type oracle struct {
	v       *device.View
	r       *device.Request
	accept  func(topo.NodeSet) bool
	devices map[device.Type][]device.Status
	vfs     map[string]bool // in use
}

func newOracle(v *device.View, r *device.Request, accept func(topo.NodeSet) bool) *oracle {
	o := &oracle{v: v, r: r, accept: accept, devices: map[device.Type][]device.Status{}, vfs: map[string]bool{}}
	for d := range v.Devices() {
		o.devices[d.Type] = append(o.devices[d.Type], d)
	}
	for h := range v.Holdings() {
		for _, g := range h.Grants {
			for _, vf := range g.VFs {
				o.vfs[vf] = true
			}
		}
	}
	return o
}

// sets returns the feasible sets of the type whose sets are enumerated, by index.
func (o *oracle) sets(lead device.Type) map[uint64]bool {
	out := map[uint64]bool{}
	o.extend(0, map[device.Type][][]*device.Part{}, func(load map[device.Type][][]*device.Part) {
		if o.feasible(load) {
			out[maskOf(load[lead])] = true
		}
	})
	return out
}

func maskOf(load [][]*device.Part) uint64 {
	mask := uint64(0)
	for i := range load {
		if len(load[i]) > 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// extend chooses devices for the parts from i on.
func (o *oracle) extend(i int, load map[device.Type][][]*device.Part, visit func(map[device.Type][][]*device.Part)) {
	if i == len(o.r.Parts) {
		visit(load)
		return
	}
	p := &o.r.Parts[i]
	n := len(o.devices[p.Type])
	for mask := range uint64(1) << n {
		size := int64(bits.OnesCount64(mask))
		grows := slices.Contains(o.r.Joint.Types, p.Type) && o.r.Joint.Scope != device.Anywhere
		switch {
		case o.forAll(p.Type) && mask != o.matching(p.Type), o.forAll(p.Type) && mask == 0:
			continue
		case !o.forAll(p.Type) && (size < p.Count || size > p.Count && !grows):
			continue
		}
		was := load[p.Type]
		next := make([][]*device.Part, n)
		for d := range n {
			if was != nil {
				next[d] = slices.Clone(was[d])
			}
			if mask>>d&1 != 0 {
				next[d] = append(next[d], p)
			}
		}
		load[p.Type] = next
		o.extend(i+1, load, visit)
		load[p.Type] = was
	}
}

func (o *oracle) forAll(t device.Type) bool {
	return t != device.GPU && o.r.Hints[t].Strategy == device.ApplyForAll
}

func (o *oracle) matching(t device.Type) uint64 {
	mask := uint64(0)
	for i, d := range o.devices[t] {
		h := o.r.Hints[t]
		has := func(vf device.VF) bool { return h.VF.Matches(vf.Labels) }
		if d.Healthy && h.Selector.Matches(d.Labels) && (h.VF == nil || slices.ContainsFunc(d.VFs, has)) {
			mask |= 1 << i
		}
	}
	return mask
}

// feasible applies every hard rule to a complete load.
func (o *oracle) feasible(load map[device.Type][][]*device.Part) bool {
	var nodes topo.NodeSet
	for t, amounts := range load {
		for i, parts := range amounts {
			if len(parts) > 0 {
				nodes |= o.v.NodesOf(t, o.devices[t][i].ID)
				if !o.fits(t, i, parts) {
					return false
				}
			}
		}
		if !o.inScope(t, maskOf(amounts)) {
			return false
		}
	}
	return (o.accept == nil || o.accept(nodes)) && o.joint(load)
}

// fits adds up what runs at one time on a device.
func (o *oracle) fits(t device.Type, i int, parts []*device.Part) bool {
	d, h := &o.devices[t][i], o.r.Hints[t]
	for _, p := range parts {
		n := p.Need
		if n.Vendor != "" && d.Vendor != "" && n.Vendor != d.Vendor ||
			d.Total[device.Bytes] == 100 && n.Amount[device.Bytes] > 0 {
			return false
		}
		var now device.Vector
		for _, q := range parts {
			with := p == q || q.Role == device.Sidecar && (p.Role != device.Init || before(o.r, q, p)) ||
				p.Role != device.Init && q.Role != device.Init
			if !with {
				continue
			}
			if q.Need.Whole && d.Holders > 0 {
				return false
			}
			for dim, x := range q.Need.Amount {
				now[dim] += x
			}
			if q.Need.Whole {
				now[device.Cores] += d.Total[device.Cores]
				now[device.Bytes] += d.Total[device.Bytes]
			} else if t == device.GPU {
				now[device.Bytes] += d.Total[device.Bytes] * q.Need.Ratio / 100
			}
		}
		if t == device.GPU {
			now[device.Slots] = int64(len(parts))
		}
		if !now.Within(&d.Free) {
			return false
		}
	}
	if !h.Selector.Matches(d.Labels) || h.Exclusive == device.DeviceLevel && d.Holders > 0 {
		return false
	}
	if h.Exclusive == device.PCIeLevel {
		if place(d, device.SamePCIe) == "" {
			return false
		}
		for j := range o.devices[t] {
			other := &o.devices[t][j]
			if place(other, device.SamePCIe) == place(d, device.SamePCIe) && other.Holders > 0 {
				return false
			}
		}
	}
	return h.VF == nil || slices.ContainsFunc(d.VFs, func(vf device.VF) bool {
		return h.VF.Matches(vf.Labels) && !o.vfs[vf.Bus]
	})
}

func before(r *device.Request, a, b *device.Part) bool {
	for i := range r.Parts {
		switch &r.Parts[i] {
		case a:
			return true
		case b:
			return false
		}
	}
	return false
}

// place names where a device is: its root complex, or the bridge below it.
func place(d *device.Status, scope device.JointScope) string {
	switch {
	case scope == device.SamePCIeSwitch && len(d.Bridges) > 1:
		return d.Bridges[0] + d.Bridges[1]
	case scope == device.SamePCIeSwitch:
		return ""
	case d.PCIe == "" && len(d.Bridges) > 0:
		return d.Bridges[0]
	}
	return d.PCIe
}

func (o *oracle) inScope(t device.Type, mask uint64) bool {
	list := members(mask)
	for _, i := range list {
		for _, j := range list {
			a, b := &o.devices[t][i], &o.devices[t][j]
			na, nb := o.v.NodesOf(t, a.ID), o.v.NodesOf(t, b.ID)
			switch scope := o.r.Hints[t].Scope; {
			case i == j:
			case scope == device.DeviceLevel,
				scope == device.PCIeLevel && (place(a, device.SamePCIe) == "" ||
					place(a, device.SamePCIe) != place(b, device.SamePCIe)),
				scope == device.NUMALevel && na != 0 && nb != 0 && na != nb:
				return false
			}
		}
	}
	return true
}

// joint checks the places of both types, and how many devices they mean.
func (o *oracle) joint(load map[device.Type][][]*device.Part) bool {
	j := o.r.Joint
	if len(j.Types) == 0 || j.Scope == device.Anywhere {
		return true
	}
	places := map[device.Type]map[string]bool{}
	count := map[device.Type]int{}
	for _, t := range j.Types {
		places[t] = map[string]bool{}
		for _, i := range members(maskOf(load[t])) {
			places[t][place(&o.devices[t][i], j.Scope)] = true
			count[t]++
		}
	}
	a, b := places[j.Types[0]], places[j.Types[1]]
	if len(a) != len(b) || a[""] || b[""] {
		return false
	}
	for p := range a {
		if !b[p] {
			return false
		}
	}
	return count[j.Types[0]] == o.own(j.Types[0]) && count[j.Types[1]] == max(o.own(j.Types[1]), len(a))
}

func (o *oracle) own(t device.Type) int {
	for _, p := range o.r.Parts {
		if p.Type == t {
			return int(p.Count)
		}
	}
	return 0
}

// leadOf is the type whose sets are enumerated.
func leadOf(r *device.Request) device.Type {
	if j := r.Joint.Types; len(j) > 0 && !slices.Contains(j, device.GPU) {
		return j[0]
	}
	for _, t := range r.Types() {
		if t == device.GPU || r.Hints[t].Strategy != device.ApplyForAll {
			return t
		}
	}
	return r.Parts[0].Type
}

// inUse fills a random server with random pods.
func inUse(t *rapid.T, s *server) *device.View {
	v := device.NewView(inventory(t, &s.spec), slices.Values([]*device.Holding(nil)))
	for i := range s.rng.IntN(4) {
		_, r := drawRequest(t, s.rng, dpu())
		if c, reason := v.Choose(r, nil); reason.OK() {
			v = v.With(&device.Holding{UID: string(rune('a' + i)), Grants: c.Grants})
		}
	}
	return v
}

// TestSetsAreAllThatIsFeasible is P7 and the half of P3 that devices have: with any hints, joint rules and NUMA nodes
// that the rest of the pod accepts, exactly the feasible sets are found.
func TestSetsAreAllThatIsFeasible(t *testing.T) {
	t.Parallel()
	found, refused, joint := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 4, 4)
		v := inUse(t, s)
		p, r := drawRequest(t, s.rng, dpu())
		if len(r.Parts) == 0 {
			return
		}
		var o device.Options
		if s.rng.IntN(2) == 0 {
			allowed := []topo.NodeSet{topo.NodeSet(s.rng.IntN(4)), topo.NodeSet(s.rng.IntN(4))}
			o.Accept = func(n topo.NodeSet) bool { return n.Within(allowed[0]) || n.Within(allowed[1]) }
		}
		chosen, reason := v.Choose(r, &o)
		if fits := v.Fits(r, &o); fits != reason {
			t.Fatalf("Fits says %+v, Choose says %+v", fits, reason)
		}
		if reason.OK() != (len(chosen.Grants) > 0) {
			t.Fatalf("%+v: chosen %+v, reason %+v", p, chosen, reason)
		}
		several := map[device.Type]int{}
		for _, part := range r.Parts {
			several[part.Type]++
		}
		for _, kind := range r.Joint.Types {
			if several[kind] > 1 && r.Joint.Scope != device.Anywhere {
				return // which containers have the devices that are added is not fixed
			}
		}
		lead := leadOf(r)
		if len(r.Joint.Types) > 0 {
			joint++
		}
		want := newOracle(v, r, o.Accept).sets(lead)
		if one, _ := v.Untabled().Choose(r, &o); len(one.Grants) > 0 != (len(want) > 0) || one.Approximate ||
			len(want) > 0 && !want[one.Keys.Mask] {
			t.Fatalf("%+v: without tables %+v, feasible sets %v", p, one, want)
		}
		if reason.OK() != (len(want) > 0) {
			t.Fatalf("%+v\non %+v\nwith %v:\ngot %+v %+v, feasible sets %v", p, s.spec,
				slices.Collect(v.Devices()), chosen, reason, want)
		}
		if !reason.OK() {
			refused++
			return
		}
		found++
		if !want[chosen.Keys.Mask] {
			t.Fatalf("%+v: chose %b, feasible %v", p, chosen.Keys.Mask, want)
		}
		if refusal := v.Admits(&device.Holding{UID: "new", Grants: chosen.Grants}); !refusal.OK() {
			t.Fatalf("%+v: chosen %+v is not admitted: %+v", p, chosen.Grants, refusal)
		}
		if o.Accept != nil && !o.Accept(chosen.Nodes) {
			t.Fatalf("%+v: chose NUMA nodes %v", p, chosen.Nodes)
		}
		checkSets(t, v, r, &o, chosen, want)
	})
	if found < cases/4 || refused < cases/10 || joint < cases/20 {
		t.Errorf("found %d, refused %d, joint %d of %d cases", found, refused, joint, cases)
	}
}

// checkSets compares the sequence of sets with what is feasible: sorted, each once, the first is the one chosen, and,
// where containers cannot share devices in several ways, all of them.
func checkSets(t *rapid.T, v *device.View, r *device.Request, o *device.Options, chosen device.Choice,
	want map[uint64]bool,
) {
	seen := map[uint64]bool{}
	var last device.Keys
	for c := range v.Sets(r, o) {
		switch {
		case len(seen) == 0 && c.Keys != chosen.Keys:
			t.Fatalf("chosen %+v, first %+v", chosen.Keys, c.Keys)
		case len(seen) > 0 && c.Keys.Compare(&last) <= 0 &&
			bits.OnesCount64(c.Keys.Mask) == bits.OnesCount64(last.Mask): // a joint allocation may mean several sizes
			t.Fatalf("%+v comes after %+v", c.Keys, last)
		case seen[c.Keys.Mask] || !want[c.Keys.Mask]:
			t.Fatalf("%b is there twice, or not feasible: %v", c.Keys.Mask, want)
		}
		seen[c.Keys.Mask], last = true, c.Keys
	}
	own := map[device.Type]int{}
	for _, p := range r.Parts {
		if own[p.Type]++; own[p.Type] > 1 {
			return
		}
	}
	if reversed := len(r.Joint.Types) > 0 && r.Joint.Types[0] != leadOf(r); !reversed && len(seen) != len(want) {
		t.Fatalf("got %v, feasible %v", seen, want)
	}
}

// TestAssignmentIsTheCheapest compares the Hungarian method with all assignments.
func TestAssignmentIsTheCheapest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "costs"), 0))
		m, n := 1+rng.IntN(4), 1+rng.IntN(5)
		cost := make([][]int16, m)
		for i := range cost {
			for range n {
				cost[i] = append(cost[i], []int16{0, 1, 2, 3, 4, 1000}[rng.IntN(6)])
			}
		}
		best := int64(1000)
		var try func(i int, used uint64, sum int64)
		try = func(i int, used uint64, sum int64) {
			if i == m {
				best = min(best, sum)
				return
			}
			for j := range n {
				if used>>j&1 == 0 {
					try(i+1, used|1<<j, sum+int64(cost[i][j]))
				}
			}
		}
		try(0, 0, 0)
		got, ok := device.Assignment(cost)
		if ok != (best < 1000) || ok && got != best {
			t.Fatalf("%v: got %d %t, want %d", cost, got, ok, best)
		}
	})
}
