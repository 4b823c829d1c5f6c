package cpualloc

import (
	"math/bits"
	"slices"
)

// maxSubsets is the number of sets of NUMA nodes up to which all are evaluated: every k on 8 nodes (at most 70 sets),
// pairs on 16, single nodes on 64.
const maxSubsets = 128

// quest is the search for k nodes whose worths add up to need.
type quest struct {
	k     int
	need  int32
	open  NodeMask // nodes that may be added to v.forced
	worth [maxNodes]int32
}

// chooseNodes finds the best set of NUMA nodes. The request is feasible, so there is one.
func (v *solver) chooseNodes() choice {
	var q quest
	if v.even = v.evenSplit(); v.even.k > 0 {
		v.seekEven(&q)
	} else {
		v.seekPacked(&q)
	}
	if subsets(q.open.len(), q.k-v.forced.len()) <= maxSubsets {
		return v.evaluateAll(&q)
	}
	return v.climb(&q, v.fewestSockets(&q))
}

// seekPacked asks for the fewest nodes, counted by the largest ones first.
func (v *solver) seekPacked(q *quest) {
	q.k, q.need = v.forced.len(), int32(v.req.Count)
	var sorted [maxNodes]int32
	weights := sorted[:0]
	sum := int32(0)
	for i := range v.mask.all() {
		q.worth[i] = v.node[i].weight
		switch {
		case v.forced.has(i):
			sum += q.worth[i]
		case q.worth[i] > 0:
			q.open |= 1 << i
			weights = append(weights, q.worth[i])
		}
	}
	slices.Sort(weights)
	for i := len(weights) - 1; i >= 0 && sum < q.need; i-- {
		sum += weights[i]
		q.k++
	}
}

// seekEven asks for as many nodes as the split has, by their groups above its floor.
func (v *solver) seekEven(q *quest) {
	q.k, q.need = v.even.k, int32(v.even.extra())
	for i := range v.mask.all() {
		if w := int(v.node[i].weight); w >= max(v.even.floor, 1) {
			q.open |= 1 << i
			q.worth[i] = int32((w - v.even.floor) / v.even.group)
		}
	}
}

// subsets is n over k, or a number above maxSubsets.
func subsets(n, k int) int {
	k = min(k, n-k)
	total := 1
	for i := 1; i <= k && total <= maxSubsets; i++ {
		total = total * (n - k + i) / i
	}
	return total
}

// evaluateAll evaluates every set: the optimum of rows 1 to 6.
func (v *solver) evaluateAll(q *quest) choice {
	var position [maxNodes]int
	n := 0
	for i := range q.open.all() {
		position[n] = i
		n++
	}
	var best choice
	found := false
	add := q.k - v.forced.len()
	for subset := uint64(1)<<add - 1; ; subset = nextSubset(subset) {
		nodes := v.forced
		for s := subset; s != 0; s &= s - 1 {
			nodes |= 1 << position[bits.TrailingZeros64(s)]
		}
		if q.worthOf(nodes) >= q.need {
			rival := &best
			if !found {
				rival = nil
			}
			if c, better := v.evaluate(nodes, rival); better {
				best, found = c, true
			}
		}
		if subset>>(n-add) == 1<<add-1 {
			break // the last one: all at the top
		}
	}
	if !found {
		panic(noSet)
	}
	return best
}

// nextSubset is the next larger number with as many bits (Gosper).
func nextSubset(s uint64) uint64 {
	low := s & -s
	ripple := s + low
	return ripple | (s^ripple)>>2/low
}

func (q *quest) worthOf(nodes NodeMask) int32 {
	sum := int32(0)
	for i := range nodes.all() {
		sum += q.worth[i]
	}
	return sum
}

// noSet is a broken invariant: Feasible and the search for nodes disagree.
const noSet = "cpualloc: no set of NUMA nodes holds a feasible request"

// reach is the most that some count of sockets and nodes hold together, and one set that does.
type reach struct {
	sum   int32
	found bool
	nodes NodeMask
}

