package quota

import (
	"container/heap"
	"math/big"
	"math/bits"
	"slices"
)

// Rounding is how whole units are divided in proportion to weights.
type Rounding int

const (
	// LargestRemainder gives everyone the whole part of its share, and the units left to the largest fractions, round
	// by round. No runtime is a unit or more off its share in a round, but a larger total can lower a runtime by a
	// unit.
	LargestRemainder Rounding = iota
	// Divisor gives units one at a time to the largest weight/(2a+1), where a is what a borrower already got
	// (Sainte-Laguë). A larger total never lowers a runtime, but one large weight gains against many small ones.
	Divisor
)

// member is one of a set of siblings in one dimension while the set is divided.
type member struct {
	// effective is min, with what is guaranteed, before scale and after it. limited is the request within max. given
	// is the result.
	effective, limited, given int64
	weight, used              int64
	keeps, fixed              bool
}

// part is a member among those that a pool is divided among.
type part struct {
	member int   // index, in order of names
	weight int64 // more than 0
	given  int64 // what the member has already
	used   int64 // a unit that is in use already wins a tie
	room   int64 // what it can still take
	got    int64 // of this pool
	rest   sum   // the remainder of its share, in units of 1/Σ weight
	done   bool  // at its room, or served
}

// uses reports that the next unit would be one that the member already uses.
func (p *part) uses() bool { return p.used > p.given+p.got }

// Round is one division of what was left, as one of the borrowers sees it.
type Round struct {
	Pool     int64 // divided among all borrowers
	Weights  int64 // of all borrowers
	Got      int64 // by this one
	Returned int64 // by this one: what was above its limit
}

// divider divides what a set of siblings has in one dimension. It owns the memory that this takes.
type divider struct {
	rounding Rounding
	members  []member // ascending name
	parts    []part
	rests    []sum
	queue    []int // parts that still get units

	// pool is what the last division had above all bases, weights those of its last round.
	pool    int64
	weights sum

	// watched is the index of the member whose rounds are recorded while record is set.
	record  bool
	watched int
	rounds  []Round
}

// scale lowers the effective mins to what there is, where they exceed it together: in proportion, in whole units, to
// exactly that sum. Members with a fixed min keep it while there is enough for all of these.
func (v *divider) scale(total int64) (scaled, tied bool) {
	all, fixed := sum{}, sum{}
	for i := range v.members {
		m := &v.members[i]
		all = all.plus(sumOf(m.effective))
		if m.fixed {
			fixed = fixed.plus(sumOf(m.effective))
		}
	}
	pool := sumOf(total)
	if all.compare(pool) <= 0 {
		return false, false
	}
	short := fixed.compare(pool) > 0 // even for the fixed ones
	if !short {
		pool = pool.minus(fixed)
	}
	v.parts = v.parts[:0]
	for i := range v.members {
		m := &v.members[i]
		switch {
		case m.fixed != short:
			if short {
				m.effective = 0
			}
		case m.effective > 0:
			v.parts = append(v.parts, part{member: i, weight: m.effective, used: m.used})
		}
	}
	tied = v.largestRemainder(pool.amount())
	for i := range v.parts {
		v.members[v.parts[i].member].effective = v.parts[i].got
	}
	return true, tied
}

// lend gives every member its base and divides the rest of total among those that ask for more, by weight. It returns
// the number of rounds, and whether a cut fell among equals.
func (v *divider) lend(total int64) (rounds int, tied bool) {
	left := sumOf(total)
	v.parts = v.parts[:0]
	for i := range v.members {
		m := &v.members[i]
		m.given = m.effective
		if !m.keeps {
			m.given = min(m.effective, m.limited)
		}
		left = left.minus(sumOf(m.given))
		if m.limited > m.effective && m.weight > 0 {
			v.parts = append(v.parts, part{
				member: i, weight: m.weight, given: m.given, used: m.used, room: m.limited - m.given,
			})
		}
	}
	// Every round but the last serves a borrower in full, so there are no more rounds than borrowers.
	v.pool = left.amount()
	for pool := v.pool; pool > 0 && len(v.parts) > 0; rounds++ {
		var cut bool
		if v.rounding == Divisor {
			cut = v.sainteLague(pool)
		} else {
			cut = v.largestRemainder(pool)
		}
		tied = tied || cut
		pool = v.settleRound(pool)
		if v.rounding == Divisor {
			return 1, tied
		}
	}
	return rounds, tied
}

// settleRound takes back what is above the borrowers' limits, and drops the borrowers that have reached them.
func (v *divider) settleRound(pool int64) (returned int64) {
	borrowers := v.parts[:0]
	for _, p := range v.parts {
		above := max(p.got-p.room, 0)
		returned += above
		v.members[p.member].given += p.got - above
		if v.record && p.member == v.watched {
			v.rounds = append(v.rounds, Round{pool, v.weights.amount(), p.got, above})
		}
		if p.given, p.room = p.given+p.got-above, p.room-(p.got-above); p.room > 0 {
			borrowers = append(borrowers, p)
		}
	}
	v.parts = borrowers
	return returned
}

