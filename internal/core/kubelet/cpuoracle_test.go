package kubelet

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// plain is the CPU manager's choice of CPUs by its definition: every count is made anew from a list of CPUs, and
// nothing is fast. It shares nothing with cpuLayout.
type plain struct {
	config Config
	cpus   map[int]plainCPU // online ones
	cores  int
}

type plainCPU struct{ core, l3, node, socket int }

// level is what a CPU belongs to at one level of the machine.
type level func(plainCPU) int

func byCore(c plainCPU) int   { return c.core }
func byL3(c plainCPU) int     { return c.l3 }
func byNode(c plainCPU) int   { return c.node }
func bySocket(c plainCPU) int { return c.socket }

func newPlain(m *topo.Machine, c Config) *plain {
	p := &plain{config: c, cpus: map[int]plainCPU{}}
	lowest, sharing, cores, threads := map[topo.Core]int{}, map[topo.L3]int{}, map[topo.NUMA]int{}, map[topo.Core]int{}
	for id := range m.Online().All() {
		core := m.CoreOf(topo.CPU(id))
		if _, ok := lowest[core]; !ok {
			lowest[core] = id
			cores[m.NUMAOf(m.CoreCPUs(core)[0])]++
			p.cores++
		}
		threads[core]++
		sharing[m.L3Of(topo.CPU(id))]++
	}
	for id := range m.Online().All() {
		core := m.CoreOf(topo.CPU(id))
		l3 := m.L3Of(topo.CPU(lowest[core]))
		cpu := plainCPU{
			core: lowest[core], l3: m.L3ID(l3), node: int(m.NUMAOf(topo.CPU(id))),
			socket: int(m.SocketOf(topo.CPU(id))),
		}
		// The cache of a whole NUMA node counts for nothing.
		if cpu.l3 < 0 || sharing[l3] == cores[m.NUMAOf(m.CoreCPUs(core)[0])]*threads[core] {
			cpu.l3 = m.SocketID(m.SocketOf(topo.CPU(id)))
		}
		p.cpus[id] = cpu
	}
	return p
}

