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
	// Capacity returns how many pods of the demand, at most want, a node takes once some pods are gone from it, and
	// whether a rule between nodes refuses the next one: then moves between other nodes can change the answer.
	Capacity(node string, gone []string, want int) (n int, ruled bool, err error)
	// Targets returns the nodes, without its own, that would take a pod as the cluster is, the best first, and those
	// that a rule between nodes refuses it: they may take it beside the successor of another pod.
	Targets(uid string) (fit, ruled []string, err error)
	// Linked reports whether a rule between nodes of one pod counts the other one, so that the move of either can
	// change which nodes take the other. A pod of the demand is "".
	Linked(a, b string) bool
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
		Cluster: c, limits: l, want: want, short: want, base: map[string]int{}, known: map[string]room{},
		targets: map[string]targets{}, byNode: map[string][]Pod{}, linked: map[string]bool{}, alone: map[string]bool{},
	}
	s.Proven = true
	for _, node := range nodes {
		n, ruled, err := c.Capacity(node, nil, want)
		if err != nil {
			return s.failed(err)
		}
		s.base[node], s.ruled = n, s.ruled || ruled
		s.short -= n
	}
	pods = slices.SortedStableFunc(slices.Values(pods), func(a, b Pod) int { return strings.Compare(a.Node, b.Node) })
	for _, p := range pods {
		s.byNode[p.Node] = append(s.byNode[p.Node], p)
		s.linked[p.UID] = c.Linked("", p.UID)
		s.ruled = s.ruled || s.linked[p.UID]
	}
	if s.short <= 0 || want > 1 && s.ruled {
		works, err := c.Works(nil)
		if err != nil {
			return s.failed(err)
		}
		if s.Found = works; works {
			return s.Result, nil
		}
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
	short   int             // pods of the demand that do not fit without a move
	counted int             // sets of more than two pods that were looked at
	base    map[string]int  // capacity of each node without a move
	known   map[string]room // by node and the pods that are gone
	targets map[string]targets
	byNode  map[string][]Pod

	ruled  bool            // A rule between nodes is among what decides where the demand fits.
	linked map[string]bool // by UID: such a rule counts the pod
	alone  map[string]bool // by UID: the pod alone was tried as a set
	tied   bool            // Such a rule refuses a target to a pod of a set that was tried.
}

// room is how many pods of the demand a node takes, and whether a rule between nodes refuses the next one.
type room struct {
	pods  int
	ruled bool
}

// targets are the nodes that take a pod, and those that a rule between nodes refuses it.
type targets struct{ fit, ruled []string }

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
		r, err := s.room(node, uids)
		if err != nil {
			return 0, err
		}
		gain += r.pods - s.base[node]
	}
	return gain, nil
}

// room returns what a node takes once some pods are gone from it.
func (s *search) room(node string, gone []string) (r room, err error) {
	key := node + "\x00" + strings.Join(gone, "\x00")
	r, known := s.known[key]
	if !known {
		if r.pods, r.ruled, err = s.Capacity(node, gone, s.want); err != nil {
			return room{}, err
		}
		s.known[key] = r
	}
	return r, nil
}

// frees reports whether a node takes more once some of its pods are gone, or would but for a rule between nodes.
func (s *search) frees(node string, gone ...string) (bool, error) {
	r, err := s.room(node, gone)
	return r.ruled || r.pods > s.base[node], err
}

// enumerate tries all sets of one or two pods that free enough, or that a rule between nodes may count, in order.
func (s *search) enumerate(pods []Pod, size int) error {
	var enough []set
	add := func(ruled bool, members ...Pod) (err error) {
		c := newSet(members...)
		s.Sets++
		if c.gain, err = s.gain(c.pods); c.gain >= s.short || ruled {
			enough = append(enough, c)
		}
		return err
	}
	sets := s.singles
	if size == exact {
		sets = s.pairs
	}
	if err := sets(pods, add); err != nil {
		return err
	}
	slices.SortFunc(enough, compare)
	for _, c := range enough {
		s.alone[c.pods[0].UID] = s.alone[c.pods[0].UID] || size == 1
		if err := s.try(c); err != nil || s.Found {
			return err
		}
	}
	return nil
}

// singles adds the sets of one pod.
func (s *search) singles(pods []Pod, add func(ruled bool, members ...Pod) error) error {
	for _, p := range pods {
		ruled, err := s.helps(p)
		// A demand of one pod is let in by the room that a pod leaves, or by the rule that counts the pod.
		if err == nil {
			err = add(ruled && (s.linked[p.UID] || s.want > 1), p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pairs adds the sets of two pods. Without a rule between nodes both pods of a set for one pod are on one node. With
// one, a pod on another node helps if the rule counts it, or counts the pod beside it. Of several members of a demand
// one can lose its room to the successor of a pod: any other pod can make up for that.
func (s *search) pairs(pods []Pod, add func(ruled bool, members ...Pod) error) error {
	helps, waits := make([]bool, len(pods)), make([]bool, len(pods))
	for i, p := range pods {
		var err error
		if helps[i], err = s.helps(p); err != nil {
			return err
		}
		waits[i] = s.alone[p.UID] && len(s.targets[p.UID].ruled) > 0
	}
	single := s.want == 1
	for i, p := range pods {
		for j := i + 1; j < len(pods); j++ {
			q := pods[j]
			if single && !s.ruled && !s.tied && p.Node != q.Node {
				break // pods are in the order of their nodes
			}
			same, counted := p.Node == q.Node, s.ruled && (!single || s.linked[p.UID] || s.linked[q.UID])
			ruled := counted && (helps[i] && helps[j] || !single && (helps[i] || helps[j])) ||
				(waits[i] || waits[j]) && s.Linked(p.UID, q.UID)
			if same && counted && !ruled {
				var err error
				if ruled, err = s.frees(p.Node, newSet(p, q).uids()...); err != nil {
					return err
				}
			}
			if ruled || same || !single {
				if err := add(ruled, p, q); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// helps reports whether the move of a pod can let more of the demand fit under a rule between nodes.
func (s *search) helps(p Pod) (bool, error) {
	if !s.ruled || s.linked[p.UID] {
		return s.ruled, nil
	}
	return s.frees(p.Node, p.UID)
}

// uids are those of the pods of the set.
func (c set) uids() (all []string) {
	for i := range c.pods {
		all = append(all, c.pods[i].UID)
	}
	return all
}

// try looks for targets with which a set works. A target that a rule between nodes refuses may be one beside another
// successor.
func (s *search) try(c set) error {
	left := map[string]bool{}
	for _, p := range c.pods {
		left[p.Node] = true
		if _, known := s.targets[p.UID]; !known {
			fit, ruled, err := s.Targets(p.UID)
			if err != nil {
				return err
			}
			s.targets[p.UID] = targets{fit, ruled}
			s.tied = s.tied || len(ruled) > 0
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
		list := slices.Clone(s.targets[p.UID].fit)
		if len(c.pods) > 1 {
			list = append(list, s.targets[p.UID].ruled...)
		}
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
