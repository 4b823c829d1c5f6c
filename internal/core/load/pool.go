package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Shares are parts of 10,000 of what a node can allocate; 0 is for a resource that is not judged.
type Shares [amount.Resources]int64

// whole is all that a node can allocate.
const whole = 10_000

// Band is below which use of all judged resources a node is low, and above which use of any it is high. It judges the
// resources of High. The zero Band judges none.
type Band struct{ Low, High Shares }

// Kind is whose use is compared.
type Kind uint8

// Kinds: all that a node uses, and what its production pods use.
const (
	All Kind = iota
	Prod
	kinds
)

// Member is a node of a Pool.
type Member struct {
	Allocatable amount.Pair
	Use         [kinds]amount.Pair
	// Pods may leave, in this order.
	Pods []PodUse
	// Closed is set for a node that takes no pods.
	Closed bool

	left []bool // the pods that have left
}

// Pool is nodes that pods are moved between.
type Pool struct {
	Members []Member
	Bands   [kinds]Band
	// Weights are how much a resource counts where uses are compared.
	Weights [amount.Resources]int64
}

// Deviate takes the bands of a pool as distances from the mean use of its members.
func (p *Pool) Deviate() {
	for kind := range kinds {
		b := &p.Bands[kind]
		for r := range amount.Resources {
			if b.High[r] == 0 {
				continue
			}
			sum := int64(0)
			for i := range p.Members {
				sum += min(p.Members[i].share(kind, r), whole)
			}
			mean := sum / int64(max(len(p.Members), 1))
			b.Low[r], b.High[r] = max(mean-b.Low[r], 0), min(mean+b.High[r], whole)
		}
	}
}

// share returns the use in parts of 10,000.
func (m *Member) share(kind Kind, r amount.Resource) int64 {
	if m.Allocatable[r] <= 0 {
		return 0
	}
	return amount.Part(m.Use[kind][r], whole, m.Allocatable[r], 0)
}

// excess returns by how much the use of a resource is above its high threshold; at most 0 where it is not. A resource
// that the node does not have is not judged.
func (p *Pool) excess(i int, kind Kind, r amount.Resource) int64 {
	m := &p.Members[i]
	if p.Bands[kind].High[r] == 0 || m.Allocatable[r] <= 0 {
		return 0
	}
	return m.Use[kind][r] - amount.Part(m.Allocatable[r], p.Bands[kind].High[r], whole, 0)
}

// IsHigh reports whether the use of any resource is above its high threshold.
func (p *Pool) IsHigh(i int, kind Kind) bool {
	return slices.ContainsFunc(amount.Both(), func(r amount.Resource) bool { return p.excess(i, kind, r) > 0 })
}

// isLow reports whether the use of each judged resource is below its low threshold.
func (p *Pool) isLow(i int, kind Kind) bool {
	m, b := &p.Members[i], p.Bands[kind]
	return b != Band{} && !slices.ContainsFunc(amount.Both(), func(r amount.Resource) bool {
		return b.High[r] > 0 && m.Use[kind][r] >= amount.Part(m.Allocatable[r], b.Low[r], whole, 0)
	})
}

// Low returns the members that are low and take pods.
func (p *Pool) Low(kind Kind) (low []int) {
	for i := range p.Members {
		if !p.Members[i].Closed && p.isLow(i, kind) {
			low = append(low, i)
		}
	}
	return low
}

// Weighted returns the weighted mean of a use, in parts of 10,000 of what a member can allocate.
func (p *Pool) Weighted(i int, use amount.Pair) int64 {
	m := Member{Allocatable: p.Members[i].Allocatable, Use: [kinds]amount.Pair{use}}
	sum, weights := int64(0), int64(0)
	for r, weight := range p.Weights {
		sum += weight * min(m.share(All, amount.Resource(r)), 100*whole)
		weights += weight
	}
	return sum / max(weights, 1)
}

// minImprovement is by how much a move lowers a use, so that pods do not leave their nodes for little.
const minImprovement = 500