func (v *divider) weigh() sum {
	v.weights = sum{}
	for i := range v.parts {
		v.weights = v.weights.plus(sumOf(v.parts[i].weight))
	}
	return v.weights
}

// share returns the whole part and the remainder of weight·pool/weights.
func share(weight, pool uint64, weights sum) (whole int64, rest sum) {
	if n := product(weight, pool); weights.high == 0 {
		q, r := bits.Div64(uint64(n.high), n.low, weights.low)
		return int64(q), sum{low: r}
	}
	n := new(big.Int).SetUint64(weight)
	n.Mul(n, new(big.Int).SetUint64(pool))
	q, r := n.DivMod(n, weights.big(), new(big.Int))
	high := new(big.Int).Rsh(r, 64)
	rest = sum{high: high.Int64()}
	rest.low = r.Sub(r, high.Lsh(high, 64)).Uint64()
	return q.Int64(), rest
}

// largestRemainder divides the pool among the parts in proportion to their weights, regardless of their room. It
// reports whether units went to some of several parts with equal remainders.
func (v *divider) largestRemainder(pool int64) (tied bool) {
	weights, left := v.weigh(), pool
	v.rests = v.rests[:0]
	for i := range v.parts {
		p := &v.parts[i]
		p.got, p.rest = share(uint64(p.weight), uint64(pool), weights)
		p.done = false
		left -= p.got
		v.rests = append(v.rests, p.rest)
	}
	if left == 0 {
		return false
	}
	slices.SortFunc(v.rests, sum.compare)
	cut := v.rests[len(v.rests)-int(left)]
	equal := int64(0)
	for i := range v.parts {
		switch p := &v.parts[i]; p.rest.compare(cut) {
		case 1:
			p.got++
			p.done = true
			left--
		case 0:
			equal++
		}
	}
	for _, inUse := range [...]bool{true, false} {
		for i := range v.parts {
			p := &v.parts[i]
			if left > 0 && !p.done && p.rest == cut && p.uses() == inUse {
				p.got++
				p.done = true
				left--
				equal--
			}
		}
	}
	return equal > 0
}

// sainteLague gives the pool unit by unit to the part with the largest weight/(2·got+1) that has room. It starts from
// what every part has at the end for sure: of n parts, ⌊weight·(pool − n/2)/Σ weight⌋ units, or its room. At the end a
// part without that has at most weight·λ + ½ units for one λ, so λ ≥ (pool − n/2)/Σ weight, and at least weight·λ − ½.
// Less than two units a part are then left.
func (v *divider) sainteLague(pool int64) (tied bool) {
	weights, left, n := v.weigh(), pool, len(v.parts)
	sure := func(p *part) int64 {
		units, _ := share(uint64(p.weight), uint64(max(left-int64(n+1)/2, 0)), weights)
		return units
	}
	for i := range v.parts {
		v.parts[i].got, v.parts[i].done = 0, false
	}
	for found := true; found; {
		found = false
		for i := range v.parts {
			if p := &v.parts[i]; !p.done && sure(p) >= p.room {
				p.got, p.done, found = p.room, true, true
				weights, left, n = weights.minus(sumOf(p.weight)), left-p.room, n-1
			}
		}
	}
	v.queue, pool = v.queue[:0], left
	for i := range v.parts {
		if p := &v.parts[i]; !p.done {
			p.got = sure(p)
			pool -= p.got
			v.queue = append(v.queue, i)
		}
	}
	heap.Init(v)
	for ; pool > 0 && len(v.queue) > 0; pool-- {
		p := &v.parts[v.queue[0]]
		last := *p
		if p.got++; p.got == p.room {
			heap.Pop(v)
		} else {
			heap.Fix(v, 0)
		}
		tied = pool == 1 && len(v.queue) > 0 && quotients(&last, &v.parts[v.queue[0]]) == 0
	}
	return tied
}

// Len is heap.Interface's, as are Less, Swap, Push and Pop: the part that gets the next unit comes first.
func (v *divider) Len() int { return len(v.queue) }

// Less reports which of two parts gets a unit first.
func (v *divider) Less(i, j int) bool {
	a, b := &v.parts[v.queue[i]], &v.parts[v.queue[j]]
	switch c := quotients(a, b); {
	case c != 0:
		return c > 0
	case a.uses() != b.uses():
		return a.uses()
	}
	return v.queue[i] < v.queue[j]
}

// Swap changes two places.
func (v *divider) Swap(i, j int) { v.queue[i], v.queue[j] = v.queue[j], v.queue[i] }

// Push is not called.
func (v *divider) Push(any) {}

// Pop drops the last part.
func (v *divider) Pop() any {
	v.queue = v.queue[:len(v.queue)-1]
	return nil
}

// quotients compares weight/(2·got+1) of two parts.
func quotients(a, b *part) int {
	return product(uint64(a.weight), 2*uint64(b.got)+1).compare(product(uint64(b.weight), 2*uint64(a.got)+1))
}
