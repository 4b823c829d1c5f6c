package defrag

import (
	"cmp"
	"slices"
	"strings"
)

// exact is the number of moves up to which all sets are enumerated.
const exact = 2

// Pod is a pod that may be moved.
type Pod struct {
	UID, Node string
	// Cost is what its eviction costs; lower is better.
	Cost     int64
	Priority int32
}

// Move is a pod with the node that it goes to.
type Move struct {
	Pod
	Target string
}

// Cluster answers from copies of the accounts. An error ends the search.
type Cluster interface {
	// Capacity returns how many pods of the demand, at most want, a node takes once some pods are gone from it.
	Capacity(node string, gone []string, want int) (int, error)
	// Targets returns the nodes, without its own, that would take a pod as the cluster is, the best first.
	Targets(uid string) ([]string, error)
	// Works reports whether the targets take the pods, each beside those before it, while no pod has left, and whether
	// the demand fits once all have.
	Works(moves []Move) (bool, error)
}

// Limits bound a search.
type Limits struct {
	// Moves is the largest number of pods of a set.
	Moves int
	// Sets bounds the search beyond two pods. Sets of one and two pods are all looked at, and do not count.
	Sets int
	// Targets bounds the assignments of targets that are tried for one set.
	Targets int
}

// Result is what a search found.
type Result struct {
	// Found reports whether a set works; Moves is that set. It is empty if the demand fits without a move.
	Found bool
	Moves []Move
	// Proven reports whether no smaller set works; if none was found, whether none of at most Limits.Moves does.
	Proven bool
	// Sets is the number of sets that were looked at.
	Sets int
	// Bounded reports whether Limits.Sets ended the search.
	Bounded bool
}

// Search finds the smallest set of moves after which want equal pods fit. With an error of the Cluster it returns how
// far it came.
func Search(c Cluster, nodes []string, pods []Pod, want int, l Limits) (Result, error) {
	s := &search{
		Cluster: c, limits: l, want: want, short: want, base: map[string]int{}, known: map[string]int{},
		targets: map[string][]string{}, byNode: map[string][]Pod{},
	}
	s.Proven = true
	for _, node := range nodes {
		n, err := c.Capacity(node, nil, want)
		if err != nil {
			return s.failed(err)
		}
		s.base[node] = n
		s.short -= n
	}
	for _, p := range pods {
		s.byNode[p.Node] = append(s.byNode[p.Node], p)
	}
	if s.short <= 0 {
		works, err := c.Works(nil)
		if err != nil {
			return s.failed(err)
		}
		s.Found = works
		return s.Result, nil
	}
	for size := 1; size <= min(l.Moves, exact) && !s.Found; size++ {
		if err := s.enumerate(pods, size); err != nil {
			return s.failed(err)
		}
	}
	if !s.Found && l.Moves > exact {
		if err := s.beyond(nodes); err != nil {
			return s.failed(err)
		}
	}
	return s.Result, nil
}

// failed ends a search with an error and the number of sets that were tried.
func (s *search) failed(err error) (Result, error) { return Result{Sets: s.Sets}, err }

// search is one search for a set of moves.
type search struct {
	Cluster
	Result
	limits  Limits
	want    int
	short   int            // pods of the demand that do not fit without a move
	counted int            // sets of more than two pods that were looked at
	base    map[string]int // capacity of each node without a move
	known   map[string]int // capacity by node and the pods that are gone
	targets map[string][]string
	byNode  map[string][]Pod
}

// set is pods that are moved together, sorted by UID.
type set struct {
	pods []Pod
	gain int // further pods of the demand that fit once the pods are gone
}

// compare orders sets: fewer moves, less cost, lower priorities, then by UID.
func compare(a, b set) int {
	return cmp.Or(
		cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(cost(a.pods), cost(b.pods)),
		slices.Compare(priorities(a.pods), priorities(b.pods)),
		slices.CompareFunc(a.pods, b.pods, func(p, q Pod) int { return strings.Compare(p.UID, q.UID) }),
	)
}

// cost adds up what moving pods costs.
func cost(pods []Pod) (sum int64) {
	for i := range pods {
		sum += pods[i].Cost
	}
	return sum
}

// priorities are sorted, the highest first.
func priorities(pods []Pod) (list []int32) {
	for i := range pods {
		list = append(list, pods[i].Priority)
	}
	slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(b, a) })
	return list
}

// newSet returns a set of pods, sorted by UID.
func newSet(pods ...Pod) set {
	slices.SortFunc(pods, func(a, b Pod) int { return strings.Compare(a.UID, b.UID) })
	return set{pods: pods}
}

// gain returns how many further pods of the demand the nodes of the pods take once these are gone.
func (s *search) gain(pods []Pod) (gain int, err error) {
	gone := map[string][]string{}
	for _, p := range pods {
		gone[p.Node] = append(gone[p.Node], p.UID)
	}
	for node, uids := range gone {
		key := node + "\x00" + strings.Join(uids, "\x00")
		n, known := s.known[key]
		if !known {
			if n, err = s.Capacity(node, uids, s.want); err != nil {
				return 0, err
			}
			s.known[key] = n
		}
		gain += n - s.base[node]
	}
	return gain, nil
}