// Relieve moves pods from high members to low ones, from the most used one first, until each is below the threshold, or
// no low member holds a pod that would help. A move helps if of a resource that the source uses too much, the larger
// use of both members falls by 5 percent of what they can allocate. A target stays below each high threshold with the
// pod. move gets the targets that do, the least used first, and returns the one that the pod moves to; false where it
// does not move.
func (p *Pool) Relieve(kind Kind, high, low []int, move func(source, pod int, targets []int) (target int, ok bool)) {
	use := func(i int) int64 { return p.Weighted(i, p.Members[i].Use[kind]) }
	high = slices.Clone(high)
	slices.SortStableFunc(high, func(a, b int) int { return cmp.Compare(use(b), use(a)) })
	for _, source := range high {
		m := &p.Members[source]
		if m.left == nil {
			m.left = make([]bool, len(m.Pods))
		}
		for i, pod := range m.Pods {
			if m.left[i] || kind == Prod && !pod.Prod {
				continue
			}
			targets := slices.DeleteFunc(slices.Clone(low), func(t int) bool {
				return t == source || !p.helps(source, t, kind, pod) || !p.holds(t, pod)
			})
			slices.SortStableFunc(targets, func(a, b int) int { return cmp.Compare(use(a), use(b)) })
			if len(targets) == 0 {
				continue
			}
			if target, ok := move(source, i, targets); ok {
				m.left[i] = true
				p.Members[target].add(pod)
				m.remove(pod)
			}
		}
	}
}

// helps reports whether a move lowers the use of a resource that is used too much.
func (p *Pool) helps(source, target int, kind Kind, pod PodUse) bool {
	from, to := p.Members[source], p.Members[target]
	from.remove(pod)
	to.add(pod)
	return slices.ContainsFunc(amount.Both(), func(r amount.Resource) bool {
		before := max(p.Members[source].share(kind, r), p.Members[target].share(kind, r))
		after := max(from.share(kind, r), to.share(kind, r))
		return p.excess(source, kind, r) > 0 && before-after >= minImprovement
	})
}

// holds reports whether the use of a member stays below all high thresholds with a pod.
func (p *Pool) holds(target int, pod PodUse) bool {
	m := p.Members[target]
	m.add(pod)
	for kind, b := range p.Bands {
		for r, high := range b.High {
			judged := high > 0 && (Kind(kind) == All || pod.Prod)
			if judged && m.Use[kind][r] >= amount.Part(m.Allocatable[r], high, whole, 0) {
				return false
			}
		}
	}
	return true
}

// add adds the use of a pod.
func (m *Member) add(pod PodUse) {
	m.Use[All] = m.Use[All].Plus(pod.Use)
	if pod.Prod {
		m.Use[Prod] = m.Use[Prod].Plus(pod.Use)
	}
}

// remove subtracts a pod. Reports of the node and of its pods are not of one moment: no use falls below 0.
func (m *Member) remove(pod PodUse) {
	m.Use[All] = m.Use[All].Without(pod.Use)
	if pod.Prod {
		m.Use[Prod] = m.Use[Prod].Without(pod.Use)
	}
}

// Condition is how long a node must be high before pods leave it.
type Condition struct {
	// Abnormal and Normal are how many reports in a row begin and end an anomaly with one more.
	Abnormal, Normal int
	// Timeout ends an anomaly that began so long ago.
	Timeout time.Duration
}

// Detector finds nodes that are high for long enough, by keys. It is kept from round to round. The zero value has seen
// no node. Not safe for concurrent use.
type Detector struct{ nodes map[string]*streak }

// streak is what was seen of a node.
type streak struct {
	last, seen time.Time // of the last report that counted: when it was made, and when it was marked
	began      time.Time // of the anomaly; zero where there is none
	// abnormal and normal are reports in a row. Invariant: one of them is 0.
	abnormal, normal int
}

// Mark counts a report that was made at a time, once, and returns whether the node is in an anomaly.
func (d *Detector) Mark(key string, c Condition, high bool, made, now time.Time) bool {
	s := d.nodes[key]
	if s == nil {
		if d.nodes == nil {
			d.nodes = map[string]*streak{}
		}
		s = &streak{}
		d.nodes[key] = s
	}
	if !s.began.IsZero() && now.Sub(s.began) >= c.Timeout {
		*s = streak{last: s.last, seen: s.seen}
	}
	if made.Equal(s.last) {
		return !s.began.IsZero()
	}
	s.last, s.seen = made, now
	if high {
		s.abnormal, s.normal = s.abnormal+1, 0
	} else {
		s.abnormal, s.normal = 0, s.normal+1
	}
	switch {
	case s.abnormal > c.Abnormal && s.began.IsZero():
		s.began = now
	case s.normal > c.Normal:
		s.began = time.Time{}
	}
	return !s.began.IsZero()
}

// Reset counts a node from the start again, from the next report on.
func (d *Detector) Reset(key string) {
	if s := d.nodes[key]; s != nil {
		*s = streak{last: s.last, seen: s.seen}
	}
}

// Forget removes what was seen of nodes that had no new report for so long.
func (d *Detector) Forget(after time.Duration, now time.Time) {
	for key, s := range d.nodes {
		if now.Sub(s.seen) >= after {
			delete(d.nodes, key)
		}
	}
}
