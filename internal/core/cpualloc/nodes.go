package cpualloc

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxSubsets is the number of sets of NUMA nodes up to which all are evaluated: every k on 8 nodes (at most 70 sets),
// pairs on 16, single nodes on 64.
const maxSubsets = 128

// quest is the search for k nodes whose worths add up to need. For a packed request a worth is CPUs; for an even split
// it is groups above the floor that each node of the split must have.
type quest struct {
	k     int
	need  int
	open  topo.NodeSet  // nodes that come into question
	worth [maxNodes]int // by node; of use for those of open alone
}

// chooseNodes finds the best set of NUMA nodes. The request is feasible, so there is one.
func (v *solver) chooseNodes() choice {
	var q quest
	if v.even = v.evenSplit(); v.even.k > 0 {
		v.seekEven(&q)
	} else {
		v.seekPacked(&q)
	}
	if q.open.Choices(q.k, maxSubsets) <= maxSubsets {
		return v.evaluateAll(&q)
	}
	return v.climb(&q, v.fewestSockets(&q))
}

// seekPacked asks for the fewest nodes, counted by the largest ones first.
func (v *solver) seekPacked(q *quest) {
	q.need = v.req.Count
	var sorted [maxNodes]int
	weights := sorted[:0]
	for i := range v.mask.All() {
		if q.worth[i] = v.node[i].all.open; q.worth[i] > 0 {
			q.open |= 1 << i
			weights = append(weights, q.worth[i])
		}
	}
	slices.Sort(weights)
	for sum := 0; sum < q.need; q.k++ {
		sum += weights[len(weights)-1-q.k]
	}
}

// seekEven asks for as many nodes as the split has, by their groups above its floor.
func (v *solver) seekEven(q *quest) {
	q.k, q.need = v.even.k, v.even.extra()
	for i := range v.mask.All() {
		if w := v.node[i].all.open; w >= max(v.even.floor, 1) {
			q.open |= 1 << i
			q.worth[i] = (w - v.even.floor) / v.even.group
		}
	}
}

// evaluateAll evaluates every set: the optimum of rows 1 to 6.
func (v *solver) evaluateAll(q *quest) choice {
	var best choice
	for nodes := range q.open.Subsets(q.k) {
		if q.worthOf(nodes) < q.need {
			continue
		}
		if c, better := v.evaluate(nodes, &best); better {
			best = c
		}
	}
	if best.nodes == 0 {
		panic(noSet)
	}
	return best
}

// worthOf returns what nodes are worth together.
func (q *quest) worthOf(nodes topo.NodeSet) int {
	sum := 0
	for ; nodes != 0; nodes &= nodes - 1 {
		sum += q.worth[nodes.First()]
	}
	return sum
}

// noSet is a broken invariant: Feasible and the search for nodes disagree.
const noSet = "cpualloc: no set of NUMA nodes holds a feasible request"

// reach is the most that some count of sockets and nodes hold together, and one set that does; no set if there is none.
type reach struct {
	sum   int
	nodes topo.NodeSet
}

// reaches is a knapsack over sockets: cells[j*width+c] is what c nodes of exactly j sockets hold.
type reaches struct {
	width int
	cells []reach
}

// fewestSockets returns a set of q.k nodes that holds the request on as few sockets as possible.
func (v *solver) fewestSockets(q *quest) topo.NodeSet {
	sockets := v.m.SocketsOf(q.open)
	best := reaches{width: q.k + 1}
	var few [512]reach // enough for 7 sockets with 63 nodes
	if n := (sockets + 1) * best.width; n <= len(few) {
		best.cells = few[:n]
	} else {
		best.cells = make([]reach, n)
	}
	for left, j := q.open, 1; left != 0; j++ {
		siblings := v.m.Siblings(left.First())
		best.addSocket(q, left&siblings, j)
		left &^= siblings
	}
	for at := q.k; at < len(best.cells); at += best.width {
		if r := &best.cells[at]; r.nodes != 0 && r.sum >= q.need {
			return r.nodes
		}
	}
	panic(noSet)
}

// addSocket lets each set take the nodes of one more socket, those with the largest worth first.
func (b *reaches) addSocket(q *quest, nodes topo.NodeSet, sockets int) {
	var order [maxNodes]topo.NUMA
	group := order[:0]
	for i := range nodes.All() {
		group = append(group, i)
	}
	slices.SortStableFunc(group, func(a, b topo.NUMA) int { return q.worth[b] - q.worth[a] })
	// Downwards, so that what is read has not taken this socket yet.
	for j := sockets; j > 0; j-- {
		for c := q.k; c > 0; c-- {
			here, more := &b.cells[j*b.width+c], reach{}
			for took := 1; took <= min(c, len(group)); took++ {
				more.sum += q.worth[group[took-1]]
				more.nodes |= 1 << group[took-1]
				from := &b.cells[(j-1)*b.width+c-took]
				none := from.nodes == 0 && (j > 1 || took < c) // but no node on no socket is a set
				if sum := from.sum + more.sum; !none && (here.nodes == 0 || sum > here.sum) {
					*here = reach{sum, from.nodes | more.nodes}
				}
			}
		}
	}
}

// maxSweeps bounds climb; two or three sweeps are usual.
const maxSweeps = 16

// climb improves a set by exchanging one node at a time until no exchange helps. Rows 1 and 2 are optimal from the
// start; the later ones are as good as exchanges get. A sweep evaluates k·(N−k) sets.
func (v *solver) climb(q *quest, nodes topo.NodeSet) choice {
	best, _ := v.evaluate(nodes, &choice{})
	have := v.sumOf(nodes)
	var distances [maxNodes]int64 // distance of each node to the set, its own left out
	for all := nodes | q.open; all != 0; all &= all - 1 {
		i := all.First()
		for others := nodes &^ (1 << i); others != 0; others &= others - 1 {
			distances[i] += v.between(i, others.First())
		}
	}
	for range maxSweeps {
		before := best.nodes
		for out := range before.All() {
			rest := have
			rest.add(v, out, -1)
			in, ok := v.exchange(q, &best, out, &rest, &distances)
			if !ok {
				continue
			}
			have = rest
			have.add(v, in, 1)
			for nodes := before | q.open; nodes != 0; nodes &= nodes - 1 {
				i := nodes.First()
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
// rest is what the other nodes of best have.
func (v *solver) exchange(
	q *quest, best *choice, out topo.NUMA, rest *sum, distances *[maxNodes]int64,
) (taken topo.NUMA, ok bool) {
	from := *best
	others := from.nodes &^ (1 << out)
	worth := q.worthOf(others)
	sockets := int64(v.m.SocketsOf(others))
	for open := q.open &^ from.nodes; open != 0; open &= open - 1 {
		in := open.First()
		if worth+q.worth[in] < q.need {
			continue
		}
		c := choice{nodes: others | 1<<in}
		if c.cost[rowSockets] = sockets; v.m.Siblings(in)&others == 0 {
			c.cost[rowSockets]++
		}
		c.cost[rowDistance] = from.cost[rowDistance] - distances[out] + distances[in] - v.between(in, out)
		if c.fartherThan(best) {
			continue
		}
		s := *rest
		s.add(v, in, 1)
		v.evaluateCores(&c, &s)
		if c.betterThan(best) {
			*best, taken, ok = c, in, true
		}
	}
	return taken, ok
}
