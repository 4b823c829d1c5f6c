package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/core/fragment"
)

const (
	leaving = 5 // percent of the pods that run
	// setsLooked and targetsTried bound a search.
	setsLooked   = 1_000_000
	targetsTried = 64
)

// churned is a cluster whose pods ask for a part of all GPUs, after some pods left and others arrived.
type churned struct {
	*cluster
	running map[string]holding // by UID
	waiting []arrival          // in the order of their arrival
}

// arrival is a pod with a UID, which is its number among the arrivals.
type arrival struct {
	*pod
	uid string
}

// churn lets pods arrive until they ask for some percent of all GPUs, takes away some of those that run, at random, and
// lets others arrive until the pods ask for as much again. A pod that does not fit waits, and is tried again after the
// others have left.
func churn(t *trace, name string, settings fragment.Settings, seed uint64, demand int64) (*churned, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	pods, next, asked := t.arrivals(rng), 0, int64(0)
	c := &churned{running: map[string]holding{}}
	var err error
	if c.cluster, err = newCluster(t, name, settings, rng); err != nil {
		return nil, err
	}
	fill := func() error {
		for ; next < len(pods) && asked*100 < demand*t.capacity; next++ {
			p := &pods[next]
			if err := c.arrive(p); err != nil {
				return err
			}
			asked += p.demand()
			if a := (arrival{p, fmt.Sprintf("%05d", next)}); !c.start(a) {
				c.waiting = append(c.waiting, a)
			}
		}
		return nil
	}
	if err := fill(); err != nil {
		return nil, err
	}
	uids := c.uids()
	rng.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	for _, uid := range uids[:len(uids)*leaving/100] {
		asked -= c.running[uid].demand()
		c.stop(uid)
	}
	c.waiting = slices.DeleteFunc(c.waiting, c.start)
	return c, fill()
}

// uids returns the UIDs of the pods that run, ascending.
func (c *churned) uids() (uids []string) {
	for uid := range c.running {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// start places a pod, and reports whether it fits.
func (c *churned) start(a arrival) bool {
	h, fits := c.place(a.pod)
	if fits {
		c.running[a.uid] = h
	}
	return fits
}

// stop takes a pod that runs off its node.
func (c *churned) stop(uid string) {
	h := c.running[uid]
	c.nodes[h.node].release(h)
	c.used -= h.demand()
	delete(c.running, uid)
}

// clone returns a copy, in which a seed decides what is left to chance.
func (c *churned) clone(seed uint64) *churned {
	nodes := *c.cluster
	nodes.nodes, nodes.ratings = slices.Clone(c.nodes), make([][]rating, len(c.ratings))
	nodes.rng = rand.New(rand.NewPCG(seed, 1))
	return &churned{&nodes, maps.Clone(c.running), slices.Clone(c.waiting)}
}

// outcome is what making room for the waiting pods achieved.
type outcome struct {
	placed   int // pods that waited
	large    int // those of them with 4 or 8 GPUs
	moved    int
	searches int
	bounded  int // searches that ended without a result by a bound, not by proof
}

// makeRoom offers each waiting pod, in the order of their arrival, a place, or else the smallest set of at most so many
// moves after which it has one.
func (c *churned) makeRoom(moves int) (m outcome, err error) {
	large := countLarge(c.waiting)
	hopeless := map[pod]bool{} // pods for which no set of moves was found since the last pod was placed
	c.waiting = slices.DeleteFunc(slices.Clone(c.waiting), func(a arrival) bool {
		if err != nil || hopeless[*a.pod] {
			return false
		}
		var found defrag.Result
		if !c.start(a) {
			if moves == 0 {
				return false
			}
			m.searches++
			found, err = c.search(a.pod, moves)
			if err != nil || !found.Found {
				if hopeless[*a.pod] = true; !found.Proven {
					m.bounded++
				}
				return false
			}
			if err = c.move(found.Moves); err != nil {
				return false
			}
			if !c.start(a) {
				err = fmt.Errorf("pod %s does not fit after the moves %v", a.uid, found.Moves)
				return false
			}
		}
		clear(hopeless)
		m.placed++
		m.moved += len(found.Moves)
		return true
	})
	m.large = large - countLarge(c.waiting)
	return m, err
}

// move gives each pod its new place, and takes them off their old ones once all have one.
func (c *churned) move(moves []defrag.Move) error {
	next := make([]holding, len(moves))
	for i, m := range moves {
		at := c.at(m.Target)
		p := c.running[m.UID].pod
		r := c.rate(p, at)
		if r == nil || !r.fits {
			return fmt.Errorf("pod %s does not fit on %s", m.UID, m.Target)
		}
		next[i] = c.put(p, at, r.gpus)
	}
	for i, m := range moves {
		c.stop(m.UID)
		c.running[m.UID] = next[i]
	}
	return nil
}

// at returns the index of a node.
func (c *cluster) at(name string) int {
	at, _ := slices.BinarySearchFunc(c.nodes, name, func(n node, name string) int { return cmp.Compare(n.name, name) })
	return at
}

// search finds the smallest set of moves after which a pod fits. Every pod may move, all at the same cost.
func (c *churned) search(p *pod, moves int) (defrag.Result, error) {
	var names []string
	for i := range c.nodes {
		names = append(names, c.nodes[i].name)
	}
	var movable []defrag.Pod
	for _, uid := range c.uids() {
		movable = append(movable, defrag.Pod{UID: uid, Node: c.nodes[c.running[uid].node].name})
	}
	return defrag.Search(&room{c, p}, names, movable, 1, defrag.Limits{
		Moves: moves, Sets: setsLooked, Targets: targetsTried,
	})
}

// room answers a search for moves after which a pod fits.
type room struct {
	*churned
	demand *pod
}

var _ defrag.Cluster = (*room)(nil)

// Capacity returns 1 where a node takes the pod. No rule is between nodes.
func (r *room) Capacity(name string, gone []string, _ int) (int, bool, error) {
	n := r.nodes[r.at(name)]
	for _, uid := range gone {
		n.release(r.running[uid])
	}
	if n.fits(r.demand) {
		return 1, false, nil
	}
	return 0, false, nil
}

// Linked is false for all pods.
func (r *room) Linked(string, string) bool { return false }

// Targets returns the nodes that the policy would choose for a pod, the best first.
func (r *room) Targets(uid string) (targets, _ []string, _ error) {
	h := r.running[uid]
	type target struct {
		at    int
		score int64
	}
	var list []target
	for at := range r.nodes {
		if known := r.rate(h.pod, at); at != h.node && known != nil && known.fits {
			list = append(list, target{at, known.score})
		}
	}
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(b.score, a.score) })
	for _, t := range list {
		targets = append(targets, r.nodes[t.at].name)
	}
	return targets, nil, nil
}

