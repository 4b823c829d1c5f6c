package cpualloc_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// The oracle knows nothing of counts, tallies or steps: it looks at every subset of the free CPUs and keeps the one
// that costs least, row by row. Rows:
//
//	0  the request holds: count, mask, SingleNUMANode, required bind policy, even split where one exists
//	1  fewest NUMA nodes
//	2  fewest sockets
//	3  smallest sum of SLIT distances
//	4  FullPCPUs: fewest partial cores; SpreadByPCPUs: lowest exclusive stage
//	5  FullPCPUs: lowest exclusive stage; SpreadByPCPUs: most distinct cores
//	6  strategy over the chosen NUMA nodes
//	7  damage: wholly free cores broken up, or free threads of the cores used; then L3 groups (before, with PreferL3)
//	8  most CPUs without a tick; then the lowest CPU ids
//
// Rows 0 to 6 must be equal. Rows 7 and 8 must be where definesSeven says, for an answer on one NUMA node, against the
// answers on that same node.
const (
	rowNodes = iota
	rowSockets
	rowDistance
	rowBind
	rowBindNext
	rowStrategy
	rowSeven
	rowSevenNext
	rowTick
	rowCount
)

type price [rowCount]int

// oracle is one machine in bit masks: bit i of a mask is CPU i.
type oracle struct {
	m      *topo.Machine
	cores  []uint16 // online CPUs of a core
	nodes  []uint16 // CPUs of a NUMA node with CPUs
	l3     []uint16
	online uint16
	whole  map[int]bool // sizes of cores that may be given whole
}

func newOracle(m *topo.Machine) *oracle {
	o := &oracle{m: m, cores: make([]uint16, m.NumCores()), l3: make([]uint16, m.NumL3()), whole: map[int]bool{}}
	for c := range m.NumCPUs() {
		cpu := topo.CPU(c)
		online := m.Online()
		if online.Has(c) {
			o.online |= 1 << c
			o.cores[m.CoreOf(cpu)] |= 1 << c
		}
		o.l3[m.L3Of(cpu)] |= 1 << c
	}
	for n := range m.NumNUMA() {
		o.nodes = append(o.nodes, bitsOf(m.NUMACPUs(topo.NUMA(n))))
	}
	t := m.ThreadsPerCore()
	for _, size := range []int{1, 2, 4, 8, t} {
		if size <= t && t%size == 0 {
			o.whole[size] = true
		}
	}
	return o
}

func bitsOf(s cpuset.Set) uint16 {
	var b uint16
	for c := range s.All() {
		b |= 1 << c
	}
	return b
}

func setOf(b uint16) cpuset.Set {
	var s cpuset.Set
	for ; b != 0; b &= b - 1 {
		s.Add(bits.TrailingZeros16(b))
	}
	return s
}

func count(b uint16) int { return bits.OnesCount16(b) }

// query is a state and a request in bit masks.
type query struct {
	*oracle
	req                   cpualloc.Request
	free, pcpu, numa, own uint16 // own: CPUs of req.Nodes
	noTick                uint16
	uniform               bool
}

func (o *oracle) query(s cpualloc.State, req cpualloc.Request) *query {
	q := &query{
		oracle: o, req: req, free: bitsOf(s.Free), pcpu: bitsOf(s.PCPUHeld), numa: bitsOf(s.NUMAHeld),
		noTick: bitsOf(s.NoTick), uniform: true,
	}
	for i, n := range o.nodes {
		if req.Nodes == 0 || req.Nodes>>i&1 == 1 {
			q.own |= n
		}
	}
	for _, c := range o.cores {
		if c != 0 && count(c) != o.m.ThreadsPerCore() {
			q.uniform = false
		}
	}
	return q
}

