package gang

import (
	"slices"
	"time"
)

// Pace decides which members of gangs go to the API server now, to be bound. They come all at once, and pods that start
// alone wait for what it works on at a time: while such pods are bound, members go one at a time, with rests. The
// members of a gang are not bound far apart, and none waits for ever. The zero value is ready to use.
type Pace struct {
	alone   int       // pods that start alone and are being bound
	quiet   time.Time // without any, they count until then: another may be on its way
	rest    time.Time // none goes beside others until then
	waiting []*Binding
	going   [3]int // by lane
	gangs   map[string]*paced
}

const (
	// TogetherInFlight bounds members where no others are bound. They keep the API server busy and leave others a
	// short way.
	TogetherInFlight = 64
	// LateInFlight bounds those beside others that have waited for long, besides the one that goes anyway.
	LateInFlight = 4
	// restPerBinding is how long the API server is left to others then, in the times that the Binding took.
	restPerBinding = 3
	// patience is how long a member waits for that behind the first one of its gang, longest how long in all.
	patience = 5 * time.Second
	longest  = 30 * time.Second
	// othersRest is how long after a pod that starts alone was bound another may be on its way.
	othersRest = time.Second
)

// lane is how a Binding went.
type lane int

const (
	together lane = iota // no others were bound
	beside
	late
)

// Binding is that of a member, from Join until Leave. It may go to the API server several times.
type Binding struct {
	gang   *paced
	joined time.Time
	began  time.Time // zero while it does not go
	in     lane
}

type paced struct {
	key   string
	count int
	began time.Time // the first one; zero before
}

// lateFrom is when a Binding has waited for long.
func (b *Binding) lateFrom() time.Time {
	at := b.joined.Add(longest)
	if first := b.gang.began; !first.IsZero() && first.Add(patience).Before(at) {
		return first.Add(patience)
	}
	return at
}

// AloneBegins notes that a pod that starts alone is being bound.
func (p *Pace) AloneBegins() { p.alone++ }

// AloneEnds notes that one was.
func (p *Pace) AloneEnds(now time.Time) {
	p.alone--
	p.quiet = now.Add(othersRest)
}

// Others reports whether a pod that starts alone is being bound, or another may be on its way.
func (p *Pace) Others(now time.Time) bool { return p.alone > 0 || now.Before(p.quiet) }

// Join notes that a member of a gang is to be bound.
func (p *Pace) Join(gang string, now time.Time) *Binding {
	g := p.gangs[gang]
	if g == nil {
		g = &paced{key: gang}
		if p.gangs == nil {
			p.gangs = map[string]*paced{}
		}
		p.gangs[gang] = g
	}
	g.count++
	return &Binding{gang: g, joined: now}
}

// Leave notes that b is over.
func (p *Pace) Leave(b *Binding) {
	if b.gang.count--; b.gang.count == 0 {
		delete(p.gangs, b.gang.key)
	}
}

// Wait lets b go when it is its turn.
func (p *Pace) Wait(b *Binding) { p.waiting = append(p.waiting, b) }

// Next returns a Binding that goes from now on. Where none may, it returns when that changes without another event, the
// zero time for never.
func (p *Pace) Next(now time.Time) (goes *Binding, again time.Time) {
	if len(p.waiting) == 0 {
		return nil, again
	}
	if !p.Others(now) {
		if p.going[together] < TogetherInFlight {
			goes = p.begin(0, together, now)
		}
		return goes, again
	}
	until := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	if p.alone == 0 {
		until(p.quiet)
	}
	if p.going[beside] == 0 {
		if !now.Before(p.rest) {
			return p.begin(0, beside, now), time.Time{}
		}
		until(p.rest)
	}
	if p.going[late] < LateInFlight {
		for i, b := range p.waiting {
			if at := b.lateFrom(); now.Before(at) {
				until(at)
			} else {
				return p.begin(i, late, now), time.Time{}
			}
		}
	}
	return nil, again
}

func (p *Pace) begin(i int, in lane, now time.Time) *Binding {
	b := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.going[in]++
	if b.in, b.began = in, now; b.gang.began.IsZero() {
		b.gang.began = now
	}
	return b
}

// End notes that b has gone, or waits no more.
func (p *Pace) End(b *Binding, now time.Time) {
	if b.began.IsZero() {
		if i := slices.Index(p.waiting, b); i >= 0 {
			p.waiting = slices.Delete(p.waiting, i, i+1)
		}
		return
	}
	if p.going[b.in]--; b.in == beside {
		p.rest = now.Add(restPerBinding * now.Sub(b.began))
	}
	b.began = time.Time{}
}
