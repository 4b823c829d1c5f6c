package cpualloc_test

import (
	"flag"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// cases is how many random states each property meets, unless -rapid.checks says otherwise.
const cases = 1_000

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(cases)); err != nil {
		panic(err)
	}
	m.Run()
}

// drawSpec draws a machine of up to 4 sockets and 16 NUMA nodes; cores of some are hybrid or have offline threads.
func drawSpec(t *rapid.T) topo.Spec {
	g := shape{
		sockets: rapid.IntRange(1, 4).Draw(t, "sockets"), nodes: rapid.IntRange(1, 4).Draw(t, "nodes"),
		cores: rapid.IntRange(1, 8).Draw(t, "cores"), threads: rapid.SampledFrom([]int{1, 2, 2, 4}).Draw(t, "threads"),
		coresPerL3: rapid.IntRange(0, 4).Draw(t, "coresPerL3"),
	}
	spec := g.spec()
	if rapid.IntRange(0, 3).Draw(t, "irregular") == 0 {
		spec.CPUs = slices.DeleteFunc(spec.CPUs, func(c topo.CPUSpec) bool { return c.ID > 0 && c.ID%7 == 3 })
		for i := range spec.CPUs {
			spec.CPUs[i].Offline = spec.CPUs[i].ID%11 == 5
		}
	}
	return spec
}

func drawState(t *rapid.T, m *topo.Machine) cpualloc.State {
	s := cpualloc.State{Machine: m}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	freeOf := rapid.IntRange(2, 8).Draw(t, "freeOf8")
	online := m.Online()
	for c := range online.All() {
		switch {
		case rng.IntN(8) < freeOf:
			s.Free.Add(c)
		default:
			switch rng.IntN(4) {
			case 0:
				s.PCPUHeld.Add(c)
			case 1:
				s.NUMAHeld.Add(c)
			}
		}
	}
	return s
}

func drawRequest(t *rapid.T, s cpualloc.State) cpualloc.Request {
	req := cpualloc.Request{
		Count:          rapid.IntRange(1, max(1, s.Free.Len()+1)).Draw(t, "count"),
		Bind:           cpualloc.Bind(rapid.IntRange(0, 1).Draw(t, "bind")),
		Required:       rapid.Bool().Draw(t, "required"),
		Exclusive:      cpualloc.Exclusive(rapid.IntRange(0, 2).Draw(t, "exclusive")),
		Strategy:       cpualloc.Strategy(rapid.IntRange(0, 2).Draw(t, "strategy")),
		SingleNUMANode: rapid.IntRange(0, 3).Draw(t, "single") == 0,
		PreferL3:       rapid.Bool().Draw(t, "l3"),
	}
	if rapid.IntRange(0, 3).Draw(t, "masked") == 0 {
		req.Nodes = topo.NodeSet(rapid.Uint64().Draw(t, "mask"))
	}
	return req
}

func allowed(s cpualloc.State, req cpualloc.Request) cpuset.Set {
	if req.Nodes == 0 {
		return s.Free
	}
	var own cpuset.Set
	for _, n := range s.Machine.CPUNodes() {
		if req.Nodes.Has(n) {
			own = own.Union(s.Machine.NUMACPUs(n))
		}
	}
	return s.Free.Intersect(own)
}

// cuts counts, over the cores that cpus touch, those it takes only partly, those it takes more than one CPU of, and
// all.
func cuts(m *topo.Machine, cpus cpuset.Set) (partly, shared, cores int) {
	online := m.Online()
	for c := range m.NumCores() {
		in, total := 0, 0
		for _, cpu := range m.CoreCPUs(topo.Core(c)) {
			if cpus.Has(int(cpu)) {
				in++
			}
			if online.Has(int(cpu)) {
				total++
			}
		}
		if in > 0 {
			cores++
		}
		if in > 0 && in < total {
			partly++
		}
		if in > 1 {
			shared++
		}
	}
	return partly, shared, cores
}

