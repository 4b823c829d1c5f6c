package place

import (
	"github.com/tenon-project/tenon/internal/core/topo"
)

// most returns how many exclusive CPUs a set of NUMA nodes can give while every set of NUMA nodes keeps what pods of
// the shared pool were promised; it looks no further once that is enough. limited reports that this is less than the
// sum of what each can give; j.shares then holds the amounts.
func (j *joint) most(nodes topo.NodeSet) (most int64, limited bool) {
	for i := range j.limits {
		l := &j.limits[i]
		if sumOver(j.cpus[:], nodes&l.Nodes) > l.Milli/1000 {
			d := division{joint: j, steps: searchSteps, most: -1}
			d.extend(nodes)
			j.shares = d.best
			return d.most, true
		}
	}
	return sumOver(j.cpus[:], nodes), false
}

// division searches amounts of exclusive CPUs by NUMA node whose sum is largest. Each node in turn gives as much as it
// can, then less: promises are milli-CPU, but amounts are whole CPUs, or whole cores where these are required, so the
// first try can miss a few. A search that runs out of steps keeps the best amounts so far: it never promises too much.
type division struct {
	*joint
	shares, best [topo.MaxNodes]int64
	sum, most    int64
	steps        int
}

// extend divides over rest beside what is given already.
func (d *division) extend(rest topo.NodeSet) {
	if d.sum > d.most {
		d.most, d.best = d.sum, d.shares
	}
	if rest == 0 {
		return
	}
	i := rest.First()
	others := rest & (rest - 1)
	for give := d.whole(i, d.bound(rest&-rest)); give >= 0; give = d.whole(i, give-1) {
		if d.steps--; d.steps < 0 || d.most >= d.needs[0] {
			break
		}
		d.shares[i], d.sum = give, d.sum+give
		more := d.sum+d.bound(others) > d.most // and no more for a smaller amount
		if more {
			d.extend(others)
		}
		d.shares[i], d.sum = 0, d.sum-give
		if !more {
			break
		}
	}
}

// bound is an amount that rest cannot exceed beside what is given already.
func (d *division) bound(rest topo.NodeSet) int64 {
	bound := sumOver(d.cpus[:], rest)
	for i := range d.limits {
		l := &d.limits[i]
		if l.Nodes&rest != 0 {
			bound = min(bound, l.Milli/1000-sumOver(d.shares[:], l.Nodes)+sumOver(d.cpus[:], rest&^l.Nodes))
		}
	}
	return bound
}

// whole is the largest amount up to most that NUMA node n can give: of whole cores where these are required.
func (j *joint) whole(n topo.NUMA, most int64) int64 {
	if !j.wholeCores || most <= 0 {
		return most
	}
	return int64(j.usable[n].Limited(j.machine, n, &j.free, int(most)).FreeWhole)
}
