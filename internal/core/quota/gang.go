package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// members is the pods of the account that name one gang, by UID.
type members map[string]*entry

// join adds a pod to its gang. What is known of the gang's start is void then.
func (a *Account) join(e *entry) {
	name := e.pod.Gang
	if name == "" {
		return
	}
	if a.gangs[name] == nil {
		a.gangs[name] = members{}
	}
	a.gangs[name][e.pod.UID] = e
	delete(a.starts, name)
}

// part removes a pod from its gang. What is known of the gang's start is void then.
func (a *Account) part(e *entry) {
	delete(a.starts, e.pod.Gang)
	g := a.gangs[e.pod.Gang]
	if delete(g, e.pod.UID); len(g) == 0 {
		delete(a.gangs, e.pod.Gang)
	}
}

// SetGang sets what holds the pods of a gang together; the zero value for one that is gone.
func (a *Account) SetGang(name string, b gang.Bond) {
	delete(a.starts, name)
	if a.bonds[name] = b; b == (gang.Bond{}) {
		delete(a.bonds, name)
	}
}

// gangOf returns the gang of a pod; empty for one that starts alone.
func (a *Account) gangOf(e *entry) string {
	if a.bonds[e.pod.Gang].Plain {
		return ""
	}
	return e.pod.Gang
}

// holding returns how many members of a gang hold their amounts and are not leaving.
func (a *Account) holding(name string) (n int) {
	for _, e := range a.gangs[name] {
		if e.state != Pending && !e.pod.Leaving {
			n++
		}
	}
	return n
}

// Gangs returns the gangs of all pods, by Pod.Gang.
func (a *Account) Gangs() map[string]*Gang {
	gangs, groups := map[string]*Gang{}, map[string][]*Gang{}
	for _, name := range slices.Sorted(maps.Keys(a.gangs)) {
		g := &Gang{Bond: a.bonds[name], Bound: a.holding(name)}
		key := cmp.Or(g.Bond.Group, name)
		gangs[name], groups[key] = g, append(groups[key], g)
	}
	for _, group := range groups {
		for _, g := range group {
			if len(group) > 1 {
				g.Group = group
			}
		}
	}
	return gangs
}

// company is pods that are admitted together.
type company struct {
	pods    []string // by UID: each of them is admitted
	choices []choice // the others
}

// choice is members of a gang that needs some of them. They ask for different amounts, so that it is not known which
// ones start: a node may refuse those that ask for the least.
type choice struct {
	n      int // less than len(others)
	others []*entry
}

// size returns how many pods are admitted.
func (c *company) size() int {
	n := len(c.pods)
	for _, chosen := range c.choices {
		n += chosen.n
	}
	return n
}

// has reports whether a pod is admitted, or may be.
func (c *company) has(uid string) bool {
	return slices.Contains(c.pods, uid) || slices.ContainsFunc(c.choices, func(chosen choice) bool {
		return slices.ContainsFunc(chosen.others, func(e *entry) bool { return e.pod.UID == uid })
	})
}

// together returns the pods, and the pending members of their gangs that are required beside those that hold their
// amounts: as many as gang.Bond.AtOnce says, or as there are. Of members that ask for the same, the first by priority
// and UID are taken. So no Strict gang starts where its quotas lack room for all that it needs.
func (a *Account) together(uids []string) company {
	c, done := company{pods: uids}, ""
	for _, uid := range uids {
		e := a.pods[uid]
		if e == nil || e.state != Pending || a.gangOf(e) == "" || e.pod.Gang == done {
			continue
		}
		done = e.pod.Gang
		lacks := a.bonds[done].AtOnce(a.holding(done))
		if lacks <= 1 && !e.pod.Leaving { // the pod itself is enough
			continue
		}
		var others, refused []*entry // refused has those that no quota admits
		for _, o := range a.gangs[done] {
			switch {
			case o.state != Pending || o.pod.Leaving:
			case slices.Contains(c.pods, o.pod.UID):
				lacks--
			case a.isRefused(o):
				refused = append(refused, o)
			default:
				others = append(others, o)
			}
		}
		if len(others) < lacks {
			others = append(others, refused...)
		}
		n := min(max(lacks, 0), len(others))
		if n < len(others) { // else all of them count, in any order: most gangs need every member
			if n > 0 && slices.ContainsFunc(others, func(e *entry) bool { return a.differ(others[0], e) }) {
				c.choices = append(c.choices, choice{n, others})
				continue
			}
			slices.SortFunc(others, func(x, y *entry) int {
				return cmp.Or(cmp.Compare(y.pod.Priority, x.pod.Priority), cmp.Compare(x.pod.UID, y.pod.UID))
			})
		}
		c.pods = slices.Grow(slices.Clip(c.pods), n)
		for _, o := range others[:n] {
			c.pods = append(c.pods, o.pod.UID)
		}
	}
	return c
}