// TestAnswersHoldWhatTheyPromise is A1 (all of the request from the allowed free CPUs, or a refusal and nothing), A4
// and A5 (required policies), and the half of A8 that Feasible answers.
func TestAnswersHoldWhatTheyPromise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, drawSpec(t))
		s := drawState(t, m)
		req := drawRequest(t, s)
		got, reason := cpualloc.Allocate(s, req)
		counts := cpualloc.CountNodes(nil, m, &s.Free)
		if f := cpualloc.Feasible(counts, m, req); f != reason {
			t.Fatalf("Feasible %+v, Allocate %+v", f, reason)
		}
		if !reason.OK() {
			if got != (cpualloc.Result{}) {
				t.Fatalf("refused with %+v and gave %+v", reason, got)
			}
			if reason.Asked != 0 && reason.Extra == 0 && reason.Free >= reason.Asked {
				t.Fatalf("refusal %+v: free is not below asked", reason)
			}
			return
		}
		open := allowed(s, req)
		if got.CPUs.Len() != req.Count || !got.CPUs.SubsetOf(&open) {
			t.Fatalf("%s is not %d of the allowed CPUs %s", got.CPUs, req.Count, open)
		}
		partly, shared, _ := cuts(m, got.CPUs)
		if req.Required && req.Bind == full && partly > 0 {
			t.Fatalf("required FullPCPUs gave %s, %d cores are not complete", got.CPUs, partly)
		}
		if req.Required && req.Bind == spread && shared > 0 {
			t.Fatalf("required SpreadByPCPUs gave %s, %d cores are taken twice", got.CPUs, shared)
		}
		if req.SingleNUMANode && got.NUMANodes != 1 {
			t.Fatalf("%s touches %d NUMA nodes", got.CPUs, got.NUMANodes)
		}
	})
}

// TestOrderOfInputIsIrrelevant is A2.
func TestOrderOfInputIsIrrelevant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		m := grid.Build(t, spec)
		spec.CPUs = rapid.Permutation(spec.CPUs).Draw(t, "shuffled")
		again := grid.Build(t, spec)
		s := drawState(t, m)
		req := drawRequest(t, s)
		got, reason := cpualloc.Allocate(s, req)
		s.Machine = again
		second, secondReason := cpualloc.Allocate(s, req)
		if got != second || reason != secondReason {
			t.Fatalf("got %+v %+v, from a shuffled description %+v %+v", got, reason, second, secondReason)
		}
	})
}

// TestOneMoreFreeCPUNeverMakesARequestFail is A7.
func TestOneMoreFreeCPUNeverMakesARequestFail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, drawSpec(t))
		s := drawState(t, m)
		req := drawRequest(t, s)
		if _, reason := cpualloc.Allocate(s, req); !reason.OK() {
			return
		}
		for c := range m.Online().Minus(s.Free).All() {
			more := s
			more.Free.Add(c)
			if _, reason := cpualloc.Allocate(more, req); !reason.OK() {
				t.Fatalf("with CPU %d free besides %s: %+v", c, s.Free, reason)
			}
		}
	})
}

// TestRelabellingKeepsTheOptimum is A9. It exchanges NUMA nodes of a socket, cores of a node and threads of a core:
// the cost of the answer must not change.
func TestRelabellingKeepsTheOptimum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := shape{
			sockets: rapid.IntRange(1, 2).Draw(t, "sockets"), nodes: rapid.IntRange(1, 4).Draw(t, "nodes"),
			cores: rapid.IntRange(1, 4).Draw(t, "cores"), threads: rapid.IntRange(1, 2).Draw(t, "threads"),
		}
		m := grid.Build(t, g.spec())
		s := drawState(t, m)
		req := drawRequest(t, s)
		req.Nodes = 0
		to := relabel(t, g)
		move := func(from cpuset.Set) cpuset.Set {
			var out cpuset.Set
			for c := range from.All() {
				out.Add(to[c])
			}
			return out
		}
		moved := cpualloc.State{
			Machine: m, Free: move(s.Free), PCPUHeld: move(s.PCPUHeld), NUMAHeld: move(s.NUMAHeld),
		}
		a, reasonA := cpualloc.Allocate(s, req)
		b, reasonB := cpualloc.Allocate(moved, req)
		if reasonA.Code != reasonB.Code {
			t.Fatalf("%+v, relabelled %+v", reasonA, reasonB)
		}
		if !reasonA.OK() {
			return
		}
		costA, costB := figures(s, a), figures(moved, b)
		if req.Strategy == evenly {
			// Which of two equal nodes gets the odd group is decided by id, and the cores of the two may differ.
			costA, costB = [6]int{costA[0], costA[1]}, [6]int{costB[0], costB[1]}
		}
		if costA != costB {
			t.Fatalf("%s costs %v, relabelled %s costs %v", a.CPUs, costA, b.CPUs, costB)
		}
	})
}

