package quota_test

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// world is what a forest was given, kept by name and read from scratch: the definitions of the rule in words of their
// own, with big numbers, maps and sorts.
type world struct {
	config quota.Config
	nodes  amount.List
	specs  map[string]quota.Spec
	sums   map[string]*[4]map[string]*big.Int // what pods of each quota add up to, by measure and dimension
}

func newWorld(c quota.Config) *world {
	w := &world{config: c, specs: map[string]quota.Spec{}, sums: map[string]*[4]map[string]*big.Int{}}
	w.amountsOf(quota.System)
	w.amountsOf(quota.Default)
	return w
}

func (w *world) amountsOf(name string) *[4]map[string]*big.Int {
	if w.sums[name] == nil {
		w.sums[name] = &[4]map[string]*big.Int{{}, {}, {}, {}}
	}
	return w.sums[name]
}

func (w *world) own(name string, m quota.Measure, dimension string) *big.Int {
	if n := w.amountsOf(name)[m][dimension]; n != nil {
		return n
	}
	return new(big.Int)
}

func (w *world) count(name string, m quota.Measure, dimension string, n int64) {
	w.amountsOf(name)[m][dimension] = new(big.Int).Add(w.own(name, m, dimension), big.NewInt(n))
}

// parent returns what a quota hangs under: "" for the top of an extra tree.
func (w *world) parent(name string) string {
	s := w.specs[name]
	if s.IsRoot {
		return ""
	}
	if _, known := w.specs[s.Parent]; !known {
		return quota.Root
	}
	at := s.Parent
	for range w.specs { // no path has more steps
		above, known := w.specs[at]
		switch {
		case at == name:
			return quota.Root
		case known && !above.IsRoot:
			at = above.Parent
		}
	}
	return s.Parent
}

// result is a quota in one dimension.
type result struct {
	name           string
	children       []*result
	named          bool
	keeps, fixed   bool
	least, most    int64
	weight         int64
	request, pass  int64
	used           int64
	limited        int64
	guaranteed     int64
	effective      int64
	runtime        int64
	exactEffective *big.Rat
	exact          *big.Rat
	roundings      int // on the path: k
	rounds         int // of the set of its children, one more where mins were scaled
}

func clamp(n *big.Int) int64 {
	switch {
	case n.Sign() < 0:
		return 0
	case !n.IsInt64():
		return math.MaxInt64
	}
	return n.Int64()
}

// solve computes all quotas in one dimension, Root among them.
func (w *world) solve(dimension string) map[string]*result {
	results := map[string]*result{quota.Root: {name: quota.Root}}
	for name, s := range w.specs {
		r := &result{name: name, keeps: s.KeepsMin, fixed: s.FixedMin}
		if most, named := s.Max[dimension]; named {
			r.named, r.most = true, max(most, 0)
			r.least = min(max(s.Min[dimension], 0), r.most)
			r.weight = r.most
			if weight, set := s.Weight[dimension]; set {
				r.weight = max(weight, 0)
			}
		}
		results[name] = r
	}
	var tops []*result
	for _, name := range slices.Sorted(maps.Keys(w.specs)) {
		if parent := w.parent(name); parent != "" {
			results[parent].children = append(results[parent].children, results[name])
		} else {
			tops = append(tops, results[name])
		}
	}
	root := results[quota.Root]
	left := big.NewInt(max(w.nodes[dimension], 0))
	for _, name := range []string{quota.System, quota.Default} {
		left.Sub(left, big.NewInt(clamp(w.own(name, quota.Used, dimension))))
	}
	for _, top := range tops {
		s := w.specs[top.name]
		top.runtime = max(s.Total[dimension], 0)
		if !s.IgnoreDefaultTree {
			left.Sub(left, big.NewInt(top.runtime))
		}
		if top.named {
			top.runtime = min(top.runtime, top.most)
		}
	}
	root.runtime = clamp(left)
	for _, top := range append(tops, root) {
		w.up(top, dimension)
		top.effective = top.runtime
		top.exact = new(big.Rat).SetInt64(top.runtime)
		top.exactEffective = top.exact
		w.down(top)
	}
	return results
}

