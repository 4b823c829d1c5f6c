package kubelet

import (
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// maxVisited bounds the search of distribute, in nodes of the combinations that are visited. 14 nodes never need as
// much; the kubelet spends microseconds on each, so an admission would last minutes, which is as good as for ever.
const maxVisited = 1 << 27

// distribute takes n CPUs of from in equal shares from as few NUMA nodes as can serve them, in groups of size group;
// what is over goes round robin to some of them, so that the free CPUs of all nodes come out as equal as can be
// (KEP-2902). Where no shares come out it packs.
func (p *cpuPolicy) distribute(from cpuset.Set, n, group int) (cpuset.Set, cpuFault) {
	if n%group != 0 {
		return p.pack(from, n, false)
	}
	from = from.Intersect(p.online)
	if n <= 0 {
		return cpuset.Set{}, cpuOK
	}
	if n > from.Len() {
		return cpuset.Set{}, cpuShort
	}
	s := newCPUSpread(p, from, n, group)
	least, most := s.span()
	for k := least; k <= most; k++ {
		s.best = cpuChoice{balance: worst}
		combinations(s.nodes, s.combination[:0], k, s.visit)
		if s.hangs {
			return cpuset.Set{}, cpuHangs
		}
		if s.best.found {
			return s.carryOut()
		}
	}
	return p.pack(from, n, false)
}

// cpuSpread is the kubelet's search for an even distribution of n CPUs over NUMA nodes, in groups of whole cores.
type cpuSpread struct {
	policy   *cpuPolicy
	from     cpuset.Set
	n, group int
	// nodes are positions in policy.nodes, in packed order. Where sockets and nodes do not nest, a node may occur
	// twice.
	nodes []uint16
	// Free CPUs by position in policy.nodes: at first, after the shares of a combination, after distributing the
	// remainder.
	before, shared, left []int
	listed               int // distinct nodes

	best    cpuChoice
	visited int
	hangs   bool

	combination, over, subset []uint16 // scratch
}

// cpuChoice is a combination of nodes and those of it that get the remainder.
type cpuChoice struct {
	found     bool
	nodes     []uint16
	remainder []uint16
	balance   cpuBalance
	oneSocket bool
}

// cpuBalance is how far from equal the free CPUs of the nodes are: the sum of their squares, which orders them, and
// their standard deviation as the kubelet rounds it, in thousandths of a CPU, which decides.
type cpuBalance struct {
	squares   int
	deviation int
}

// worst is worse than the balance of any distribution.
var worst = cpuBalance{math.MaxInt, math.MaxInt}

// newCPUSpread prepares a search for n CPUs of from, in multiples of group.
func newCPUSpread(p *cpuPolicy, from cpuset.Set, n, group int) *cpuSpread {
	s := &cpuSpread{policy: p, from: from, n: n, group: group}
	t := cpuTaking{policy: p, free: from}
	order := t.nodes()
	all := len(p.nodes)
	s.before, s.shared, s.left = make([]int, all), make([]int, all), make([]int, all)
	s.combination, s.subset = make([]uint16, 0, len(order)), make([]uint16, 0, len(order))
	for _, r := range order {
		s.nodes = append(s.nodes, r.unit)
		if s.before[r.unit] == 0 {
			s.listed++
		}
		s.before[r.unit] = int(r.free)
	}
	return s
}

// span returns the fewest and the most NUMA nodes over which the CPUs can be distributed.
func (s *cpuSpread) span() (least, most int) {
	groups := (s.policy.online.Len()-1)/s.group + 1
	perNode := (groups-1)/len(s.policy.nodes) + 1
	needed := (s.n-1)/s.group + 1
	return (needed-1)/perNode + 1, min(needed, s.listed)
}

// combinations visits every k of units, behind what is chosen, in lexicographic order, until visit returns false. What
// it is given is overwritten by the next.
func combinations(units, chosen []uint16, k int, visit func([]uint16) bool) bool {
	if len(chosen) == k {
		return visit(chosen)
	}
	for i := range len(units) - (k - len(chosen)) + 1 {
		if !combinations(units[i+1:], append(chosen, units[i]), k, visit) {
			return false
		}
	}
	return true
}

// overwrites reports whether the kubelet builds a combination of nodes in the memory of an earlier one, which it
// remembers by reference: it appends node after node to an array whose capacity doubles, so all that agree up to its
// last growth are one array.
func overwrites(earlier, nodes []uint16) bool {
	k := len(nodes)
	if len(earlier) != k || k < 4 {
		return false
	}
	grown := 2 // the greatest power of two below k is full before the last growth
	for grown*2 < k {
		grown *= 2
	}
	return k > grown+1 && slices.Equal(earlier[:grown+1], nodes[:grown+1])
}

// visit evaluates one combination of nodes, and reports whether the search goes on. It ends at a perfect balance, and
// after maxVisited nodes, where the kubelet would take too long.
func (s *cpuSpread) visit(combination []uint16) bool {
	s.combination = combination
	if s.visited += len(combination); s.visited > maxVisited {
		s.hangs = true
		return false
	}
	if s.best.found && overwrites(s.best.nodes, combination) {
		copy(s.best.nodes, combination)
	}
	if s.best.balance.deviation == 0 && (!s.bySocket() || s.best.oneSocket) {
		return false
	}
	share, ok := s.share()
	if !ok {
		return true
	}
	balance, remainder := s.remainder(share)
	if s.hangs {
		return false
	}
	oneSocket := s.bySocket() && s.inOneSocket()
	better := balance.deviation < s.best.balance.deviation
	if oneSocket != s.best.oneSocket {
		better = oneSocket
	}
	if better {
		s.best = cpuChoice{
			found: true, nodes: slices.Clone(combination), remainder: remainder, balance: balance, oneSocket: oneSocket,
		}
	}
	return true
}

// bySocket reports whether combinations within one socket go first (kubernetes#139778).
func (s *cpuSpread) bySocket() bool {
	return s.policy.settings.AlignBySocket && s.policy.model.OneSocketFirst
}

// inOneSocket reports whether all nodes of the combination are on one socket.
func (s *cpuSpread) inOneSocket() bool {
	var sockets cpuset.Set
	for _, node := range s.combination {
		for _, part := range s.policy.nodes[node].sockets {
			sockets.Add(int(part.unit))
		}
	}
	return sockets.Len() <= 1
}

// share is what each node of the combination gives; false when the combination cannot serve.
func (s *cpuSpread) share() (int, bool) {
	free, groups := 0, 0
	share := s.n / len(s.combination) / s.group * s.group
	clipped := share
	for i, node := range s.combination {
		if s.listed == len(s.nodes) || !slices.Contains(s.combination[:i], node) {
			free += s.before[node]
		}
		groups += s.before[node] / s.group
		clipped = min(clipped, s.before[node]/s.group*s.group)
	}
	if free < s.n || groups*s.group < s.n {
		return 0, false
	}
	if s.bySocket() {
		return clipped, true
	}
	return share, clipped == share
}

// remainder finds the nodes of the combination that give what the shares leave, and the balance that results.
func (s *cpuSpread) remainder(share int) (cpuBalance, []uint16) {
	copy(s.shared, s.before)
	for _, node := range s.combination {
		s.shared[node] -= share
	}
	squares := 0
	for _, free := range s.shared { // nodes that are not listed have none
		squares += free * free
	}
	rest := s.n - share*len(s.combination)
	if rest == 0 {
		return s.balance(squares, worst), nil
	}
	s.over = s.over[:0]
	for _, node := range s.combination {
		if s.shared[node] >= s.group {
			s.over = append(s.over, node)
		}
	}
	r := cpuRemainder{cpuSpread: s, rest: rest, squares: squares, best: worst}
	for k := len(s.over); k >= 1 && !s.hangs; k-- {
		combinations(s.over, s.subset, k, r.visit)
	}
	return r.best, r.nodes
}

// balance is that of free counts with a sum of squares, if it is better than another one; else something not better.
// All balances of one search have the same sum: what is free less n.
func (s *cpuSpread) balance(squares int, than cpuBalance) cpuBalance {
	if squares >= than.squares {
		return than
	}
	sum := s.from.Len() - s.n
	// The kubelet rounds the mean to thousandths too. Σ(1000·x − mean)² is exact in integers.
	mean := (2000*sum + s.listed) / (2 * s.listed)
	spread := 1_000_000*squares - 2000*mean*sum + s.listed*mean*mean
	deviation := int(math.Sqrt(float64(spread)/float64(s.listed)) + 0.5)
	return cpuBalance{squares, deviation}
}

// cpuRemainder is the search for the nodes that get the rest which cannot be shared equally.
type cpuRemainder struct {
	*cpuSpread
	rest    int
	squares int
	best    cpuBalance
	nodes   []uint16
}

// visit evaluates one subset of the combination that would get the rest, and reports whether the search goes on.
func (r *cpuRemainder) visit(subset []uint16) bool {
	if r.visited += len(subset); r.visited > maxVisited {
		r.hangs = true
		return false
	}
	if overwrites(r.nodes, subset) {
		copy(r.nodes, subset)
	}
	free := 0
	for _, node := range subset {
		free += r.shared[node]
	}
	if free < r.rest {
		return true
	}
	squares, ok := r.distributeRest(subset)
	if !ok {
		r.hangs = true
		return false
	}
	if balance := r.balance(squares, r.best); balance.deviation < r.best.deviation {
		r.best, r.nodes = balance, slices.Clone(subset)
	}
	return true
}

// distributeRest takes the rest from the nodes of the subset round-robin, one group at a time, and returns the
// resulting sum of squares; false when no node has a group left before the rest is distributed: the kubelet then loops
// forever.
func (r *cpuRemainder) distributeRest(subset []uint16) (int, bool) {
	for _, node := range subset {
		r.left[node] = r.shared[node]
	}
	squares, rest, progress := r.squares, r.rest, true
	for rest > 0 && progress {
		progress = false
		for _, node := range subset {
			if rest == 0 {
				break
			}
			if r.left[node] < r.group {
				continue
			}
			squares += r.group * (r.group - 2*r.left[node])
			r.left[node] -= r.group
			rest -= r.group
			progress = true
		}
	}
	return squares, progress
}

// carryOut takes the shares and the remainder of the best combination. After overwriting, a node of it may have less
// than its share: then it gives nothing, and the count comes out wrong.
func (s *cpuSpread) carryOut() (cpuset.Set, cpuFault) {
	free, taken, need := s.from, cpuset.Set{}, s.n
	grab := func(node uint16, n int) {
		cpus, _ := s.policy.pack(free.Intersect(s.policy.nodes[node].cpus), n, false)
		taken.Include(&cpus)
		free = free.Minus(cpus)
		need -= cpus.Len()
	}
	share := s.finalShare()
	for _, node := range s.best.nodes {
		grab(node, share)
	}
	for rest, progress := s.n-share*len(s.best.nodes), true; rest > 0; {
		if !progress {
			return cpuset.Set{}, cpuHangs
		}
		progress = false
		for _, node := range s.best.remainder {
			if rest > 0 && s.policy.nodes[node].cpus.CountIn(&free) >= s.group {
				grab(node, s.group)
				rest -= s.group
				progress = true
			}
		}
	}
	if need != 0 {
		return cpuset.Set{}, cpuMiscount
	}
	return taken, cpuOK
}

// finalShare returns how many CPUs each node of the best combination gives before the rest.
func (s *cpuSpread) finalShare() int {
	share := s.n / len(s.best.nodes) / s.group * s.group
	if s.policy.model.OneSocketFirst {
		for _, node := range s.best.nodes {
			share = min(share, s.before[node]/s.group*s.group)
		}
	}
	return share
}