func relabel(t *rapid.T, g shape) []int {
	perm := func(n int, what string) []int {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = i
		}
		return rapid.Permutation(ids).Draw(t, what)
	}
	cores := g.sockets * g.nodes * g.cores
	to := make([]int, cores*g.threads)
	for socket := range g.sockets {
		nodes := perm(g.nodes, "nodes")
		for node := range g.nodes {
			inNode := perm(g.cores, "cores")
			for core := range g.cores {
				threads := perm(g.threads, "threads")
				from := (socket*g.nodes+node)*g.cores + core
				dest := (socket*g.nodes+nodes[node])*g.cores + inNode[core]
				for thread := range g.threads {
					to[thread*cores+from] = threads[thread]*cores + dest
				}
			}
		}
	}
	return to
}

// figures are the rows of the order that do not speak of ids.
func figures(s cpualloc.State, r cpualloc.Result) [6]int {
	m := s.Machine
	partly, _, cores := cuts(m, r.CPUs)
	free, sockets := 0, map[topo.Socket]bool{}
	for _, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n)
		if cpus.Overlaps(&r.CPUs) {
			free += s.Free.CountIn(&cpus)
			sockets[m.NUMASocket(n)] = true
		}
	}
	return [6]int{r.NUMANodes, len(sockets), r.Stage, partly, cores, free}
}

// TestNoMoreNUMANodesThanNeeded is A3 for rows 1 and 2 on larger machines. It counts, for requests on machines of 2 × 4
// NUMA nodes with random fragmentation, by how much the answers exceed the fewest NUMA nodes and sockets that any 2^N
// subset of nodes allows. Koordinator's allocator spans more nodes than needed in 6 to 34 % of such requests.
func TestNoMoreNUMANodesThanNeeded(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]shape{
		"2 × 4 NUMA nodes":          {sockets: 2, nodes: 4, cores: 8, threads: 2},
		"2 × 4 NUMA nodes, one SMT": {sockets: 2, nodes: 4, cores: 16, threads: 1},
		"4 × 3 NUMA nodes":          {sockets: 4, nodes: 3, cores: 4, threads: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := g.machine(t)
			rng := rand.New(rand.NewPCG(7, 7))
			requests, excess := 0, 0
			for range 3000 {
				s := scattered(rng, m)
				counts := cpualloc.CountNodes(nil, m, &s.Free)
				req := cpualloc.Request{
					Count: 1 + rng.IntN(s.Free.Len()), Bind: cpualloc.Bind(rng.IntN(2)),
					Strategy: cpualloc.Strategy(rng.IntN(2)), Exclusive: cpualloc.Exclusive(rng.IntN(3)),
					Required: rng.IntN(3) == 0,
				}
				if req.Required && req.Bind == full {
					req.Count = max(1, req.Count/g.threads) * g.threads
				}
				got, reason := cpualloc.Allocate(s, req)
				if !reason.OK() {
					continue
				}
				requests++
				nodes, sockets := fewestByMasks(m, counts, req)
				if got.NUMANodes != nodes || figures(s, got)[1] != sockets {
					excess++
					t.Errorf("%+v on %s: %d NUMA nodes %d sockets, want %d and %d", req, s.Free, got.NUMANodes,
						figures(s, got)[1], nodes, sockets)
				}
			}
			t.Logf("%d requests, %d span more than needed", requests, excess)
		})
	}
}