// enumerate tries all sets of one or two pods that free enough, in order.
func (s *search) enumerate(pods []Pod, size int) error {
	var enough []set
	add := func(members ...Pod) (err error) {
		c := newSet(members...)
		s.Sets++
		if c.gain, err = s.gain(c.pods); c.gain >= s.short {
			enough = append(enough, c)
		}
		return err
	}
	for i, p := range pods {
		if size == 1 {
			if err := add(p); err != nil {
				return err
			}
			continue
		}
		others := pods[i+1:]
		if s.want == 1 {
			at := slices.Index(s.byNode[p.Node], p)
			others = s.byNode[p.Node][at+1:]
		}
		for _, q := range others {
			if err := add(p, q); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(enough, compare)
	for _, c := range enough {
		if err := s.try(c); err != nil || s.Found {
			return err
		}
	}
	return nil
}

// try looks for targets with which a set works.
func (s *search) try(c set) error {
	left := map[string]bool{}
	for _, p := range c.pods {
		left[p.Node] = true
		if _, known := s.targets[p.UID]; !known {
			list, err := s.Targets(p.UID)
			if err != nil {
				return err
			}
			s.targets[p.UID] = list
		}
	}
	tries, moves := 0, make([]Move, 0, len(c.pods))
	var assign func(i int) error
	assign = func(i int) error {
		if i == len(c.pods) {
			if tries++; tries > s.limits.Targets {
				s.Proven = false
				return nil
			}
			works, err := s.Works(moves)
			if works {
				s.Found, s.Moves = true, slices.Clone(moves)
			}
			return err
		}
		p := c.pods[i]
		list := slices.Clone(s.targets[p.UID])
		// Nodes first that neither the demand nor another move needs.
		slices.SortStableFunc(list, func(a, b string) int {
			return cmp.Compare(s.needs(a, left, moves), s.needs(b, left, moves))
		})
		for _, target := range list {
			moves = append(moves, Move{p, target})
			err := assign(i + 1)
			moves = moves[:i]
			if err != nil || s.Found || tries > s.limits.Targets {
				return err
			}
		}
		return nil
	}
	return assign(0)
}

// needs returns how much a node is wanted otherwise: 2 if the demand fits there or pods have left it, and 1 more if it
// is the target of another move.
func (s *search) needs(node string, left map[string]bool, moves []Move) (n int) {
	if left[node] || s.base[node] > 0 {
		n += 2
	}
	if slices.ContainsFunc(moves, func(m Move) bool { return m.Target == node }) {
		n++
	}
	return n
}

// Fragments answers from copies of the accounts, on which the moves that were made hold.
type Fragments interface {
	// Targets returns the nodes, without its own, that would take a pod, the best first.
	Targets(uid string) ([]string, error)
	// Try returns by how much the fragmentation of all nodes falls with a move after those that were made; false where
	// the target does not take the pod. It changes nothing.
	Try(made []Move, m Move) (fall int64, works bool, err error)
}

// Step is a move with what it is for.
type Step struct {
	Move

	Fall int64
}

// compare orders steps: those that lower the fragmentation most first, then those that cost less.
func (s *Step) compare(o *Step) int {
	return cmp.Or(cmp.Compare(o.Fall, s.Fall), cmp.Compare(s.Cost, o.Cost), cmp.Compare(s.Priority, o.Priority),
		strings.Compare(s.UID, o.UID), strings.Compare(s.Target, o.Target))
}

// Improve returns at most so many moves, each of a pod of its own, after each of which the fragmentation is lower by at
// least the least fall: of all moves that are left, always the one with the largest fall, then the lowest cost,
// priority, UID and target. It is greedy: two moves that help together alone are not found. With an error it returns
// the moves that it had found, each of which works after those before it.
func Improve(c Fragments, pods []Pod, most int, least int64) (steps []Step, err error) {
	var made []Move
	moved := map[string]bool{}
	for len(steps) < most && err == nil {
		var best *Step
		if best, err = bestOf(c, pods, made, moved, least); best == nil {
			break
		}
		steps, made = append(steps, *best), append(made, best.Move)
		moved[best.UID] = true
	}
	return steps, err
}

// bestOf returns the best move that is left, nil for none; with an error the best one that was tried.
func bestOf(c Fragments, pods []Pod, made []Move, moved map[string]bool, least int64) (best *Step, err error) {
	for _, p := range pods {
		if moved[p.UID] {
			continue
		}
		targets, err := c.Targets(p.UID)
		if err != nil {
			return best, err
		}
		for _, target := range targets {
			s := Step{Move: Move{Pod: p, Target: target}}
			fall, works, err := c.Try(made, s.Move)
			if err != nil {
				return best, err
			}
			if s.Fall = fall; works && s.Fall >= least && (best == nil || s.compare(best) < 0) {
				best = &s
			}
		}
	}
	return best, nil
}
