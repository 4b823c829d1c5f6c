package fragment

import "math/bits"

// Choice is how a node serves a pod.
type Choice struct {
	Gain int64  // how much the value falls, in micro-GPUs; the node with the largest is the best
	GPUs uint64 // indexes of State.Free
}

// Choose returns the GPUs for a pod among those of a mask, and what is gained; false where they do not suffice. Pods
// take GPUs that follow each other in the order of what they have free: each amount is tried as the smallest. Equal
// gains are decided by the least that is free, GPUs with equal amounts by their order in the state.
func (g *Generation) Choose(s State, pod Spec, usable uint64) (best Choice, fits bool) {
	if pod.MilliCPU > s.MilliCPU || !pod.Models.allows(s.Model) {
		return best, false
	}
	var order [MaxGPUs]uint8 // usable GPUs, ascending by what is free
	n := 0
	for i, free := range s.Free[:min(len(s.Free), MaxGPUs)] {
		if usable>>i&1 == 0 || free < pod.Milli {
			continue
		}
		at := n
		for ; at > 0 && s.Free[order[at-1]] > free; at-- {
			order[at] = order[at-1]
		}
		order[at] = uint8(i)
		n++
	}
	now := g.Value(s)
	if pod.GPUs == 0 {
		var h Shape
		h.set(s, pod, 0)
		return Choice{Gain: now - g.value(&h)}, true
	}
	for first := 0; first+int(pod.GPUs) <= n; first++ {
		if first > 0 && s.Free[order[first]] == s.Free[order[first-1]] {
			continue
		}
		c := Choice{}
		for _, i := range order[first : first+int(pod.GPUs)] {
			c.GPUs |= 1 << i
		}
		var h Shape
		h.set(s, pod, c.GPUs)
		if c.Gain = now - g.value(&h); !fits || c.Gain > best.Gain {
			best, fits = c, true
		}
	}
	return best, fits
}

// Winner returns the index of the largest value, of equal ones that with the smallest name; −1 of none.
func Winner(values []int64, name func(i int) string) int {
	best := -1
	for i, v := range values {
		if best < 0 || v > values[best] || v == values[best] && name(i) < name(best) {
			best = i
		}
	}
	return best
}

// Normalize replaces values by scores from 0 to 100 that keep their order: 100 for the winner, which has the largest
// value, and at most 99 for the others, 0 for all of them when all values are equal. Where winner is −1, all that have
// the largest value get 100.
func Normalize(values []int64, winner int) {
	if len(values) == 0 {
		return
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	width := uint64(high) - uint64(low)
	for i, v := range values {
		switch {
		case i == winner || winner < 0 && v == high:
			values[i] = 100
		case width == 0:
			values[i] = 0
		default:
			above, below := bits.Mul64(99, uint64(v)-uint64(low))
			score, _ := bits.Div64(above, below, width)
			values[i] = int64(score)
		}
	}
}