// TestEvenSplits is A6 on a larger machine than the oracle's. It checks DistributeEvenly on 8 NUMA nodes against all
// sets of them: as few nodes as an even split exists for, no share below the floor, and no other split on the same
// nodes that leaves less deviation behind.
func TestEvenSplits(t *testing.T) {
	t.Parallel()
	m := shape{sockets: 2, nodes: 4, cores: 4, threads: 2}.machine(t)
	rng := rand.New(rand.NewPCG(9, 9))
	split := 0
	for range 3000 {
		s := scattered(rng, m)
		req := cpualloc.Request{
			Count: 1 + rng.IntN(s.Free.Len()), Bind: cpualloc.Bind(rng.IntN(2)),
			Required: rng.IntN(2) == 0, Strategy: evenly,
		}
		group := 1
		if req.Bind == full {
			group = 2
		}
		got, reason := cpualloc.Allocate(s, req)
		if !reason.OK() || req.Count%group != 0 {
			continue
		}
		counts := cpualloc.CountNodes(nil, m, &s.Free)
		k := smallestEven(counts, req, group)
		if k == 0 {
			continue
		}
		split++
		if got.NUMANodes != k {
			t.Fatalf("%+v on %s: %s on %d NUMA nodes, want %d", req, s.Free, got.CPUs, got.NUMANodes, k)
		}
		floor := req.Count / (k * group) * group
		highest, lowest := -1, 1<<20 // left free by nodes that could take a group more, by nodes above the floor
		for _, n := range m.CPUNodes() {
			cpus := m.NUMACPUs(n)
			share := cpus.CountIn(&got.CPUs)
			if share == 0 {
				continue
			}
			left := weight(counts[n], req) - share
			if share < floor {
				t.Fatalf("%+v on %s: a share of %s is below %d", req, s.Free, got.CPUs, floor)
			}
			if left >= group {
				highest = max(highest, left)
			}
			if share > floor {
				lowest = min(lowest, left)
			}
		}
		if highest-group > lowest {
			t.Fatalf("%+v on %s: moving a group of %s to another NUMA node would leave less deviation", req, s.Free,
				got.CPUs)
		}
	}
	t.Logf("%d even splits", split)
}

// smallestEven is the smallest number of NUMA nodes with an even split, 0 for none.
func smallestEven(counts []cpualloc.NodeCount, req cpualloc.Request, group int) int {
	best := 0
	for mask := uint(1); mask < 1<<len(counts); mask++ {
		k := bits.OnesCount(mask)
		if best > 0 && k >= best {
			continue
		}
		floor := req.Count / (k * group) * group
		groups, low := 0, floor == 0
		for i, c := range counts {
			if mask>>i&1 == 1 {
				w := weight(c, req)
				low = low || w < floor
				groups += (w - floor) / group
			}
		}
		if !low && groups >= (req.Count-floor*k)/group {
			best = k
		}
	}
	return best
}

// scattered frees a random part of each NUMA node.
func scattered(rng *rand.Rand, m *topo.Machine) cpualloc.State {
	s := cpualloc.State{Machine: m}
	for _, n := range m.CPUNodes() {
		part := rng.IntN(9)
		for c := range m.NUMACPUs(n).All() {
			if rng.IntN(8) < part {
				s.Free.Add(c)
			}
		}
	}
	if s.Free.IsEmpty() {
		s.Free.Add(0)
	}
	return s
}

func weight(c cpualloc.NodeCount, req cpualloc.Request) int {
	switch {
	case !req.Required:
		return c.Free
	case req.Bind == full:
		return c.FreeWhole
	default:
		return c.FreeCores
	}
}

func fewestByMasks(m *topo.Machine, counts []cpualloc.NodeCount, req cpualloc.Request) (nodes, sockets int) {
	nodes, sockets = 65, 65
	for mask := range uint(1) << len(counts) {
		sum, seen := 0, map[topo.Socket]bool{}
		for i, c := range counts {
			if mask>>i&1 == 1 {
				sum += weight(c, req)
				seen[m.NUMASocket(topo.NUMA(i))] = true
			}
		}
		k := bits.OnesCount(mask)
		if sum >= req.Count && (k < nodes || k == nodes && len(seen) < sockets) {
			nodes, sockets = k, len(seen)
		}
	}
	return nodes, sockets
}

