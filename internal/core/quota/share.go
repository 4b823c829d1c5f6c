package quota

import (
	"math"
	"math/big"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Shares are the runtimes of a forest without rounding: rational numbers from the totals down. Revocation compares
// with them, so that rounding never evicts. They hold until the forest changes; a set of siblings is computed when it
// is first asked for.
type Shares struct {
	forest *Forest
	known  map[place]portion
}

// place is one dimension of one quota.
type place struct {
	quota     *Quota
	dimension Dimension
}

// portion is the exact runtime of a quota, and its effective minimum.
type portion struct{ runtime, effective *big.Rat }

// Shares returns the exact shares of the present state.
func (f *Forest) Shares() *Shares { return &Shares{forest: f, known: map[place]portion{}} }

// Exact returns the runtime of a quota without rounding; false where it is not limited. It must not be changed.
func (s *Shares) Exact(q *Quota, d Dimension) (*big.Rat, bool) {
	q = s.forest.live(q)
	if int(d) >= len(q.cells) || !q.cells[d].named {
		return nil, false
	}
	return s.portion(q, d).runtime, true
}

// Goal returns what the quota may use before any of it is revoked: its runtime, or, where that is more, its exact
// share rounded up and Slack; the largest int64 where it is not limited.
func (s *Shares) Goal(q *Quota, d Dimension) int64 {
	exact, limited := s.Exact(q, d)
	if !limited {
		return math.MaxInt64
	}
	runtime, _ := s.forest.Runtime(q, d)
	up := floor(exact)
	if !exact.IsInt() {
		up = amount.Plus(up, 1)
	}
	return max(runtime, amount.Plus(up, s.Slack(q, d)))
}

// floor returns the whole units of a share, at most the largest int64.
func floor(share *big.Rat) int64 {
	if n := new(big.Int).Quo(share.Num(), share.Denom()); n.IsInt64() {
		return n.Int64()
	}
	return math.MaxInt64
}

// Slack returns by how many units above its exact share, rounded up, the runtime of a quota may have been before a
// change that took nothing from its exact share: a unit for every round on its path but one.
func (s *Shares) Slack(q *Quota, d Dimension) int64 {
	f, rounds := s.forest, 0
	f.Runtime(q, d)
	for n := f.live(q); n.parent != nil; n = n.parent {
		if n.cells[d].named {
			rounds += n.parent.cells[d].rounds
		}
	}
	return int64(max(rounds-1, 0))
}

// portion returns the share of a quota in a dimension. The parent's is divided at the first question about a child.
func (s *Shares) portion(q *Quota, d Dimension) portion {
	if q.parent == nil {
		c := &q.cells[d]
		return portion{new(big.Rat).SetInt64(c.runtime), new(big.Rat).SetInt64(c.effective)}
	}
	if _, known := s.known[place{q, d}]; !known {
		s.divide(q.parent, d)
	}
	return s.known[place{q, d}]
}

// divide computes the portions of the children of q.
func (s *Shares) divide(q *Quota, d Dimension) {
	f, total := s.forest, s.portion(q, d)
	f.gather(q, d)
	members := f.divider.members
	reference := total.runtime
	if total.effective.Cmp(reference) > 0 {
		reference = total.effective
	}
	mins := exactMins(members, reference, f.config.ScaleMin)
	runtimes := exactRuntimes(members, mins, total.runtime)
	for _, child := range q.children {
		if int(d) >= len(child.cells) {
			continue
		}
		p := total
		if child.cells[d].named {
			p = portion{runtimes[0], mins[0]}
			runtimes, mins = runtimes[1:], mins[1:]
		}
		s.known[place{child, d}] = p
	}
}

// exactMins is divider.scale in rational numbers.
func exactMins(members []member, reference *big.Rat, scaled bool) []*big.Rat {
	mins := make([]*big.Rat, len(members))
	sums := map[bool]*big.Rat{true: new(big.Rat), false: new(big.Rat)} // by whether min is fixed
	for i, m := range members {
		mins[i] = new(big.Rat).SetInt64(m.effective)
		sums[m.fixed].Add(sums[m.fixed], mins[i])
	}
	left := new(big.Rat).Sub(reference, sums[true])
	if !scaled || left.Cmp(sums[false]) >= 0 {
		return mins
	}
	factors := map[bool]*big.Rat{true: big.NewRat(1, 1)}
	if left.Sign() >= 0 {
		factors[false] = left.Quo(left, sums[false])
	} else {
		factors[true], factors[false] = new(big.Rat).Quo(reference, sums[true]), new(big.Rat)
	}
	for i, m := range members {
		mins[i].Mul(mins[i], factors[m.fixed])
	}
	return mins
}

// exactRuntimes is divider.lend in rational numbers: min(limited, min + weight·λ) with one λ for all borrowers.
func exactRuntimes(members []member, mins []*big.Rat, total *big.Rat) []*big.Rat {
	type borrower struct {
		runtime, weight *big.Rat
		full            *big.Rat // the λ from which on it has all that it asks for
	}
	var borrowers []borrower
	runtimes, left, weights := make([]*big.Rat, len(members)), new(big.Rat).Set(total), new(big.Rat)
	for i, m := range members {
		limited, weight := new(big.Rat).SetInt64(m.limited), new(big.Rat).SetInt64(m.weight)
		runtimes[i] = new(big.Rat).Set(mins[i])
		if room := new(big.Rat).Sub(limited, mins[i]); room.Sign() > 0 && m.weight > 0 {
			borrowers = append(borrowers, borrower{runtimes[i], weight, room.Quo(room, weight)})
			weights.Add(weights, weight)
		} else if room.Sign() < 0 && !m.keeps {
			runtimes[i] = limited
		}
		left.Sub(left, runtimes[i])
	}
	slices.SortFunc(borrowers, func(a, b borrower) int { return a.full.Cmp(b.full) })
	for _, b := range borrowers {
		gain := new(big.Rat).Quo(left, weights)
		if b.full.Cmp(gain) < 0 {
			gain = b.full
		}
		if gain.Mul(gain, b.weight); gain.Sign() > 0 {
			b.runtime.Add(b.runtime, gain)
			left.Sub(left, gain)
		}
		weights.Sub(weights, b.weight)
	}
	return runtimes
}
