package quota

import (
	"math/big"
	"math/bits"
	"slices"
)

// member is one of a set of siblings in one dimension while the set is divided.
type member struct {
	// effective is min, before scale and after it. limited is the request within max. given
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
	Pool     int64 `json:"pool"`     // divided among all borrowers
	Weights  int64 `json:"weights"`  // of all borrowers
	Got      int64 `json:"got"`      // by this one
	Returned int64 `json:"returned"` // by this one: what was above its limit
}

// divider divides what a set of siblings has in one dimension. It owns the memory that this takes.
type divider struct {
	members []member // ascending name
	parts   []part
	rests   []sum

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
		cut := v.largestRemainder(pool)
		tied = tied || cut
		pool = v.divideRound(pool)
	}
	return rounds, tied
}

// divideRound takes back what is above the borrowers' limits, and drops the borrowers that have reached them.
func (v *divider) divideRound(pool int64) (returned int64) {
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

// weigh adds up the weights of the parts that still take part.
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

// largestRemainder divides the pool among the parts in proportion to their weights, regardless of their room: each part
// gets the whole units of its share, and the units left go to the largest fractions. No part is a unit or more off its
// share, but a larger pool can lower a part by a unit. largestRemainder reports whether units went to some of several
// parts with equal remainders.
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
