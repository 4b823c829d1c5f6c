package fragment

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
