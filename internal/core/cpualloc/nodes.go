package cpualloc

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxSubsets is the number of sets of NUMA nodes up to which all are evaluated: every k on 8 nodes (at most 70 sets),
// pairs on 16, single nodes on 64.
const maxSubsets = 128

// quest is the search for k nodes whose worths add up to need.
type quest struct {
	k     int
	need  int32
	open  topo.NodeSet // nodes that may be added to v.forced
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
	if q.open.Choices(q.k-v.forced.Len(), maxSubsets) <= maxSubsets {
		return v.evaluateAll(&q)
	}
	return v.climb(&q, v.fewestSockets(&q))
}

// seekPacked asks for the fewest nodes, counted by the largest ones first.
func (v *solver) seekPacked(q *quest) {
	q.k, q.need = v.forced.Len(), int32(v.req.Count)
	var sorted [maxNodes]int32
	weights := sorted[:0]
	sum := int32(0)
	for i := range v.mask.All() {
		q.worth[i] = v.node[i].weight
		switch {
		case v.forced.Has(i):
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
	for i := range v.mask.All() {
		if w := int(v.node[i].weight); w >= max(v.even.floor, 1) {
			q.open |= 1 << i
			q.worth[i] = int32((w - v.even.floor) / v.even.group)
		}
	}
}

// evaluateAll evaluates every set: the optimum of rows 1 to 6.
func (v *solver) evaluateAll(q *quest) choice {
	var best choice
	found := false
	for added := range q.open.Subsets(q.k - v.forced.Len()) {
		nodes := v.forced | added
		if q.worthOf(nodes) < q.need {
			continue
		}
		rival := &best
		if !found {
			rival = nil
		}
		if c, better := v.evaluate(nodes, rival); better {
			best, found = c, true
		}
	}
	if !found {
		panic(noSet)
	}
	return best
}

func (q *quest) worthOf(nodes topo.NodeSet) int32 {
	sum := int32(0)
	for i := range nodes.All() {
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
	nodes topo.NodeSet
}

// reaches is a knapsack over sockets: at [j][c] is what c nodes of exactly j sockets hold. The nodes and sockets in
// v.forced are in all of them and are not counted.
type reaches [maxNodes + 1][maxNodes + 1]reach

// fewestSockets returns a set of q.k nodes that holds the request on as few sockets as possible.
func (v *solver) fewestSockets(q *quest) topo.NodeSet {
	var best reaches
	add := q.k - v.forced.Len()
	best[0][0] = reach{found: true, nodes: v.forced, sum: q.worthOf(v.forced)}
	sockets := 0
	for left := q.open; left != 0; {
		siblings := v.m.Siblings(left.First())
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
func (b *reaches) addSocket(q *quest, nodes topo.NodeSet, sockets, step, add int) {
	var order [maxNodes]topo.NUMA
	group := order[:0]
	for i := range nodes.All() {
		group = append(group, i)
	}
	slices.SortStableFunc(group, func(a, b topo.NUMA) int { return int(q.worth[b] - q.worth[a]) })
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
func (v *solver) climb(q *quest, nodes topo.NodeSet) choice {
	best, _ := v.evaluate(nodes, nil)
	var distances [maxNodes]int64 // distance of each node to the set, its own left out
	for i := range (nodes | q.open).All() {
		for j := range (nodes &^ (1 << i)).All() {
			distances[i] += v.between(i, j)
		}
	}
	for range maxSweeps {
		before := best.nodes
		for out := range (before &^ v.forced).All() {
			in, ok := v.exchange(q, &best, out, &distances)
			if !ok {
				continue
			}
			for i := range (before | q.open).All() {
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

// exchange replaces node out of best by the node that improves it most, and returns that node; false when none does.
func (v *solver) exchange(
	q *quest, best *choice, out topo.NUMA, distances *[maxNodes]int64,
) (taken topo.NUMA, ok bool) {
	from := *best
	others := from.nodes &^ (1 << out)
	rest := v.sumOf(others)
	worth := q.worthOf(others)
	for in := range (q.open &^ from.nodes).All() {
		if worth+q.worth[in] < q.need {
			continue
		}
		c := choice{nodes: others | 1<<in}
		c.cost[rowSockets] = int64(v.m.SocketsOf(c.nodes))
		c.cost[rowDistance] = from.cost[rowDistance] - distances[out] + distances[in] - v.between(in, out)
		if c.fartherThan(best) {
			continue
		}
		s := rest
		s.add(v, in, +1)
		v.evaluateCores(&c, &s)
		if c.betterThan(best) {
			*best, taken, ok = c, in, true
		}
	}
	return taken, ok
}