// Works reports whether the moves make room for the pod.
func (r *room) Works(moves []defrag.Move) (bool, error) {
	changed := map[int]*node{}
	change := func(at int) *node {
		if changed[at] == nil {
			n := r.nodes[at]
			changed[at] = &n
		}
		return changed[at]
	}
	for _, m := range moves {
		n, p := change(r.at(m.Target)), r.running[m.UID].pod
		if !n.fits(p) {
			return false, nil
		}
		_, gpus, _ := r.chooser.score(n, p)
		n.take(p, gpus)
	}
	for _, m := range moves {
		h := r.running[m.UID]
		change(h.node).release(h)
	}
	for _, n := range changed {
		if n.fits(r.demand) {
			return true, nil
		}
	}
	return len(moves) == 0, nil
}

// compareRoom prints what making room adds to what a policy allocates of a trace.
func compareRoom(out io.Writer, t *trace, kind, name string, settings fragment.Settings, seeds int) error {
	fmt.Fprintf(out, "room: trace=%s policy=%s seeds=%d leaving=%d%% sets=%d targets=%d\n", kind, name, seeds, leaving,
		setsLooked, targetsTried)
	fmt.Fprintf(out, "| Demand | Moves for a pod | Allocated GPUs | Free parts of GPUs | Waiting pods placed | "+
		"With 4 or 8 GPUs | Pods moved | Searches cut short |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, demand := range []int64{90, 95, 100} {
		if err := roomAt(out, t, name, settings, seeds, demand); err != nil {
			return err
		}
	}
	return nil
}

// roomAt prints the rows of a demand in percent: medians of what is allocated, and of what is free on GPUs that pods
// share, and sums over all seeds.
func roomAt(out io.Writer, t *trace, name string, settings fragment.Settings, seeds int, demand int64) error {
	limits := []int{0, 1, 2, 4}
	shares, parts := make([][]float64, len(limits)), make([][]float64, len(limits))
	sums := make([]outcome, len(limits))
	waiting, large := 0, 0
	for seed := range uint64(seeds) {
		before, err := churn(t, name, settings, firstSeed+seed, demand)
		if err != nil {
			return err
		}
		waiting += len(before.waiting)
		large += countLarge(before.waiting)
		for i, moves := range limits {
			after := before.clone(firstSeed + seed)
			m, err := after.makeRoom(moves)
			if err != nil {
				return err
			}
			shares[i] = append(shares[i], t.percent(after.used))
			parts[i] = append(parts[i], t.percent(after.freeParts()))
			s := &sums[i]
			s.placed, s.large, s.moved = s.placed+m.placed, s.large+m.large, s.moved+m.moved
			s.searches, s.bounded = s.searches+m.searches, s.bounded+m.bounded
		}
	}
	for i, moves := range limits {
		slices.Sort(shares[i])
		slices.Sort(parts[i])
		s := &sums[i]
		fmt.Fprintf(out, "| %d %% | %d | %.2f | %.2f | %d of %d | %d of %d | %d | %d of %d |\n", demand, moves,
			median(shares[i]), median(parts[i]), s.placed, waiting, s.large, large, s.moved, s.bounded, s.searches)
	}
	return nil
}

// countLarge returns how many pods ask for 4 or 8 GPUs.
func countLarge(pods []arrival) (n int) {
	for _, a := range pods {
		if a.GPUs == 4 || a.GPUs == 8 {
			n++
		}
	}
	return n
}

// freeParts returns what is free on GPUs of which a pod has a part, in milli.
func (c *cluster) freeParts() (sum int64) {
	for i := range c.nodes {
		for _, free := range c.nodes[i].Free {
			if free < fragment.Whole {
				sum += free
			}
		}
	}
	return sum
}