// units are the ids at a level that CPUs of a set belong to.
func (p *plain) units(l level, cpus cpuset.Set) []int {
	var ids []int
	for id := range cpus.All() {
		ids = append(ids, l(p.cpus[id]))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// in are those CPUs of a set that belong to one unit.
func (p *plain) in(l level, unit int, cpus cpuset.Set) cpuset.Set {
	var set cpuset.Set
	for id := range cpus.All() {
		if l(p.cpus[id]) == unit {
			set.Add(id)
		}
	}
	return set
}

func (p *plain) all() cpuset.Set {
	var set cpuset.Set
	for id := range p.cpus {
		set.Add(id)
	}
	return set
}

func (p *plain) socketFirst() bool {
	return len(p.units(bySocket, p.all())) < len(p.units(byNode, p.all()))
}

// sorted orders units by free CPUs, then id.
func (p *plain) sorted(l level, units []int, free cpuset.Set) []int {
	slices.SortStableFunc(units, func(a, b int) int {
		left, right := p.in(l, a, free), p.in(l, b, free)
		return left.Len() - right.Len()
	})
	return units
}

// nested lists the units of the last level, inside those of the level before it, and so on.
func (p *plain) nested(free cpuset.Set, levels ...level) []int {
	order := p.sorted(levels[0], p.units(levels[0], free), free)
	for i, l := range levels[1:] {
		var next []int
		for _, outer := range order {
			next = append(next, p.sorted(l, p.units(l, p.in(levels[i], outer, free)), free)...)
		}
		order = next
	}
	return order
}

func (p *plain) sockets(free cpuset.Set) []int {
	if p.socketFirst() {
		return p.nested(free, bySocket)
	}
	return p.nested(free, byNode, bySocket)
}

func (p *plain) nodes(free cpuset.Set) []int {
	if p.socketFirst() {
		return p.nested(free, bySocket, byNode)
	}
	return p.nested(free, byNode)
}

func (p *plain) coresInOrder(free cpuset.Set) []int {
	if p.socketFirst() {
		return p.nested(free, bySocket, byNode, byCore)
	}
	return p.nested(free, byNode, bySocket, byCore)
}

// plainRun is one run of the packed order.
type plainRun struct {
	*plain
	free, taken cpuset.Set
	need        int
}

func (r *plainRun) take(set cpuset.Set) {
	r.taken, r.free, r.need = r.taken.Union(set), r.free.Minus(set), r.need-set.Len()
}

// whole takes, in order, the units of which size CPUs are free (0: all that they have).
func (r *plainRun) whole(l level, order []int, size int) {
	start := r.free
	for _, unit := range order {
		full, free := r.in(l, unit, r.all()), r.in(l, unit, start)
		isWhole := free == full
		if size > 0 {
			isWhole = free.Len() == size
		}
		if isWhole && full.Len() <= r.need {
			r.take(full)
		}
	}
}

func (r *plainRun) average(l level) int {
	units := r.units(l, r.all())
	return len(r.cpus) / len(units)
}

func (p *plain) pack(from cpuset.Set, n int, l3 bool) (cpuset.Set, cpuFault) {
	r := &plainRun{plain: p, free: from, need: n}
	if n <= 0 {
		return cpuset.Set{}, cpuOK
	}
	if n > from.Len() {
		return cpuset.Set{}, cpuShort
	}
	spread := p.config.CPU.DistributeAcrossCores
	nodes := func() { r.whole(byNode, r.nodes(r.free), 0) }
	sockets := func() { r.whole(bySocket, r.sockets(r.free), r.average(bySocket)) }
	cores := func() {
		if !spread {
			r.whole(byCore, r.coresInOrder(r.free), r.average(byCore))
		}
	}
	steps := []func(){nodes, sockets}
	if p.socketFirst() {
		steps = []func(){sockets, nodes}
	}
	if l3 {
		steps = append(steps, r.groups)
	}
	for _, step := range append(steps, cores, r.singles) {
		if r.need > 0 {
			step()
		}
	}
	if r.need > 0 {
		return cpuset.Set{}, cpuShort
	}
	return r.taken, cpuOK
}

func (r *plainRun) singles() {
	start := r.free
	var order []int
	if r.config.CPU.DistributeAcrossCores {
		for _, s := range r.sockets(start) {
			order = append(order, r.in(bySocket, s, start).Slice()...)
		}
	} else {
		for _, core := range r.coresInOrder(start) {
			order = append(order, r.in(byCore, core, start).Slice()...)
		}
	}
	for _, id := range order {
		if r.need > 0 {
			r.take(cpuset.Of(id))
		}
	}
}

// groups goes through the L3 groups in the order of its start: before each one it takes whole groups, wherever they
// are.
func (r *plainRun) groups() {
	var order []int
	list := func() []int {
		var order []int
		for _, node := range r.nodes(r.free) {
			order = append(order, r.sorted(byL3, r.units(byL3, r.in(byNode, node, r.free)), r.free)...)
		}
		return order
	}
	order = list()
	for _, group := range order {
		if r.need >= r.average(byL3) {
			r.whole(byL3, list(), 0)
		}
		if r.need <= 0 {
			return
		}
		if set := r.remainder(group); set.Len() == r.need {
			r.take(set)
			return
		}
	}
}

func (r *plainRun) remainder(group int) cpuset.Set {
	threads := r.average(byCore)
	wanted := int(math.Ceil(float64(r.need) / float64(threads)))
	if r.config.Model.Minor == 33 {
		wanted = r.need / threads
	}
	free := r.in(byL3, group, r.free)
	var cpus []int
	for i, core := range r.units(byCore, free) {
		if i < wanted {
			cpus = append(cpus, r.in(byCore, core, r.free).Slice()...)
		}
	}
	slices.Sort(cpus)
	if r.config.Model.Minor > 33 && r.need%2 == 1 && threads > 1 && len(cpus) > r.need {
		cpus = cpus[:len(cpus)-1]
	}
	return cpuset.Of(cpus...)
}

// chosen is a choice that refers to lists which the walk goes on to write.
type chosen struct {
	nodes, remainder []int
	deviation        float64
	oneSocket        bool
}

// walk visits the subsets of a list that have k members in lexicographic order until visit returns false. As in the
// kubelet, a subset that is kept is overwritten by those that are built in its array later.
func walk(list []int, k int, visit func([]int) bool) {
	var grow func(from int, sofar []int) bool
	grow = func(from int, sofar []int) bool {
		if len(sofar) == k {
			return visit(sofar)
		}
		for i := from; len(list)-i >= k-len(sofar); i++ {
			if !grow(i+1, append(sofar, list[i])) {
				return false
			}
		}
		return true
	}
	grow(0, nil)
}

// deviation is the population standard deviation, mean and result rounded to thousandths.
func deviation(left map[int]int) float64 {
	round := func(v float64) float64 { return math.Round(v*1000) / 1000 }
	sum, squares := 0.0, 0.0
	for _, v := range left {
		sum += float64(v)
	}
	mean := round(sum / float64(len(left)))
	for _, v := range left {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	return round(math.Sqrt(squares / float64(len(left))))
}

// plainSpread is one run of the distributed order.
type plainSpread struct {
	*plain
	nodes    []int
	before   map[int]int
	n, group int
	hangs    bool
}

func (p *plain) distribute(from cpuset.Set, n, group int) (cpuset.Set, cpuFault) {
	if n%group != 0 || n <= 0 || n > from.Len() {
		return p.pack(from, n, false)
	}
	s := &plainSpread{plain: p, nodes: p.nodes(from), before: map[int]int{}, n: n, group: group}
	for _, node := range s.nodes {
		free := p.in(byNode, node, from)
		s.before[node] = free.Len()
	}
	groups := math.Ceil(float64(len(p.cpus)) / float64(group))
	perNode := math.Ceil(groups / float64(len(p.units(byNode, p.all()))))
	first := int(math.Ceil(float64(n/group) / perNode))
	for k := first; k <= min(n/group, len(s.before)); k++ {
		best := s.search(k)
		if s.hangs {
			return cpuset.Set{}, cpuHangs
		}
		if best != nil {
			return s.carryOut(from, best)
		}
	}
	return p.pack(from, n, false)
}

func (s *plainSpread) search(k int) *chosen {
	var best *chosen
	sockets := s.config.CPU.AlignBySocket && s.config.Model.Minor >= 37
	walk(s.nodes, k, func(nodes []int) bool {
		if best != nil && best.deviation == 0 && (!sockets || best.oneSocket) {
			return false
		}
		c := s.evaluate(nodes, sockets)
		switch {
		case c == nil:
		case best == nil:
			if c.oneSocket || c.deviation < math.MaxFloat64 {
				best = c
			}
		case c.oneSocket != best.oneSocket:
			if c.oneSocket {
				best = c
			}
		case c.deviation < best.deviation:
			best = c
		}
		return !s.hangs
	})
	return best
}

func (s *plainSpread) evaluate(nodes []int, sockets bool) *chosen {
	k := len(nodes)
	share := s.n / k / s.group * s.group
	distinct, total, groups := map[int]bool{}, 0, 0
	for _, node := range nodes {
		if !distinct[node] {
			distinct[node] = true
			total += s.before[node]
		}
		groups += s.before[node] / s.group
		if sockets {
			share = min(share, s.before[node]/s.group*s.group)
		}
	}
	if total < s.n || groups*s.group < s.n {
		return nil
	}
	left := map[int]int{}
	for _, node := range s.nodes {
		left[node] = s.before[node]
	}
	for _, node := range nodes {
		if s.before[node] < share {
			return nil
		}
		left[node] -= share
	}
	c := &chosen{nodes: nodes, deviation: math.MaxFloat64}
	if sockets {
		var cpus cpuset.Set
		for _, node := range nodes {
			cpus = cpus.Union(s.in(byNode, node, s.all()))
		}
		c.oneSocket = len(s.units(bySocket, cpus)) == 1
	}
	rest := s.n - share*k
	if rest == 0 {
		c.deviation = deviation(left)
		return c
	}
	var over []int
	for _, node := range nodes {
		if left[node] >= s.group {
			over = append(over, node)
		}
	}
	for size := len(over); size > 0; size-- {
		walk(over, size, func(subset []int) bool {
			if d, ok := s.distributeRest(subset, left, rest); ok && d < c.deviation {
				c.deviation, c.remainder = d, subset
			}
			return !s.hangs
		})
	}
	return c
}

func (s *plainSpread) distributeRest(subset []int, left map[int]int, rest int) (float64, bool) {
	after, sum := map[int]int{}, 0
	for node, free := range left {
		after[node] = free
	}
	for _, node := range subset {
		sum += after[node]
	}
	if sum < rest {
		return 0, false
	}
	for rest > 0 {
		before := rest
		for _, node := range subset {
			if rest > 0 && after[node] >= s.group {
				after[node] -= s.group
				rest -= s.group
			}
		}
		if rest == before {
			s.hangs = true
			return 0, false
		}
	}
	return deviation(after), true
}

func (s *plainSpread) carryOut(free cpuset.Set, best *chosen) (cpuset.Set, cpuFault) {
	share := s.n / len(best.nodes) / s.group * s.group
	if s.config.Model.Minor >= 37 {
		for _, node := range best.nodes {
			share = min(share, s.before[node]/s.group*s.group)
		}
	}
	var taken cpuset.Set
	count := 0
	grab := func(node, n int) {
		cpus, _ := s.pack(s.in(byNode, node, free), n, false)
		taken, free, count = taken.Union(cpus), free.Minus(cpus), count+cpus.Len()
	}
	for _, node := range best.nodes {
		grab(node, share)
	}
	for rest := s.n - share*len(best.nodes); rest > 0; {
		before := rest
		for _, node := range best.remainder {
			if has := s.in(byNode, node, free); rest > 0 && has.Len() >= s.group {
				grab(node, s.group)
				rest -= s.group
			}
		}
		if rest == before {
			return cpuset.Set{}, cpuHangs
		}
	}
	if count != s.n {
		return cpuset.Set{}, cpuMiscount
	}
	return taken, cpuOK
}

func (p *plain) take(from cpuset.Set, n int) (cpuset.Set, cpuFault) {
	if !p.config.CPU.DistributeAcrossNUMA {
		return p.pack(from, n, p.config.CPU.AlignL3)
	}
	group := 1
	if p.config.CPU.FullPCPUsOnly {
		group = len(p.cpus) / p.cores
	}
	return p.distribute(from, n, group)
}

func TestTakeIsWhatTheDefinitionSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, drawSpec(t))
		c := drawConfig(t, m)
		from := drawCPUs(t, m.Online(), "free", rapid.SampledFrom([]int{100, 95, 80, 50}).Draw(t, "free percent"))
		n := rapid.IntRange(0, from.Len()+1).Draw(t, "n")
		p := newCPUPolicy(m, c)
		got, fault := p.take(from, n)
		want, wantFault := newPlain(m, c).take(from, n)
		if got != want || fault != wantFault {
			t.Fatalf("%d of %s: got %s, fault %d; want %s, fault %d", n, from, got, fault, want, wantFault)
		}
		if exact := got.Len() == n && got.SubsetOf(&from); p.uniform() && fault == cpuOK && !exact {
			t.Fatalf("a uniform machine gives %s for %d of %s", got, n, from)
		}
	})
}
