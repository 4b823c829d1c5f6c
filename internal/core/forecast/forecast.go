package forecast

import (
	"fmt"
	"slices"
	"time"
)

// Unit is a pod, or the pods that start together.
type Unit struct {
	Name string
	// Kind is equal for units that ask for the same in the same place of the queue's rules; "" for one like no other.
	Kind string
	// Range is when a unit ends that runs, and how long a unit runs that waits.
	Range Range
}

// hasRange reports whether a unit may end earlier or later.
func (u Unit) hasRange() bool { return u.Range.Early < u.Range.Late }

// Estimate is when a unit can start.
type Estimate struct {
	// Start counts from now. Early is Never where the start is unknown, Late where only the earliest start is known.
	Start Range
	// After are the units after whose end it starts, by name; none for one that can start now, or never.
	After []string
	// Tried reports whether the start was looked for until it was found, or until the last end. Otherwise the time was
	// over before.
	Tried bool
	// Hopeless reports that a unit with an unknown start would not start either if no other unit ran.
	Hopeless bool
}

// Cluster is what a forecast plays on. It is a copy that no one else reads.
type Cluster interface {
	// Start starts the unit of that index among those that wait, beside all that run. It reports whether the whole unit
	// fits; otherwise nothing has changed.
	Start(waiting int) (bool, error)
	// End releases what a unit holds that runs, or that Start has started.
	End(name string) error
	// Reset returns to the state before the first Start and End.
	Reset() error
}

// Run estimates when units can start that wait, in the order of the queue. late reports that the first parts of the
// time are over, of so many equal ones: each pass has a part.
func Run(c Cluster, running, waiting []Unit, late func(parts, all int) bool) ([]Estimate, error) {
	ends := []func(Range) time.Duration{func(r Range) time.Duration { return r.Early }}
	if slices.ContainsFunc(slices.Concat(running, waiting), Unit.hasRange) {
		ends = append(ends, func(r Range) time.Duration { return r.Late })
	}
	var out []Estimate
	for i, end := range ends {
		if err := c.Reset(); err != nil {
			return nil, fmt.Errorf("reset the cluster: %w", err)
		}
		p := &pass{
			cluster: c, waiting: waiting, out: make([]Estimate, len(waiting)),
			late: func() bool { return late(i+1, len(ends)) },
		}
		for _, u := range running {
			p.ends = append(p.ends, ending{end(u.Range), u.Name})
		}
		if err := p.run(end); err != nil {
			return nil, err
		}
		if i == 0 {
			out = p.out
			continue
		}
		for u, second := range p.out {
			out[u] = join(out[u], second)
		}
	}
	return out, nil
}

// join returns the estimate of two passes. Where the time was over before the second one found a start, the first one
// is the earliest that is known. Both begin alike, so what starts before any end does so in both.
func join(first, second Estimate) Estimate {
	out := first
	switch {
	case first.Start.Early < Never && !second.Tried:
		if len(first.After) > 0 {
			out.Start.Late = Never
		}
		return out
	case second.Start.Early < Never && second.Start.Early >= first.Start.Early || first.Start.Early == Never:
		out.After = second.After
	}
	out.Start = Range{min(first.Start.Early, second.Start.Early), max(first.Start.Early, second.Start.Early)}
	out.Tried = first.Tried && second.Tried
	out.Hopeless = first.Hopeless && second.Hopeless
	return out
}

// ending is when a unit ends.
type ending struct {
	at   time.Duration
	name string
}

// pass is a forecast in which each unit runs for one time. Estimates of a pass have Early alone.
type pass struct {
	cluster Cluster
	waiting []Unit
	late    func() bool
	ends    []ending // those to come
	out     []Estimate
}

// run goes from end to end.
func (p *pass) run(end func(Range) time.Duration) error {
	for i := range p.out {
		p.out[i] = Estimate{Start: Range{Never, Never}}
	}
	var after []string
	for now := time.Duration(0); ; {
		if over, err := p.startAll(now, after, end); over || err != nil {
			return err
		}
		if after = nil; len(p.ends) == 0 {
			return p.tryEmpty()
		}
		next := slices.MinFunc(p.ends, func(a, b ending) int { return int(min(1, max(-1, a.at-b.at))) }).at
		if now = next; now == Never {
			return p.tryEmpty()
		}
		for i := 0; i < len(p.ends); {
			if p.ends[i].at > now {
				i++
				continue
			}
			after = append(after, p.ends[i].name)
			if err := p.cluster.End(p.ends[i].name); err != nil {
				return fmt.Errorf("end %s: %w", p.ends[i].name, err)
			}
			p.ends = slices.Delete(p.ends, i, i+1)
		}
		slices.Sort(after)
	}
}

// tryEmpty finds the units that would not start if those without a known end were gone: each is tried alone.
func (p *pass) tryEmpty() error {
	for _, e := range p.ends {
		if err := p.cluster.End(e.name); err != nil {
			return fmt.Errorf("end %s: %w", e.name, err)
		}
	}
	hopeless := map[string]bool{}
	for i := range p.waiting {
		u, e := &p.waiting[i], &p.out[i]
		if e.Start.Early < Never || p.late() {
			continue
		}
		fits := false
		if !hopeless[u.Kind] {
			var err error
			if fits, err = p.cluster.Start(i); err != nil {
				return fmt.Errorf("start %s: %w", u.Name, err)
			}
		}
		if !fits {
			e.Hopeless, hopeless[u.Kind] = true, u.Kind != ""
		} else if err := p.cluster.End(u.Name); err != nil {
			return fmt.Errorf("end %s: %w", u.Name, err)
		}
	}
	return nil
}

// startAll starts all units that fit, in their order, after others have ended. It reports whether no unit waits any
// more, or the time is over.
func (p *pass) startAll(now time.Duration, after []string, end func(Range) time.Duration) (over bool, err error) {
	refused := map[string]bool{}
	over = true
	for i := range p.waiting {
		u, e := &p.waiting[i], &p.out[i]
		if e.Start.Early < Never {
			continue
		}
		if p.late() {
			p.leaveOut()
			return true, nil
		}
		if refused[u.Kind] {
			e.Tried, over = true, false
			continue
		}
		started, err := p.cluster.Start(i)
		if err != nil {
			return true, fmt.Errorf("start %s: %w", u.Name, err)
		}
		if e.Tried = true; !started {
			refused[u.Kind] = u.Kind != ""
			over = false
			continue
		}
		e.Start, e.After = Range{now, now}, after
		at := Never
		if runs := end(u.Range); runs < Never-now {
			at = now + runs
		}
		p.ends = append(p.ends, ending{at, u.Name})
	}
	return over, nil
}

// leaveOut notes that the time was over before a start was found of these units: they may start at later ends.
func (p *pass) leaveOut() {
	for i := range p.out {
		if e := &p.out[i]; e.Start.Early == Never {
			e.Tried = false
		}
	}
}