// holds is row 0 without the even split.
func (q *query) holds(r uint16) bool {
	if q.req.SingleNUMANode && q.touched(r) > 1 {
		return false
	}
	if !q.req.Required {
		return true
	}
	if q.req.Bind == cpualloc.FullPCPUs && q.req.Count%q.m.ThreadsPerCore() != 0 {
		return false
	}
	for _, c := range q.cores {
		in := r & c
		if in == 0 {
			continue
		}
		if q.req.Bind == cpualloc.SpreadByPCPUs && count(in) > 1 {
			return false
		}
		if q.req.Bind == cpualloc.FullPCPUs && (in != c || !q.whole[count(c)]) {
			return false
		}
	}
	return true
}

func (q *query) touched(r uint16) int {
	n := 0
	for _, cpus := range q.nodes {
		if r&cpus != 0 {
			n++
		}
	}
	return n
}

// offer is what node i holds of the request.
func (q *query) offer(i int) int {
	free := q.free & q.nodes[i]
	if !q.req.Required {
		return count(free)
	}
	n := 0
	for _, c := range q.cores {
		switch in := free & c; {
		case in == 0:
		case q.req.Bind == cpualloc.SpreadByPCPUs:
			n++
		case in == c && q.whole[count(c)]:
			n += count(c)
		}
	}
	return n
}

// subsets yields the sets of Count CPUs of cpus.
func (q *query) subsets(cpus uint16, yield func(uint16) bool) {
	n := q.req.Count
	var id [16]int
	have := 0
	for b := cpus; b != 0; b &= b - 1 {
		id[have] = bits.TrailingZeros16(b)
		have++
	}
	if n > have {
		return
	}
	for s := uint32(1)<<n - 1; s < 1<<have; {
		var r uint16
		for b := s; b != 0; b &= b - 1 {
			r |= 1 << id[bits.TrailingZeros32(b)]
		}
		if !yield(r) {
			return
		}
		low := s & -s
		ripple := s + low
		s = ripple | (s^ripple)>>2/low
	}
}

func (q *query) price(r uint16, even bool) price {
	var p price
	q.priceNodes(r, &p)
	q.priceCores(r, &p)
	if even {
		p[rowStrategy] = 0
		for i, cpus := range q.nodes {
			left := q.offer(i) - count(r&cpus)
			p[rowStrategy] += left * left
		}
	}
	return p
}

func (q *query) priceNodes(r uint16, p *price) {
	var seen [16]bool
	for i, cpus := range q.nodes {
		if r&cpus == 0 {
			continue
		}
		n := topo.NUMA(i)
		p[rowNodes]++
		if s := q.m.NUMASocket(n); !seen[s] {
			seen[s] = true
			p[rowSockets]++
		}
		for j, other := range q.nodes {
			if j != i && r&other != 0 {
				p[rowDistance] += q.m.Distance(n, topo.NUMA(j))
			}
		}
		if q.req.Strategy == cpualloc.LeastAllocated {
			p[rowStrategy] -= count(q.free & cpus)
		} else {
			p[rowStrategy] += count(q.free & cpus)
		}
	}
}

func (q *query) priceCores(r uint16, p *price) {
	distinct, partial, broken, threads, groups := 0, 0, 0, 0, 0
	for _, c := range q.cores {
		in := r & c
		if in == 0 {
			continue
		}
		distinct++
		threads += count(q.free & c)
		if in != c || !q.whole[count(c)] {
			partial++
			if q.free&c == c && q.whole[count(c)] {
				broken++
			}
		}
	}
	for _, g := range q.l3 {
		if r&g != 0 {
			groups++
		}
	}
	damage := broken
	p[rowBind], p[rowBindNext], p[rowTick] = partial, q.stage(r), -count(r&q.noTick)
	if q.req.Bind == cpualloc.SpreadByPCPUs {
		p[rowBind], p[rowBindNext] = q.stage(r), -distinct
		damage = -threads
	}
	p[rowSeven], p[rowSevenNext] = damage, groups
	if q.req.PreferL3 {
		p[rowSeven], p[rowSevenNext] = groups, damage
	}
}

