package defrag

import (
	"container/heap"
	"slices"
)

// beyond tries sets of more than two pods: unions of options of different nodes, in order.
func (s *search) beyond(nodes []string) error {
	var options []set
	for _, node := range nodes {
		list, err := s.options(node)
		if err != nil {
			return err
		}
		options = append(options, list...)
	}
	// A pod that frees nothing can make room for another move, or is counted by a rule between nodes.
	s.Proven = s.Proven && s.want == 1 && !s.ruled && !s.tied
	if s.want == 1 { // an option is a set of its own, and small ones were tried
		options = slices.DeleteFunc(options, func(c set) bool { return len(c.pods) <= exact })
	}
	slices.SortFunc(options, compare)
	next := &unions{options: options}
	next.push(nil, 0)
	for len(next.list) > 0 {
		u := heap.Pop(next).(union)
		last := u.members[len(u.members)-1]
		next.push(u.members[:len(u.members)-1], last+1)
		if s.want > 1 && len(u.pods) < s.limits.Moves {
			next.push(u.members, last+1)
		}
		if s.spent(len(u.pods)) {
			return nil
		}
		if len(u.pods) <= exact || len(u.pods) > s.limits.Moves || u.gain < s.short || u.clashes {
			continue
		}
		if err := s.try(u.set); err != nil {
			return err
		}
		if s.Found {
			return nil
		}
	}
	return nil
}

// spent counts a set of so many pods, and reports whether the bound is reached.
func (s *search) spent(pods int) bool {
	s.Sets++
	if pods > exact {
		s.counted++
	}
	if s.counted > s.limits.Sets {
		s.Bounded, s.Proven = true, false
	}
	return s.Bounded
}

// options returns the sets of a node's pods that free more than each of their parts.
func (s *search) options(node string) (options []set, err error) {
	pods := s.byNode[node]
	if all, err := s.gain(newSet(slices.Clone(pods)...).pods); err != nil || all == 0 {
		return nil, err
	}
	parts := [][]int{nil} // indices of pods, ascending
	for size := 1; size <= s.limits.Moves; size++ {
		var larger [][]int
		for _, part := range parts {
			first := 0
			if len(part) > 0 {
				first = part[len(part)-1] + 1
			}
			for i := first; i < len(pods); i++ {
				if s.spent(size) {
					return options, nil
				}
				grown := append(slices.Clone(part), i)
				members := make([]Pod, len(grown))
				for j, at := range grown {
					members[j] = pods[at]
				}
				c, best := newSet(members...), 0
				if c.gain, err = s.gain(c.pods); err != nil {
					return nil, err
				}
				for drop := range c.pods {
					rest, err := s.gain(slices.Concat(c.pods[:drop], c.pods[drop+1:]))
					if err != nil {
						return nil, err
					}
					best = max(best, rest)
				}
				if c.gain > best {
					options = append(options, c)
				}
				if c.gain < s.short {
					larger = append(larger, grown)
				}
			}
		}
		parts = larger
	}
	return options, nil
}

// union is options together.
type union struct {
	set
	members []int // indices of options, ascending
	clashes bool  // two options are of one node
}

// unions is a heap of unions in the order of their sets.
type unions struct {
	options []set
	list    []union
}

// push adds the options of a union and one more.
func (u *unions) push(members []int, more int) {
	if more >= len(u.options) {
		return
	}
	next, nodes := union{members: append(slices.Clone(members), more)}, map[string]bool{}
	var pods []Pod
	for _, i := range next.members {
		o := u.options[i]
		next.clashes = next.clashes || nodes[o.pods[0].Node]
		nodes[o.pods[0].Node] = true
		pods = append(pods, o.pods...)
		next.gain += o.gain
	}
	next.pods = newSet(pods...).pods
	heap.Push(u, next)
}

func (u *unions) Len() int           { return len(u.list) }
func (u *unions) Less(i, j int) bool { return compare(u.list[i].set, u.list[j].set) < 0 }
func (u *unions) Swap(i, j int)      { u.list[i], u.list[j] = u.list[j], u.list[i] }
func (u *unions) Push(x any)         { u.list = append(u.list, x.(union)) }

// Pop removes the last union.
func (u *unions) Pop() any {
	last := u.list[len(u.list)-1]
	u.list = u.list[:len(u.list)-1]
	return last
}
