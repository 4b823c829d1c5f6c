package gang_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// attempt is one request of a member's Binding. Times are in milliseconds, -1 for not yet.
type attempt struct{ waits, began, over int }

// paced is the Binding of a member, with all that became of it.
type paced struct {
	of           *gang.Binding
	gang         string
	time         int // how often the gang had come
	joined, left int
	beside, late bool // its last attempt
	attempts     []attempt
}

// last is the attempt that waits or goes; nil for none.
func (b *paced) last() *attempt {
	if n := len(b.attempts); n > 0 && b.attempts[n-1].over < 0 {
		return &b.attempts[n-1]
	}
	return nil
}

func (b *paced) waits() bool { a := b.last(); return a != nil && a.began < 0 }
func (b *paced) goes() bool  { a := b.last(); return a != nil && a.began >= 0 }

// pacing is all that has happened. What may go next is read from it anew each time.
type pacing struct {
	pace    gang.Pace
	all     []*paced
	waiting []*paced // in their order
	alone   []attempt
	rests   int // until then, beside others
	now     int
}

func (p *pacing) others() bool {
	return slices.ContainsFunc(p.alone, func(a attempt) bool { return a.over < 0 || p.now < a.over+1000 })
}

// isLate reports whether b was to be bound 30 seconds ago, or the first one of its gang went five seconds ago, of those
// since the gang had none.
func (p *pacing) isLate(b *paced) bool {
	return p.now >= b.joined+30000 || slices.ContainsFunc(p.all, func(o *paced) bool {
		return o.gang == b.gang && o.time == b.time && slices.ContainsFunc(o.attempts, func(a attempt) bool {
			return a.began >= 0 && p.now >= a.began+5000
		})
	})
}

// next returns which one that waits goes now, nil for none.
func (p *pacing) next() *paced {
	together, beside, late := 0, 0, 0
	for _, b := range p.all {
		switch {
		case !b.goes():
		case b.beside:
			beside++
		case b.late:
			late++
		default:
			together++
		}
	}
	is := func(b *paced, beside, late bool) *paced {
		b.beside, b.late = beside, late
		return b
	}
	switch {
	case len(p.waiting) == 0:
		return nil
	case !p.others():
		if together < gang.TogetherInFlight {
			return is(p.waiting[0], false, false)
		}
		return nil
	case beside == 0 && p.now >= p.rests:
		return is(p.waiting[0], true, false)
	}
	for _, b := range p.waiting {
		if late < gang.LateInFlight && p.isLate(b) {
			return is(b, false, true)
		}
	}
	return nil
}

// settle lets all go that may, and returns when that changes without an event.
func (p *pacing) settle(t *rapid.T, went *[3]int) int {
	for {
		got, again := p.pace.Next(at(p.now))
		want := p.next()
		if want == nil {
			if got != nil {
				t.Fatalf("at %d ms %+v goes, want none", p.now, got)
			}
			if again.IsZero() {
				return -1
			}
			return int(again.Sub(at(0)) / time.Millisecond)
		}
		if got != want.of {
			t.Fatalf("at %d ms %+v goes, want that of %s", p.now, got, want.gang)
		}
		switch {
		case want.beside:
			went[1]++
		case want.late:
			went[2]++
		default:
			went[0]++
		}
		want.last().began = p.now
		p.waiting = slices.DeleteFunc(p.waiting, func(b *paced) bool { return b == want })
	}
}

// TestMembersGoWhenTheyMay: in any order of events those go, and at those times, that the rules name when they are
// asked for all that has happened, and never without an event or the time that was said.
func TestMembersGoWhenTheyMay(t *testing.T) {
	t.Parallel()
	var went [3]int // together, beside, late
	rapid.Check(t, func(t *rapid.T) {
		p, times := &pacing{}, map[string]int{}
		again := -1
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			of := func(is func(*paced) bool) *paced {
				var list []*paced
				for _, b := range p.all {
					if b.left < 0 && is(b) {
						list = append(list, b)
					}
				}
				if len(list) == 0 {
					return nil
				}
				return list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
			}
			switch event := rapid.IntRange(0, 9).Draw(t, "event"); event {
			case 0:
				key := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "gang"))
				if !slices.ContainsFunc(p.all, func(b *paced) bool { return b.gang == key && b.left < 0 }) {
					times[key]++
				}
				for range rapid.SampledFrom([]int{1, 2, 70}).Draw(t, "members") {
					b := &paced{
						of: p.pace.Join(key, at(p.now)), gang: key, time: times[key], joined: p.now, left: -1,
					}
					p.pace.Wait(b.of)
					b.attempts = append(b.attempts, attempt{p.now, -1, -1})
					p.all, p.waiting = append(p.all, b), append(p.waiting, b)
				}
			case 1:
				p.pace.AloneBegins()
				p.alone = append(p.alone, attempt{p.now, p.now, -1})
			case 2:
				if i := slices.IndexFunc(p.alone, func(a attempt) bool { return a.over < 0 }); i >= 0 {
					p.pace.AloneEnds(at(p.now))
					p.alone[i].over = p.now
				}
			case 3, 4, 5: // gone, or does not wait any more
				is := (*paced).goes
				if event == 5 {
					is = (*paced).waits
				}
				if b := of(is); b != nil {
					p.pace.End(b.of, at(p.now))
					if b.goes() && b.beside {
						p.rests = p.now + 3*(p.now-b.last().began)
					}
					b.last().over = p.now
					p.waiting = slices.DeleteFunc(p.waiting, func(o *paced) bool { return o == b })
				}
			case 6: // tried again, or bound
				b := of(func(b *paced) bool { return b.last() == nil })
				switch {
				case b == nil:
				case rapid.Bool().Draw(t, "again"):
					p.pace.Wait(b.of)
					b.attempts = append(b.attempts, attempt{p.now, -1, -1})
					p.waiting = append(p.waiting, b)
				default:
					p.pace.Leave(b.of)
					b.left = p.now
				}
			default:
				for range rapid.SampledFrom([]int{1, 1, 2, 30, 110}).Draw(t, "time") {
					if p.now += 50; again >= 0 && again <= p.now {
						again = p.settle(t, &went)
					} else if b := p.next(); b != nil {
						t.Fatalf("at %d ms %s goes, and %d ms was said", p.now, b.gang, again)
					}
				}
				continue
			}
			again = p.settle(t, &went)
		}
		here := map[string]bool{}
		for _, b := range p.all {
			if b.left < 0 {
				here[b.gang] = true
			}
		}
		if n := p.pace.Gangs(); n != len(here) {
			t.Fatalf("%d gangs are remembered, want %d", n, len(here))
		}
	})
	if !testing.Short() && slices.Min(went[:]) < 50 {
		t.Errorf("%v went together, beside others and late: too few to mean anything", went)
	}
}
