package kubelet

import (
	"math"
	"math/bits"
	"time"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// Explanation is one admission, step by step.
type Explanation struct {
	Steps []Step
	// Placement is what the pod gets, nil with a Refusal.
	Placement Placement
	Refusal   *Refusal
}

// Step is a merge with what was allocated by it. Under pod scope the first step is the merge of the whole pod, and
// those of the containers have no lists.
type Step struct {
	// Container is "" for the whole pod.
	Container string
	// Lists are the hints of every resource that was asked for, in the order of the providers; nil without a topology
	// policy. Table is what came of them.
	Lists []hint.Named
	Table hint.Table
	// Cost is about how long the kubelet takes for the merge: 0.17 µs for each candidate of the product of all lists
	// (kubernetes#131738, #137700), math.MaxInt64 is for ever.
	Cost time.Duration
	// Uncertain is as in Given.
	Uncertain bool
	// Given is what the container got; nil when it got nothing because the admission ended here or before.
	Given *Given
}

// Explain goes through the admission of p and keeps what is asked, answered and allocated. It is for people: it makes
// every list.
func (s *State) Explain(p *Pod) Explanation {
	var e Explanation
	a := s.admission(p)
	e.Refusal = a.run(func(c *Container, lists []hint.Named) {
		q := a.node.question(a.pod, c)
		step := Step{Lists: lists, Cost: a.cost(&q, lists), Uncertain: a.uncertain}
		if c != nil {
			step.Container = c.Name
		}
		if lists != nil {
			step.Table = s.node.rule.Explain(lists)
		}
		e.Steps = append(e.Steps, step)
	})
	for i := range a.given {
		if e.Refusal != nil && i == len(a.given)-1 && e.Refusal.Container == a.given[i].Container {
			break // it got a hint, and then not all that it asked for
		}
		e.step(a.given[i].Container).Given = &a.given[i]
	}
	if e.Refusal == nil {
		e.Placement = a.given
	}
	return e
}

// step returns the step of a container, a new one if it has none.
func (e *Explanation) step(container string) *Step {
	for i := range e.Steps {
		if e.Steps[i].Container == container {
			return &e.Steps[i]
		}
	}
	e.Steps = append(e.Steps, Step{Container: container})
	return &e.Steps[len(e.Steps)-1]
}

// perCandidate is about how long the kubelet takes to compare one candidate.
const perCandidate = 170 * time.Nanosecond

// slowest is the longest Duration. It stands for a merge that never ends.
const slowest = time.Duration(math.MaxInt64)

// times returns a·b, or the largest number if that is larger.
func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// cost is the Cost of a merge: of the product of all lists, each of which counts one candidate at least.
// lists are those of q; nil makes them.
func (a *admission) cost(q *question, lists []hint.Named) time.Duration {
	for nodes := range a.node.walks(q) {
		if tooWide(nodes) {
			return slowest
		}
	}
	candidates, single := uint64(1), a.node.rule.Policy == hint.SingleNUMANode
	if lists == nil {
		lists = a.lists(q)
	}
	for _, l := range lists {
		n := uint64(0)
		for _, h := range l.List {
			if !single || h.Preferred && h.Mask.Len() == 1 {
				n++
			}
		}
		if l.List == nil || n == 0 && !single {
			n = 1
		}
		candidates = times(candidates, n)
	}
	return took(candidates)
}

// masks is how many masks of so many nodes a merge looks at, at most.
func (n *Node) masks(nodes int) uint64 {
	if n.rule.Policy == hint.SingleNUMANode {
		return uint64(nodes)
	}
	return 1<<nodes - 1
}

// took returns about how long the kubelet takes for this many candidates, at most slowest.
func took(candidates uint64) time.Duration {
	if candidates > uint64(slowest/perCandidate) {
		return slowest
	}
	return time.Duration(candidates) * perCandidate
}
