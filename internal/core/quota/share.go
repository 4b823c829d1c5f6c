package quota

import (
	"math"
	"math/big"
)

// Shares are the runtimes of a forest without rounding: rational numbers from the totals down. Revocation compares
// with them, so that rounding never evicts. They hold until the forest changes; a set of siblings is computed when it
// is first asked for.
type Shares struct {
	forest *Forest
	known  map[place]portion
}

type place struct {
	quota     *Quota
	dimension Dimension
}

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
	up := new(big.Int).Add(exact.Num(), exact.Denom())
	up.Sub(up, big.NewInt(1)).Quo(up, exact.Denom()).Add(up, big.NewInt(s.Slack(q, d)))
	if !up.IsInt64() {
		return math.MaxInt64
	}
	return max(runtime, up.Int64())
}

// Slack returns by how many units above its exact share, rounded up, the runtime of a quota may have been before a
// change that took nothing from its exact share: a unit for every round on its path but one. Divisor needs none.
func (s *Shares) Slack(q *Quota, d Dimension) int64 {
	if s.forest.config.Rounding == Divisor {
		return 0
	}
	return max(int64(s.forest.roundsAbove(q, d))-1, 0)
}

// roundsAbove returns the number of roundings on the path of a quota: rounds of divisions, and scaled sets of mins.
func (f *Forest) roundsAbove(q *Quota, d Dimension) int {
	f.Runtime(q, d)
	rounds := 0
	for n := f.live(q); n.parent != nil; n = n.parent {
		if n.cells[d].named {
			rounds += n.parent.cells[d].rounds
		}
	}
	return rounds
}

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
	reference := total.runtime
	if total.effective.Cmp(reference) > 0 {
		reference = total.effective
	}
	f.gather(q, d)
	members := f.divider.members
	mins := exactMins(members, reference, f.config.ScaleMin)
	runtimes := exactRuntimes(members, mins, total.runtime)
	i := 0
	for _, child := range q.children {
		if int(d) >= len(child.cells) {
			continue
		}
		p := total
		if child.cells[d].named {
			p = portion{runtimes[i], mins[i]}
			i++
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
	if !scaled || new(big.Rat).Add(sums[true], sums[false]).Cmp(reference) <= 0 {
		return mins
	}
	short := sums[true].Cmp(reference) > 0 // even for the fixed ones
	left := reference
	if !short {
		left = new(big.Rat).Sub(reference, sums[true])
	}
	for i, m := range members {
		switch {
		case m.fixed == short:
			mins[i].Mul(mins[i], left).Quo(mins[i], sums[short])
		case short:
			mins[i].SetInt64(0)
		}
	}
	return mins
}

// exactRuntimes is divider.lend in rational numbers: min(limited, min + weight·λ) with one λ for all borrowers.
func exactRuntimes(members []member, mins []*big.Rat, total *big.Rat) []*big.Rat {
	runtimes, rooms := make([]*big.Rat, len(members)), make([]*big.Rat, len(members))
	left, weights := new(big.Rat).Set(total), new(big.Rat)
	for i, m := range members {
		limited := new(big.Rat).SetInt64(m.limited)
		runtimes[i] = new(big.Rat).Set(mins[i])
		if room := limited.Sub(limited, mins[i]); room.Sign() > 0 && m.weight > 0 {
			rooms[i] = room
			weights.Add(weights, new(big.Rat).SetInt64(m.weight))
		} else if room.Sign() < 0 && !m.keeps {
			runtimes[i].SetInt64(m.limited)
		}
		left.Sub(left, runtimes[i])
	}
	if left.Sign() <= 0 {
		return runtimes
	}
	need := func(i int) *big.Rat { return new(big.Rat).SetInt64(members[i].weight) }
	for served := true; served; {
		served = false
		for i, room := range rooms {
			// A borrower is served in full where room ≤ weight·left/weights.
			if room == nil || new(big.Rat).Mul(room, weights).Cmp(new(big.Rat).Mul(need(i), left)) > 0 {
				continue
			}
			runtimes[i].Add(runtimes[i], room)
			left.Sub(left, room)
			weights.Sub(weights, need(i))
			rooms[i], served = nil, true
		}
	}
	for i, room := range rooms {
		if room != nil {
			gain := need(i)
			runtimes[i].Add(runtimes[i], gain.Mul(gain, left).Quo(gain, weights))
		}
	}
	return runtimes
}