// stage is the stage of the exclusive policy that a set reaches.
func (q *query) stage(r uint16) int {
	held := q.pcpu
	if q.req.Exclusive == cpualloc.NUMANodeLevel {
		held |= q.numa
	}
	onHeldCore, onHeldNode := false, false
	for i, c := range q.cores {
		onHeldCore = onHeldCore || r&c != 0 && held&q.allOf(i) != 0
	}
	for _, cpus := range q.nodes {
		onHeldNode = onHeldNode || r&cpus != 0 && q.numa&cpus != 0
	}
	switch {
	case q.req.Exclusive == cpualloc.PCPULevel && onHeldCore:
		return 3
	case q.req.Exclusive == cpualloc.NUMANodeLevel && onHeldNode && onHeldCore:
		return 3
	case q.req.Exclusive == cpualloc.NUMANodeLevel && onHeldNode:
		return 2
	}
	return 1
}

// allOf returns all CPUs of a core, the offline ones too: holders of one that went offline still occupy the core.
func (q *query) allOf(core int) uint16 {
	var b uint16
	for _, c := range q.m.CoreCPUs(topo.Core(core)) {
		b |= 1 << c
	}
	return b
}

// evenShares finds the even splits by trying every vector of shares: on the fewest NUMA nodes; of one set of nodes the
// vector that leaves the least deviation, and of equal ones the one that gives more to the lower nodes. nil = none.
func (q *query) evenShares() [][]int {
	group := 1
	if q.req.Bind == cpualloc.FullPCPUs {
		group = q.m.ThreadsPerCore()
	}
	if q.req.Strategy != cpualloc.DistributeEvenly || q.req.Count%group != 0 {
		return nil
	}
	offers := make([]int, len(q.nodes))
	for i := range q.nodes {
		if q.nodes[i]&q.own != 0 {
			offers[i] = q.offer(i)
		}
	}
	for k := 1; k <= len(q.nodes); k++ {
		if k > 1 && q.req.SingleNUMANode {
			break
		}
		floor := q.req.Count / (k * group) * group
		var found [][]int
		for set := range 1 << len(q.nodes) {
			if bits.OnesCount(uint(set)) != k {
				continue
			}
			var best []int
			bestLeft := 0
			var try func(i, rest int, share []int)
			try = func(i, rest int, share []int) {
				if i == len(q.nodes) {
					if rest != 0 {
						return
					}
					left := 0
					for j, o := range offers {
						left += (o - share[j]) * (o - share[j])
					}
					if best == nil || left < bestLeft || left == bestLeft && slices.Compare(share, best) > 0 {
						best, bestLeft = slices.Clone(share), left
					}
					return
				}
				if set>>i&1 == 0 {
					try(i+1, rest, append(share, 0))
					return
				}
				for x := floor; x <= min(offers[i], rest); x += group {
					if x > 0 {
						try(i+1, rest-x, append(share, x))
					}
				}
			}
			try(0, q.req.Count, nil)
			if best != nil {
				found = append(found, best)
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

func (q *query) splits(r uint16, shares [][]int) bool {
	return slices.ContainsFunc(shares, func(share []int) bool {
		for i, cpus := range q.nodes {
			if count(r&cpus) != share[i] {
				return false
			}
		}
		return true
	})
}

// best returns the least price of all answers and the answer of least price that touches the same NUMA nodes as like.
func (q *query) best(like uint16) (least price, second uint16, feasible bool) {
	shares := q.evenShares()
	var secondPrice price
	q.subsets(q.free&q.own, func(r uint16) bool {
		if !q.holds(r) || shares != nil && !q.splits(r, shares) {
			return true
		}
		p := q.price(r, shares != nil)
		if !feasible || slices.Compare(p[:], least[:]) < 0 {
			least = p
		}
		feasible = true
		if q.sameNodes(r, like) {
			order := slices.Compare(p[:], secondPrice[:])
			diff := r ^ second
			if second == 0 || order < 0 || order == 0 && r&(diff&-diff) != 0 {
				second, secondPrice = r, p
			}
		}
		return true
	})
	return least, second, feasible
}

func (q *query) sameNodes(a, b uint16) bool {
	for _, cpus := range q.nodes {
		if (a&cpus == 0) != (b&cpus == 0) {
			return false
		}
	}
	return true
}

// TestOracle is A3, A6 and A8: it compares Allocate with the oracle over 100,000 random states of random small
// machines.
func TestOracle(t *testing.T) {
	const machines, states = 2000, 50
	var mu sync.Mutex
	checked, granted, differences := 0, 0, 0
	t.Run("states", func(t *testing.T) {
		for part := range 4 {
			t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
				t.Parallel()
				for i := range machines / 4 {
					rng := rand.New(rand.NewPCG(uint64(part), uint64(i)))
					m := randomMachine(t, rng)
					o := newOracle(m)
					for range states {
						s, req := randomState(rng, m)
						ok, diff := compare(o, s, req)
						mu.Lock()
						checked++
						if ok {
							granted++
						}
						if diff != "" {
							differences++
							if differences <= 10 {
								t.Errorf("machine %d/%d %s\nfree %s held %s %s\nrequest %+v\n%s", part, i,
									describe(m), s.Free, s.PCPUHeld, s.NUMAHeld, req, diff)
							}
						}
						mu.Unlock()
					}
				}
			})
		}
	})
	t.Logf("cpualloc oracle: %d states, %d differences (%d granted)", checked, differences, granted)
}

func compare(o *oracle, s cpualloc.State, req cpualloc.Request) (granted bool, diff string) {
	q := o.query(s, req)
	got, reason := cpualloc.Allocate(s, req)
	counts := cpualloc.CountNodes(nil, o.m, &s.Free)
	if f := cpualloc.Feasible(counts, o.m, req); f != reason {
		return false, fmt.Sprintf("Allocate %+v, Feasible %+v", reason, f)
	}
	r := bitsOf(got.CPUs)
	least, second, feasible := q.best(r)
	if feasible != reason.OK() {
		return reason.OK(), fmt.Sprintf("Allocate %+v %s, the oracle says feasible=%v", reason, got.CPUs, feasible)
	}
	if !feasible {
		if got != (cpualloc.Result{}) {
			return false, fmt.Sprintf("refused and gave %+v", got)
		}
		return false, ""
	}
	shares := q.evenShares()
	switch {
	case count(r) != req.Count || r&^(q.free&q.own) != 0:
		return true, fmt.Sprintf("%s is not %d free CPUs", got.CPUs, req.Count)
	case !q.holds(r):
		return true, fmt.Sprintf("%s does not hold", got.CPUs)
	case shares != nil && !q.splits(r, shares):
		return true, fmt.Sprintf("%s is not an even split, want one of %v", got.CPUs, shares)
	}
	p := q.price(r, shares != nil)
	if !slices.Equal(p[:rowSeven], least[:rowSeven]) {
		return true, fmt.Sprintf(
			"got %s %v, want %v (for one on the same nodes: %s)",
			got.CPUs,
			p,
			least,
			setOf(second),
		)
	}
	stage := p[rowBindNext]
	if req.Bind == cpualloc.SpreadByPCPUs {
		stage = p[rowBind]
	}
	if got.Stage != stage || got.NUMANodes != p[rowNodes] {
		return true, fmt.Sprintf("%s says stage %d on %d nodes, it is %v", got.CPUs, got.Stage, got.NUMANodes, p)
	}
	if p[rowNodes] == 1 && q.definesSeven() && r != second {
		return true, fmt.Sprintf("rows 7 and 8: got %s %v, want %s %v", got.CPUs, p, setOf(second),
			q.price(second, shares != nil))
	}
	return true, ""
}

// definesSeven reports whether rows 7 and 8 must be equal.
func (q *query) definesSeven() bool {
	t := q.m.ThreadsPerCore()
	switch {
	case !q.uniform, t > 2, q.noTick != 0 && q.m.NumL3() > 1:
		return false
	case q.req.Bind == cpualloc.FullPCPUs:
		return q.req.Count%t == 0
	default:
		return !q.req.PreferL3
	}
}

func randomMachine(t *testing.T, rng *rand.Rand) *topo.Machine {
	t.Helper()
	threads := []int{1, 2, 2, 2, 2, 4}[rng.IntN(6)]
	hybrid := rng.IntN(5) == 0
	nodes := 1 + rng.IntN(4)
	sockets := 1 + rng.IntN(min(2, nodes))
	spec := topo.Spec{}
	total := 4 + rng.IntN(9)
	ids := rng.Perm(total)
	if rng.IntN(2) == 0 {
		slices.Sort(ids)
	}
	l3 := 1 + rng.IntN(3)
	for core := 0; len(ids) > 0; core++ {
		size := threads
		if hybrid && rng.IntN(2) == 0 {
			size = 1
		}
		size = min(size, len(ids))
		node := rng.IntN(nodes)
		for _, id := range ids[:size] {
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{
				ID: id, Core: core, L3: node*4 + core%l3, Socket: node * sockets / nodes, NUMA: 2 * node,
				Offline: rng.IntN(30) == 0,
			})
		}
		ids = ids[size:]
	}
	symmetric := rng.IntN(2) == 0
	for i := range nodes {
		n := topo.NUMASpec{ID: 2 * i}
		for j := range nodes {
			d := 10
			if i != j {
				d = 20
				if !symmetric {
					d += rng.IntN(3) * 5
				}
			}
			n.Distances = append(n.Distances, d)
		}
		spec.NUMA = append(spec.NUMA, n)
	}
	return grid.Build(t, spec)
}

func randomState(rng *rand.Rand, m *topo.Machine) (cpualloc.State, cpualloc.Request) {
	s := cpualloc.State{Machine: m}
	freeOf := 3 + rng.IntN(6)
	withHeld := rng.IntN(2) == 0
	online := m.Online()
	for c := range online.All() {
		switch {
		case rng.IntN(8) < freeOf:
			s.Free.Add(c)
		case withHeld && rng.IntN(2) == 0:
			s.PCPUHeld.Add(c)
		case withHeld:
			s.NUMAHeld.Add(c)
		}
	}
	if rng.IntN(3) == 0 {
		for core := range m.NumCores() {
			for _, c := range m.CoreCPUs(topo.Core(core)) {
				if core%3 == 1 {
					s.NoTick.Add(int(c))
				}
			}
		}
	}
	req := cpualloc.Request{
		Count:     1 + rng.IntN(max(1, s.Free.Len())),
		Bind:      cpualloc.Bind(rng.IntN(2)),
		Required:  rng.IntN(3) == 0,
		Exclusive: cpualloc.Exclusive(rng.IntN(3)),
		Strategy:  cpualloc.Strategy(rng.IntN(3)),
		PreferL3:  rng.IntN(4) == 0,
	}
	if req.Required && req.Bind == cpualloc.FullPCPUs && rng.IntN(8) > 0 {
		t := m.ThreadsPerCore()
		req.Count = max(t, req.Count/t*t)
	}
	req.SingleNUMANode = rng.IntN(5) == 0
	if rng.IntN(6) == 0 {
		req.Nodes = topo.NodeSet(rng.IntN(16))
	}
	return s, req
}

func describe(m *topo.Machine) string {
	text := ""
	for _, n := range m.CPUNodes() {
		text += fmt.Sprintf("[node %d socket %d:", m.NUMAID(n), m.NUMASocket(n))
		for _, c := range m.NUMACores(n) {
			text += fmt.Sprintf(" %v/L3 %d", m.CoreCPUs(c), m.CoreL3(c))
		}
		text += "]"
	}
	return text + " offline " + m.All().Minus(m.Online()).String()
}