// isRefused reports whether a pod is admitted nowhere, as the quota that it names does not exist.
func (a *Account) isRefused(e *entry) bool {
	return e.group.missing && a.rules.Missing == MissingReject
}

// differ reports whether two pods count differently in quotas.
func (a *Account) differ(e, o *entry) bool {
	return e.group.quota != o.group.quota || e.pod.NonPreemptible != o.pod.NonPreemptible ||
		!slices.Equal(a.asks(e), a.asks(o))
}

// claimLeast adds what members of a choice ask for at least: of each claim as many of the smallest amounts as members
// are needed. Whoever is chosen asks for no less, so that no gang is refused that has members which fit.
func (a *Account) claimLeast(claims []claim, c choice) []claim {
	var asked []claim
	var amounts [][]int64 // by claim, of the members that ask for some
	for _, o := range c.others {
		a.each(o, func(one claim) {
			same := func(known claim) bool { return known.sameAs(one) }
			at := slices.IndexFunc(asked, same)
			if at < 0 {
				at = len(asked)
				asked, amounts = append(asked, one), append(amounts, nil)
			}
			amounts[at] = append(amounts[at], one.n)
		})
	}
	for i, one := range asked {
		slices.Sort(amounts[i])
		one.n = 0
		for _, n := range amounts[i][:max(c.n-(len(c.others)-len(amounts[i])), 0)] { // the others ask for none
			one.n = amount.Plus(one.n, n)
		}
		if known := find(claims, one); known != nil {
			known.n = amount.Plus(known.n, one.n)
		} else if one.n > 0 {
			claims = append(claims, one)
		}
	}
	return claims
}

// Left returns what the limits of quotas leave for pending pods, by limit, and what each of them asks for of each. What
// Reservations hold is left as well: it is not known whether the pods use them. A pod that no quota admits asks for a
// limit of its own that leaves nothing.
func (a *Account) Left(uids []string) (left []int64, asks map[string][]int64) {
	c := company{pods: uids}
	claims := a.claimAll(nil, c)
	a.holdAhead(claims, c)
	for _, room := range a.rooms {
		a.shift(claims, room, -1)
	}
	limited := slices.DeleteFunc(claims, func(one claim) bool { _, kind, _ := a.limit(one); return kind == "" })
	for _, one := range limited {
		limit, _, used := a.limit(one)
		left = append(left, amount.Plus(limit, -used))
	}
	refused := len(left)
	left, asks = append(left, 0), map[string][]int64{}
	for _, uid := range uids {
		asks[uid] = make([]int64, len(left))
		e := a.pods[uid]
		if e == nil || e.state != Pending {
			continue
		}
		if a.isRefused(e) {
			asks[uid][refused] = 1
		}
		a.each(e, func(asked claim) {
			if at := slices.IndexFunc(limited, func(one claim) bool { return one.sameAs(asked) }); at >= 0 {
				asks[uid][at] = asked.n
			}
		})
	}
	return left, asks
}

// start is the members of a gang that were admitted together and have yet to be reserved, with what they ask for. As
// long as nothing else changes of the gang or the quotas, each of them asks for just these, so that the work to admit
// one member after the other is linear in their number.
type start struct {
	uids   map[string]bool
	claims []claim // Invariant: as Account.claim adds them up for uids, within the int64s.
}

// begin notes which members of a gang were admitted together.
func (a *Account) begin(name string, uids []string) {
	if slices.ContainsFunc(a.claims, func(c claim) bool { return c.n == math.MaxInt64 || c.held != 0 }) ||
		slices.ContainsFunc(uids, func(uid string) bool { return len(a.pods[uid].pod.Claims) > 0 }) {
		return
	}
	s := &start{map[string]bool{}, slices.Clone(a.claims)}
	for _, uid := range uids {
		s.uids[uid] = true
	}
	a.starts[name] = s
}

// mayFollow reports whether a pod was admitted with its gang, and those left of it may hold what they ask for now.
func (a *Account) mayFollow(e *entry) bool {
	s := a.starts[e.pod.Gang]
	return s != nil && s.uids[e.pod.UID] && len(a.nominated) == 0 && a.check(e.group.quota, s.claims, 0) == nil
}

// follow notes that a member holds its amounts now, or no longer.
func (a *Account) follow(e *entry) {
	s := a.starts[e.pod.Gang]
	if s == nil || e.state != Reserved || !s.uids[e.pod.UID] {
		delete(a.starts, e.pod.Gang)
		return
	}
	delete(s.uids, e.pod.UID)
	a.each(e, func(asked claim) { find(s.claims, asked).n -= asked.n })
}