// TestNoMoreNUMANodesThanNeededOnLargeMachines is A3 for rows 1 and 2 on up to 64 NUMA nodes. It compares with a search
// over all sets of sockets: of one such set the largest nodes are enough.
func TestNoMoreNUMANodesThanNeededOnLargeMachines(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]shape{
		"2 × 8 NUMA nodes":  {sockets: 2, nodes: 8, cores: 16, threads: 1},
		"8 × 2 NUMA nodes":  {sockets: 8, nodes: 2, cores: 8, threads: 1},
		"8 × 8 NUMA nodes":  {sockets: 8, nodes: 8, cores: 8, threads: 1},
		"4 × 16 NUMA nodes": {sockets: 4, nodes: 16, cores: 8, threads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := g.machine(t)
			rng := rand.New(rand.NewPCG(8, 8))
			for range 1000 {
				s := scattered(rng, m)
				counts := cpualloc.CountNodes(nil, m, &s.Free)
				req := cpualloc.Request{Count: 1 + rng.IntN(s.Free.Len()), Strategy: cpualloc.Strategy(rng.IntN(2))}
				got, reason := cpualloc.Allocate(s, req)
				if !reason.OK() {
					t.Fatalf("%+v on %s: %+v", req, s.Free, reason)
				}
				nodes, sockets := fewestBySockets(s, counts, req)
				if got.NUMANodes != nodes || figures(s, got)[1] != sockets {
					t.Errorf("%+v on %s: %s on %d NUMA nodes and %d sockets, want %d and %d", req, s.Free, got.CPUs,
						got.NUMANodes, figures(s, got)[1], nodes, sockets)
				}
				checkExchanges(t, s, counts, req, got)
			}
		})
	}
}

// nodesOf returns the NUMA nodes that cpus touch, as a mask.
func nodesOf(m *topo.Machine, cpus cpuset.Set) (mask uint64) {
	for _, n := range m.CPUNodes() {
		if own := m.NUMACPUs(n); own.Overlaps(&cpus) {
			mask |= 1 << n
		}
	}
	return mask
}

func fewestBySockets(s cpualloc.State, counts []cpualloc.NodeCount, req cpualloc.Request) (nodes, sockets int) {
	m := s.Machine
	nodes, sockets = 65, 65
	for set := range uint(1) << m.NumSockets() {
		var weights []int
		sum, k := 0, 0
		for i, c := range counts {
			if set>>m.NUMASocket(topo.NUMA(i))&1 == 1 {
				weights = append(weights, weight(c, req))
			}
		}
		slices.Sort(weights)
		for len(weights) > 0 && sum < req.Count {
			sum += weights[len(weights)-1]
			weights = weights[:len(weights)-1]
			k++
		}
		j := bits.OnesCount(set)
		if sum >= req.Count && (k < nodes || k == nodes && j < sockets) {
			nodes, sockets = k, j
		}
	}
	return nodes, sockets
}

// checkExchanges checks row 6 on a machine whose distances are all equal and whose cores have one thread: exchanging
// one NUMA node of the answer for another, on no more sockets, gives no better sum of free CPUs.
func checkExchanges(t *testing.T, s cpualloc.State, counts []cpualloc.NodeCount, req cpualloc.Request,
	got cpualloc.Result,
) {
	t.Helper()
	m := s.Machine
	nodes, sum := nodesOf(m, got.CPUs), 0
	perSocket := map[topo.Socket]int{}
	for i, c := range counts {
		if nodes>>i&1 == 1 {
			sum += c.Free
			perSocket[m.NUMASocket(topo.NUMA(i))]++
		}
	}
	for out := range counts {
		for in := range counts {
			if nodes>>out&1 == 0 || nodes>>in&1 == 1 {
				continue
			}
			from, to := m.NUMASocket(topo.NUMA(out)), m.NUMASocket(topo.NUMA(in))
			if from != to && perSocket[to] == 0 && perSocket[from] > 1 {
				continue // one socket more
			}
			other := sum - counts[out].Free + counts[in].Free
			if other >= req.Count && (req.Strategy == most && other < sum || req.Strategy == least && other > sum) {
				t.Errorf("%+v on %s: %s, NUMA node %d instead of %d is better", req, s.Free, got.CPUs, in, out)
				return
			}
		}
	}
}