func (w *world) up(r *result, dimension string) {
	request, used := new(big.Int).Set(w.own(r.name, quota.Request, dimension)), new(big.Int)
	used.Set(w.own(r.name, quota.Used, dimension))
	for _, c := range r.children {
		w.up(c, dimension)
		request.Add(request, big.NewInt(c.pass))
		used.Add(used, c.bigUsed(w, dimension))
	}
	r.request, r.used = clamp(request), clamp(used)
	r.limited = min(r.request, r.most)
	r.pass = r.request
	if r.named {
		r.pass = r.limited
		if r.keeps {
			r.pass = min(max(r.request, r.least), r.most)
		}
	}
	r.guaranteed = r.least
}

func (r *result) bigUsed(w *world, dimension string) *big.Int {
	n := new(big.Int).Set(w.own(r.name, quota.Used, dimension))
	for _, c := range r.children {
		n.Add(n, c.bigUsed(w, dimension))
	}
	return n
}

func (w *world) down(p *result) {
	var set []*result
	for _, c := range p.children {
		if c.named {
			set = append(set, c)
		} else {
			c.runtime, c.effective, c.exact, c.exactEffective = p.runtime, p.effective, p.exact, p.exactEffective
			c.roundings = p.roundings
		}
	}
	if w.config.ScaleMin && scaleUnits(set, max(p.runtime, p.effective)) {
		p.rounds++
	} else {
		for _, c := range set {
			c.effective = c.guaranteed
		}
	}
	p.rounds += w.lendUnits(set, p.runtime)
	reference := p.exact
	if p.exactEffective.Cmp(reference) > 0 {
		reference = p.exactEffective
	}
	w.exactMins(set, reference)
	exactRuntimes(set, p.exact)
	for _, c := range set {
		c.roundings = p.roundings + p.rounds
	}
	for _, c := range p.children {
		w.down(c)
	}
}

// hand gives the pool to parts in proportion to weights, the units left to the largest remainders.
func hand(pool int64, parts []*result, weight, given func(*result) int64) map[*result]int64 {
	total := new(big.Int)
	for _, p := range parts {
		total.Add(total, big.NewInt(weight(p)))
	}
	got, rest := map[*result]int64{}, map[*result]*big.Int{}
	left := pool
	for _, p := range parts {
		n := new(big.Int).Mul(big.NewInt(weight(p)), big.NewInt(pool))
		whole, remainder := n.DivMod(n, total, new(big.Int))
		got[p], rest[p] = whole.Int64(), remainder
		left -= got[p]
	}
	order := slices.Clone(parts)
	slices.SortFunc(order, func(a, b *result) int {
		return cmp.Or(rest[b].Cmp(rest[a]), precedes(a, given(a)+got[a], b, given(b)+got[b]))
	})
	for _, p := range order[:left] {
		got[p]++
	}
	return got
}

// precedes orders equals: who uses the unit already, then the name.
func precedes(a *result, aHas int64, b *result, bHas int64) int {
	switch aUses, bUses := a.used > aHas, b.used > bHas; {
	case aUses && !bUses:
		return -1
	case bUses && !aUses:
		return 1
	}
	return cmp.Compare(a.name, b.name)
}

func scaleUnits(set []*result, total int64) bool {
	sum := func(results []*result) *big.Int {
		n := new(big.Int)
		for _, r := range results {
			n.Add(n, big.NewInt(r.guaranteed))
		}
		return n
	}
	if sum(set).Cmp(big.NewInt(total)) <= 0 {
		return false
	}
	var fixed, others []*result
	for _, r := range set {
		r.effective = 0
		if r.fixed {
			fixed = append(fixed, r)
		} else {
			others = append(others, r)
		}
	}
	split := func(results []*result, pool int64) {
		if sum(results).Sign() == 0 {
			return
		}
		got := hand(pool, results, func(r *result) int64 { return r.guaranteed }, func(*result) int64 { return 0 })
		for _, r := range results {
			r.effective = got[r]
		}
	}
	if sum(fixed).Cmp(big.NewInt(total)) > 0 {
		split(fixed, total)
		return true
	}
	for _, r := range fixed {
		r.effective = r.guaranteed
	}
	split(others, total-sum(fixed).Int64())
	return true
}