// reaches is a knapsack over sockets: at [j][c] is what c nodes of exactly j sockets hold. The nodes and sockets in
// v.forced are in all of them and are not counted.
type reaches [maxNodes + 1][maxNodes + 1]reach

// fewestSockets returns a set of q.k nodes that holds the request on as few sockets as possible.
func (v *solver) fewestSockets(q *quest) NodeMask {
	var best reaches
	add := q.k - v.forced.len()
	best[0][0] = reach{found: true, nodes: v.forced, sum: q.worthOf(v.forced)}
	sockets := 0
	for left := q.open; left != 0; {
		siblings := v.node[left.first()].siblings
		step := 1
		if v.forced&siblings != 0 {
			step = 0 // the socket is in use already
		}
		sockets += step
		best.addSocket(q, left&siblings, sockets, step, add)
		left &^= siblings
	}
	for j := range best {
		if r := &best[j][add]; r.found && r.sum >= q.need {
			return r.nodes
		}
	}
	panic(noSet)
}

// addSocket lets each set take the nodes of one more socket, those with the largest worth first.
func (b *reaches) addSocket(q *quest, nodes NodeMask, sockets, step, add int) {
	var order [maxNodes]int
	group := order[:0]
	for i := range nodes.all() {
		group = append(group, i)
	}
	slices.SortStableFunc(group, func(a, b int) int { return int(q.worth[b] - q.worth[a]) })
	// Downwards, so that what is read has not taken this socket yet.
	for j := sockets; j >= step; j-- {
		for c := add; c > 0; c-- {
			here, more := b[j][c], reach{}
			for took := 1; took <= min(c, len(group)); took++ {
				more.sum += q.worth[group[took-1]]
				more.nodes |= 1 << group[took-1]
				from := &b[j-step][c-took]
				if sum := from.sum + more.sum; from.found && (!here.found || sum > here.sum) {
					here = reach{sum: sum, found: true, nodes: from.nodes | more.nodes}
				}
			}
			b[j][c] = here
		}
	}
}

// maxSweeps bounds climb; two or three sweeps are usual.
const maxSweeps = 16

// climb improves a set by exchanging one node at a time until no exchange helps. Rows 1 and 2 are optimal from the
// start; the later ones are as good as exchanges get. A sweep evaluates k·(N−k) sets.
func (v *solver) climb(q *quest, nodes NodeMask) choice {
	best, _ := v.evaluate(nodes, nil)
	var distances [maxNodes]int64 // distance of each node to the set, its own left out
	for i := range (nodes | q.open).all() {
		for j := range (nodes &^ (1 << i)).all() {
			distances[i] += v.between(i, j)
		}
	}
	for range maxSweeps {
		before := best.nodes
		for out := range (before &^ v.forced).all() {
			in := v.exchange(q, &best, out, &distances)
			if in < 0 {
				continue
			}
			for i := range (before | q.open).all() {
				if i != in {
					distances[i] += v.between(i, in)
				}
				if i != out {
					distances[i] -= v.between(i, out)
				}
			}
		}
		if best.nodes == before {
			break
		}
	}
	return best
}

// exchange replaces node out of best by the node that improves it most, and returns that node; −1 when none does.
func (v *solver) exchange(q *quest, best *choice, out int, distances *[maxNodes]int64) int {
	from := *best
	others := from.nodes &^ (1 << out)
	rest := v.sumOf(others)
	worth := q.worthOf(others)
	taken := -1
	for in := range (q.open &^ from.nodes).all() {
		if worth+q.worth[in] < q.need {
			continue
		}
		c := choice{nodes: others | 1<<in}
		c.cost[rowSockets] = int64(v.sockets(c.nodes))
		c.cost[rowDistance] = from.cost[rowDistance] - distances[out] + distances[in] - v.between(in, out)
		if c.fartherThan(best) {
			continue
		}
		s := rest
		s.add(v, in, +1)
		v.evaluateCores(&c, &s)
		if c.betterThan(best) {
			*best, taken = c, in
		}
	}
	return taken
}
