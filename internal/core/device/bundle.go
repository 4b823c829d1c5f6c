package device

import (
	"cmp"
	"slices"
)

// mostPackings bounds the ways in which the containers of a pod may share devices; beyond, not
// all are tried.
const mostPackings = 1024

// bundle is what containers of a pod have of one device together, in the order of the pod.
type bundle []*Part

// on is the most that the bundle takes of a device at one time: an init container gives back what it has before the
// next one begins; a sidecar runs on.
func (b bundle) on(u *unit) Vector {
	var peak, beside, apps Vector
	for _, p := range b {
		amount := p.Need.Of(&u.Total)
		switch p.Role {
		case Init:
			now := beside
			now.add(&amount, 1)
			peak.raise(&now)
			continue
		case Sidecar:
			beside.add(&amount, 1)
		}
		apps.add(&amount, 1)
	}
	peak.raise(&apps)
	if u.Total[Slots] > 0 {
		peak[Slots] = int64(len(b))
	}
	return peak
}

// Of is what is needed of a device that has total, without slots.
func (n *Need) Of(total *Vector) Vector {
	if n.Whole {
		amount := *total
		amount[Slots] = 0
		return amount
	}
	amount := n.Amount
	if n.Ratio > 0 {
		amount[Bytes] = BytesOf(total[Bytes], n.Ratio)
	}
	return amount
}

// whole reports whether the bundle is one that no other pod may share a device with.
func (b bundle) whole() bool {
	return slices.ContainsFunc(b, func(p *Part) bool { return p.Need.Whole })
}

// equal reports whether two bundles need the same of a device.
func (b bundle) equal(o bundle) bool {
	return slices.EqualFunc(b, o, func(p, q *Part) bool {
		return p == q || p.Role == App && q.Role == App && p.Need == q.Need
	})
}

// plausible reports whether an empty GPU of any size could hold the bundle.
func (b bundle) plausible() bool {
	u := unit{traits: &traits{Device: Device{Type: GPU, Total: Vector{Cores: whole, Bytes: mostAmount, Slots: whole}}}}
	amount := b.on(&u)
	return amount[Cores] <= u.Total[Cores] && amount[Bytes] <= u.Total[Bytes] && amount[Slots] <= u.Total[Slots]
}

// packings are the ways in which parts can share devices, fewest devices first: containers of one pod prefer the same
// one. The devices of one part differ. There is none where so many devices do not hold them, however large they are;
// complete is false where there are more ways than were listed.
func packings(parts []Part, devices int) (list [][]bundle, complete bool) {
	p := packer{parts: parts, devices: devices}
	p.part(0, nil)
	slices.SortStableFunc(p.list, func(a, b []bundle) int { return cmp.Compare(len(a), len(b)) })
	return p.list, len(p.list) < mostPackings
}

// packer lists the packings of some parts, one part after the other.
type packer struct {
	parts   []Part
	devices int // that the node has
	list    [][]bundle
}

// part puts the parts from i on into bundles.
func (p *packer) part(i int, bundles []bundle) {
	switch {
	case len(p.list) >= mostPackings || len(bundles) > p.devices:
	case i == len(p.parts):
		p.list = append(p.list, bundles)
	default:
		p.share(i, 0, int(p.parts[i].Count), bundles)
	}
}

// share puts n devices of part i into bundles from at on, as many as possible first, and what is left into new ones.
// Of equal bundles the first are taken.
func (p *packer) share(i, at, n int, bundles []bundle) {
	if n > 0 && at < len(bundles) {
		alike := 1
		for at+alike < len(bundles) && bundles[at].equal(bundles[at+alike]) {
			alike++
		}
		for taken := min(n, alike); taken >= 0; taken-- {
			next := slices.Clone(bundles)
			for j := at; j < at+taken; j++ {
				next[j] = append(slices.Clip(next[j]), &p.parts[i])
			}
			if taken == 0 || next[at].plausible() {
				p.share(i, at+alike, n-taken, next)
			}
		}
		return
	}
	next := slices.Clip(bundles)
	for range n {
		next = append(next, bundle{&p.parts[i]})
	}
	p.part(i+1, next)
}