func (w *world) lendUnits(set []*result, total int64) (rounds int) {
	left := big.NewInt(total)
	var borrowers []*result
	for _, r := range set {
		r.runtime = r.effective
		if r.limited <= r.effective && !r.keeps {
			r.runtime = r.limited
		}
		left.Sub(left, big.NewInt(r.runtime))
		if r.limited > r.effective && r.weight > 0 {
			borrowers = append(borrowers, r)
		}
	}
	pool := clamp(left)
	for pool > 0 && len(borrowers) > 0 {
		rounds++
		weight, given := func(r *result) int64 { return r.weight }, func(r *result) int64 { return r.runtime }
		got := hand(pool, borrowers, weight, given)
		pool = 0
		var hungry []*result
		for _, r := range borrowers {
			if back := r.runtime + got[r] - r.limited; back >= 0 {
				pool += back
				r.runtime = r.limited
				continue
			}
			r.runtime += got[r]
			hungry = append(hungry, r)
		}
		borrowers = hungry
	}
	return rounds
}

func (w *world) exactMins(set []*result, reference *big.Rat) {
	whole := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	all, fixed := new(big.Rat), new(big.Rat)
	for _, r := range set {
		r.exactEffective = whole(r.guaranteed)
		all.Add(all, r.exactEffective)
		if r.fixed {
			fixed.Add(fixed, r.exactEffective)
		}
	}
	if !w.config.ScaleMin || all.Cmp(reference) <= 0 {
		return
	}
	for _, r := range set {
		factor := whole(1)
		switch short := fixed.Cmp(reference) > 0; {
		case short && r.fixed:
			factor.Quo(reference, fixed)
		case short:
			factor = whole(0)
		case !r.fixed && r.guaranteed > 0:
			factor.Sub(reference, fixed)
			factor.Quo(factor, new(big.Rat).Sub(all, fixed))
		}
		r.exactEffective = factor.Mul(factor, r.exactEffective)
	}
}

// exactRuntimes is water filling: the level λ at which min(limited, min + weight·λ) adds up to the total is found on
// the sorted levels at which the borrowers reach their limits.
func exactRuntimes(set []*result, total *big.Rat) {
	whole := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	type borrower struct {
		*result
		full *big.Rat // the level at which it has its limit
	}
	var borrowers []borrower
	left := new(big.Rat).Set(total)
	for _, r := range set {
		limited := whole(r.limited)
		r.exact = new(big.Rat).Set(r.exactEffective)
		if limited.Cmp(r.exactEffective) <= 0 {
			if !r.keeps {
				r.exact.Set(limited)
			}
		} else if r.weight > 0 {
			full := limited.Sub(limited, r.exactEffective)
			borrowers = append(borrowers, borrower{r, full.Quo(full, whole(r.weight))})
		}
		left.Sub(left, r.exact)
	}
	if left.Sign() <= 0 || len(borrowers) == 0 {
		return
	}
	slices.SortFunc(borrowers, func(a, b borrower) int { return a.full.Cmp(b.full) })
	level := new(big.Rat)
	for i, b := range borrowers {
		weights := new(big.Rat)
		for _, other := range borrowers[i:] {
			weights.Add(weights, whole(other.weight))
		}
		step := new(big.Rat).Sub(b.full, level)
		if need := new(big.Rat).Mul(step, weights); need.Cmp(left) <= 0 {
			level.Set(b.full)
			left.Sub(left, need)
			continue
		}
		level.Add(level, left.Quo(left, weights))
		break
	}
	for _, b := range borrowers {
		gain := new(big.Rat).Set(level)
		if b.full.Cmp(level) < 0 {
			gain.Set(b.full)
		}
		b.exact.Add(b.exact, gain.Mul(gain, whole(b.weight)))
	}
}
