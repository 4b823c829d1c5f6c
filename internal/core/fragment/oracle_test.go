package fragment_test

import (
	"math/big"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

func allowed(p fragment.Spec, model fragment.Model) bool {
	return p.Models == 0 || slices.Contains(modelsOf(p.Models), model)
}

func modelsOf(set fragment.Models) (models []fragment.Model) {
	for m := range fragment.Model(64) {
		if set&fragment.ModelsOf(m) != 0 {
			models = append(models, m)
		}
	}
	return models
}

func sumOf(free []int64) (sum int64) {
	for _, f := range free {
		sum += f
	}
	return sum
}

// unusable is FGD's frag_m(s).
func unusable(s fragment.State, p fragment.Spec) (lost int64) {
	enough := int64(0)
	for _, f := range s.Free {
		if f >= p.Milli {
			enough++
		} else {
			lost += f
		}
	}
	if p.GPUs == 0 || s.MilliCPU < p.MilliCPU || !allowed(p, s.Model) || enough < p.GPUs {
		return sumOf(s.Free)
	}
	return lost
}

// measure is FGD's F(s) in milli.
func measure(specs []fragment.Weighted, s fragment.State) *big.Rat {
	lost, weights := new(big.Rat), new(big.Rat)
	for _, p := range specs {
		w := new(big.Rat).SetInt64(p.Weight)
		weights.Add(weights, w)
		lost.Add(lost, new(big.Rat).Mul(w, new(big.Rat).SetInt64(unusable(s, p.Spec))))
	}
	if weights.Sign() == 0 {
		return lost
	}
	return lost.Quo(lost, weights)
}

// offer offers a pod to what is free: the GPUs with the least that is enough, found by sorting them.
func offer(s fragment.State, p fragment.Spec) (fragment.State, bool) {
	free := slices.Clone(s.Free)
	slices.Sort(free)
	at := slices.IndexFunc(free, func(f int64) bool { return f >= p.Milli })
	if p.GPUs == 0 {
		at = 0
	}
	if at < 0 || int64(len(free)-at) < p.GPUs || p.MilliCPU > s.MilliCPU || !allowed(p, s.Model) {
		return s, false
	}
	for i := range p.GPUs {
		free[at+int(i)] -= p.Milli
	}
	return fragment.State{MilliCPU: s.MilliCPU - p.MilliCPU, Free: free, Model: s.Model}, true
}

// reserved is the part of a free GPU of a model that limited specs are expected to take until all that is free is asked
// for: each spec its part of the demand, evenly on what its models have free.
func reserved(specs []fragment.Weighted, free fragment.Supply, model fragment.Model) *big.Rat {
	demand, all, part := int64(0), int64(0), new(big.Rat)
	for _, p := range specs {
		demand += p.Weight * p.GPUs * p.Milli
	}
	for _, n := range free {
		all += n
	}
	for _, p := range specs {
		if p.Models == 0 || p.GPUs == 0 || !allowed(p.Spec, model) {
			continue
		}
		has := int64(0)
		for _, m := range modelsOf(p.Models) {
			has += free[m]
		}
		if has == 0 {
			return big.NewRat(1, 1)
		}
		asked := big.NewRat(p.Weight*p.GPUs*p.Milli, demand)
		part.Add(part, asked.Mul(asked, big.NewRat(all, has)))
	}
	if part.Cmp(big.NewRat(1, 1)) > 0 {
		return big.NewRat(1, 1)
	}
	return part
}

// value is V(s) in milli, with what each sequence offers.
func value(specs []fragment.Weighted, free fragment.Supply, sequences [][]fragment.Spec, multiGPU int64,
	s fragment.State,
) *big.Rat {
	idle := int64(0)
	for _, sequence := range sequences {
		now, offered := s, int64(0)
		for _, p := range sequence {
			if offered > 3*sumOf(s.Free) {
				break
			}
			offered += p.GPUs * p.Milli
			now, _ = offer(now, p)
		}
		idle += sumOf(now.Free)
	}
	v := big.NewRat(idle, int64(len(sequences)))

	var multi []fragment.Weighted
	demand, ofMulti := int64(0), int64(0)
	for _, p := range specs {
		demand += p.Weight * p.GPUs * p.Milli
		if p.GPUs > 1 {
			ofMulti += p.Weight * p.GPUs * p.Milli
			multi = append(multi, fragment.Weighted{Spec: p.Spec, Weight: p.Weight * p.GPUs})
		}
	}
	added := big.NewRat(max(multiGPU, multiGPU*6*ofMulti/max(demand, 1)), 1000)
	v.Add(v, added.Mul(added, measure(multi, s)))
	most := new(big.Rat)
	for m := range fragment.Model(64) {
		if r := reserved(specs, free, m); r.Cmp(most) > 0 {
			most = r
		}
	}
	spared := most.Sub(most, reserved(specs, free, s.Model))
	return v.Add(v, spared.Mul(spared, new(big.Rat).SetInt64(sumOf(s.Free))))
}

// best tries every set of GPUs that a pod could be given: those that follow each other by what they have free are the
// ones among which Choose must find the largest gain.
func best(g *fragment.Generation, s fragment.State, p fragment.Spec, usable uint64) (gain int64, fits bool) {
	for set := range uint64(1) << len(s.Free) {
		after, ok := give(s, p, set)
		if set&^usable != 0 || !ok || !consecutive(s.Free, set, usable, p.Milli) {
			continue
		}
		if v := g.Value(s) - g.Value(after); !fits || v > gain {
			gain, fits = v, true
		}
	}
	return gain, fits
}

// give takes a pod's share of a set of GPUs.
func give(s fragment.State, p fragment.Spec, set uint64) (fragment.State, bool) {
	if int64(bits.OnesCount64(set)) != p.GPUs || p.MilliCPU > s.MilliCPU || !allowed(p, s.Model) {
		return s, false
	}
	s.MilliCPU -= p.MilliCPU
	s.Free = slices.Clone(s.Free)
	for i := range s.Free {
		if set>>i&1 == 1 {
			if s.Free[i] -= p.Milli; s.Free[i] < 0 {
				return s, false
			}
		}
	}
	return s, true
}

// consecutive reports whether no GPU that could be used has an amount strictly between those of a set.
func consecutive(free []int64, set, usable uint64, milli int64) bool {
	var shares []int64
	for i, f := range free {
		if set>>i&1 == 1 {
			shares = append(shares, f)
		}
	}
	if len(shares) == 0 {
		return true
	}
	for i, f := range free {
		if set>>i&1 == 0 && usable>>i&1 == 1 && f >= milli && f > slices.Min(shares) && f < slices.Max(shares) {
			return false
		}
	}
	return true
}
