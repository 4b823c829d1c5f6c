package fragment

// rollout is the state of a node while a sequence of specs is offered to it.
type rollout struct {
	milliCPU int64
	idle     int64 // free milli of all GPUs together
	whole    int64 // number of GPUs that are entirely free
	n        int   // number of GPUs in part
	// free milli of the other GPUs of which a spec can use the rest, in no order; the first n count
	part [MaxGPUs]int16
}

// idle is what is left of the GPUs of a shape after a sequence was offered to it, summed over the sequences, in milli.
// A spec that does not fit is skipped. The work is proportional to the specs that offer three times what is free.
func (g *Generation) idle(h *Shape) (sum int64) {
	start := rollout{milliCPU: h.milliCPU, idle: h.sum()}
	for _, free := range h.free[:h.n] {
		if free == Whole {
			start.whole++
		} else {
			start.add(free, g.minMilli)
		}
	}
	limit := overOffer * start.idle
	var r rollout
	for from := 0; from < len(g.sequences); from += length {
		r.milliCPU, r.idle, r.whole, r.n = start.milliCPU, start.idle, start.whole, start.n
		copy(r.part[:r.n], start.part[:start.n])
		offered := int64(0)
		for _, at := range g.sequences[from : from+length] {
			if offered > limit || r.milliCPU < g.minCPU || int64(r.n)+r.whole == 0 {
				break
			}
			s := &g.specs[at]
			offered += s.GPUs * s.Milli
			if s.MilliCPU <= r.milliCPU && s.Models.allows(h.model) && r.take(&s.Spec, g.minMilli) {
				r.milliCPU -= s.MilliCPU
				r.idle -= s.GPUs * s.Milli
			}
		}
		sum += r.idle
	}
	return sum
}

// add adds a GPU that is free in part, if any spec can use that.
func (r *rollout) add(free int16, least int64) {
	if int64(free) >= least {
		r.part[r.n] = free
		r.n++
	}
}

// take takes what a spec asks of GPUs: of those that have the least free among those that have enough.
func (r *rollout) take(s *Spec, least int64) bool {
	milli := int16(s.Milli)
	switch {
	case s.Milli == Whole || s.GPUs == 0:
		if s.GPUs > r.whole {
			return false
		}
		r.whole -= s.GPUs
		return true
	case s.GPUs > 1:
		return r.takeSeveral(s.GPUs, milli, least)
	}
	at := r.fullest(milli)
	switch {
	case at >= 0:
		if r.part[at] -= milli; int64(r.part[at]) < least {
			r.n--
			r.part[at] = r.part[r.n]
		}
	case r.whole > 0:
		r.whole--
		r.add(Whole-milli, least)
	default:
		return false
	}
	return true
}

// fullest returns which part has the least free among those that have enough; -1 of none.
func (r *rollout) fullest(milli int16) int {
	best, has := -1, int16(Whole)
	for at, free := range r.part[:r.n] {
		if free >= milli && free < has {
			best, has = at, free
		}
	}
	return best
}

// takeSeveral takes a part of each of several GPUs.
func (r *rollout) takeSeveral(gpus int64, milli int16, least int64) bool {
	before := *r
	var left [MaxGPUs]int16
	for i := range gpus {
		switch at := r.fullest(milli); {
		case at >= 0:
			left[i] = r.part[at] - milli
			r.n--
			r.part[at] = r.part[r.n]
		case r.whole > 0:
			left[i] = Whole - milli
			r.whole--
		default:
			*r = before
			return false
		}
	}
	for _, free := range left[:gpus] {
		r.add(free, least)
	}
	return true
}
