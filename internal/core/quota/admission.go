package quota

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// LimitKind is what a pod would exceed.
type LimitKind string

// Kinds of limits.
const (
	RuntimeLimit LimitKind = "runtime"
	MaxLimit     LimitKind = "max"
	MinLimit     LimitKind = "min"     // of pods that are not preemptible, at their own quota
	NoQuota      LimitKind = "missing" // the quota that the pod names does not exist
	Unlimited    LimitKind = "none"    // a bound pod would leave its quota for none
)

// Shortage is one dimension in which a quota has too little left: Used + Request > Limit.
type Shortage struct {
	Dimension string
	Limit     int64
	Used      int64 // or held for nominated pods that come first
	Request   int64 // of all pods that were asked for together
}

// Excess is why pods are not admitted: the first quota, from the pods' own upwards, that they would exceed.
type Excess struct {
	Quota     string
	Path      []string // from the top of the tree to the pods' own quota
	LimitKind LimitKind
	// Shortages are by name of the dimension. Invariant: empty for NoQuota and Unlimited alone.
	Shortages []Shortage

	// Pods is how many were asked for together, members of their gangs included.
	Pods int
	// Outside is what pods outside all quotas use of the nodes in the dimension of the first shortage, where that is
	// why the runtime is short: the quota's own max allows more, and its siblings use less above their mins than is
	// lacking. Zero otherwise.
	Outside Outside

	blocks []block  // all limits on all paths that the pods would exceed
	path   []*Quota // from the quota of the first pod upwards, as it was
}

// Outside is what pods that are in no quota use.
type Outside struct{ Default, System int64 }

// block is a limit that a claim exceeds, and what was left below it.
type block struct {
	claim
	free int64
}

// claim is what pods ask of one quota in one dimension, together.
type claim struct {
	quota     *Quota
	dimension Dimension
	firm      bool  // of its min, by the pods of its own that are not preemptible
	n         int64 // more than 0
	held      int64 // counts as used besides what is: for nominated pods, and in a dry run less what is taken
}

// Admit reports why pending pods may not hold what they ask for together, nil when they may: at each quota on their
// paths, in each dimension that they ask for and that the quota's max names, what is used and what they ask for must be
// within the runtime, or the max by the rules; of pods that are not preemptible also within the min of their own quota.
// System is never limited, Default by its max alone. Pods that hold it already ask for nothing. What is held for
// nominated pods that come first counts as used. With a member of a gang it asks for as many others as the gang lacks;
// members of a NonStrict gang are admitted one by one. What Reservations hold is not held against the others of a gang,
// which may use it: each of them is asked about again when its turn comes. The work for a pod is in its depth times its
// dimensions, and as much for each nominated pod of its quota; the first member of a gang that is asked about has that
// of all. Success allocates nothing for a pod without a gang.
func (a *Account) Admit(uids ...string) *Excess {
	var one *entry
	if len(uids) == 1 {
		if one = a.pods[uids[0]]; one != nil && a.mayFollow(one) {
			return nil
		}
	}
	all := a.together(uids)
	x := a.ask(all, nil)
	switch {
	case x == nil && one != nil && len(all.pods) > 1:
		a.begin(one.pod.Gang, all.pods)
	case x != nil && all.size() > len(uids) && len(a.rooms) > 0:
		if x = a.ask(all, a.rooms); x == nil {
			return a.ask(company{pods: uids}, nil)
		}
	}
	return x
}

// AdmitInside is Admit for a pod that is to use the Reservation of the pod room, of which after is left then; nil for
// nothing. In the end the account is as before.
func (a *Account) AdmitInside(uid, room string, after *Pod) *Excess {
	e := a.pods[room]
	if e == nil {
		return a.Admit(uid)
	}
	was, state, left := e.pod, e.state, e.pod
	if left.Amounts = nil; after != nil {
		left.Amounts = after.Amounts
	}
	defer func() {
		if a.Put(was); e.state != state {
			a.turn(e, state)
		}
	}()
	a.Put(left)
	return a.Admit(uid)
}

// ask reports what pending pods exceed together, as if the pods in without held nothing.
func (a *Account) ask(c company, without map[string]*entry) *Excess {
	leaf, x := a.leafOf(c.pods)
	if x != nil {
		return x
	}
	a.claims = a.claimAll(a.claims[:0], c)
	a.holdAhead(a.claims, c)
	for _, e := range without {
		a.shift(a.claims, e, -1)
	}
	return a.check(leaf, a.claims, c.size())
}

// leafOf returns the quota of the first pending pod, and a refusal if one of the pods names a quota that must exist.
func (a *Account) leafOf(pods []string) (leaf *Quota, x *Excess) {
	for _, uid := range pods {
		e := a.pods[uid]
		if e == nil || e.state != Pending {
			continue
		}
		if a.isRefused(e) {
			return nil, &Excess{Quota: e.pod.Quota, LimitKind: NoQuota}
		}
		leaf = cmp.Or(leaf, e.group.quota)
	}
	return leaf, nil
}

// claimAll adds what the pending pods of a company ask for.
func (a *Account) claimAll(claims []claim, c company) []claim {
	for _, uid := range c.pods {
		if e := a.pods[uid]; e != nil && e.state == Pending {
			claims = a.claim(claims, e)
		}
	}
	for _, chosen := range c.choices {
		claims = a.claimLeast(claims, chosen)
	}
	return a.claimShared(claims, c)
}

// AdmitChange reports why a bound pod may not become p, with other amounts or in another quota; nil when it may.
// Limits are those after the change, as a quota is lent less when it asks for less and gets more when it asks for
// more. A limit under which p holds no more than the pod does now is not asked. A pod that is not bound may change;
// it is admitted later. A pod that is bound in a quota may not leave it for Default or System, where nothing limits its
// use. In the end the account is as before.
func (a *Account) AdmitChange(p Pod) *Excess {
	if p.Node == "" {
		return nil
	}
	e := a.pods[p.UID]
	if e != nil && e.pod.Quota != p.Quota {
		free, missing := a.QuotaOf(PodsOf{Namespace: p.Namespace, Quota: p.Quota})
		if from := e.group.quota; !missing && a.isFree(free) && !a.isFree(from) {
			return &Excess{Quota: from.Name(), LimitKind: Unlimited}
		}
	}
	q, missing := a.QuotaOf(p.key())
	if missing && (e == nil || e.pod.Quota != p.Quota) {
		return &Excess{Quota: p.Quota, LimitKind: NoQuota}
	}
	claims := a.claim(nil, &entry{pod: p, vector: a.forest.Vector(p.Amounts), group: &group{quota: q}})
	if e == nil {
		defer a.Remove(p.UID)
	} else {
		if e.state != Pending {
			a.shift(claims, e, -1)
		}
		was, state := e.pod, e.state
		defer func() {
			if a.Put(was); e.state != state {
				a.turn(e, state)
			}
		}()
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return amount.Plus(c.n, c.held) <= 0 })
	a.Put(p)
	for i := range claims {
		claims[i].held = -claims[i].n // it is used now
	}
	return a.check(q, claims, 1)
}

// isFree reports whether a quota is one of pods outside all others.
func (a *Account) isFree(q *Quota) bool { return q == a.fallback || q == a.system }

// AdmitAgain reports why pods may not have what they ask for once more, all together; nil when they may. It is asked
// about pods that are moved: the room that is reserved for them elsewhere counts while they still hold theirs. Limits
// are those with the request of the room. In the end the account is as before.
func (a *Account) AdmitAgain(uids ...string) *Excess {
	var rooms []string
	for _, uid := range uids {
		e := a.pods[uid]
		if e == nil {
			continue
		}
		room := e.pod
		room.UID, room.Node, room.Gang = "room for "+uid, "", "" // the room of a member is not of its gang
		room.Nominated, room.Leaving = false, false
		a.Put(room)
		defer a.Remove(room.UID)
		rooms = append(rooms, room.UID)
	}
	return a.Admit(rooms...)
}

// holdAhead adds to claims what is held for nominated pods that come before one of the pods, and returns these.
func (a *Account) holdAhead(claims []claim, c company) (ahead []string) {
	for uid, n := range a.nominated {
		before := func(u string) bool { return n.precedes(a.pods[u]) }
		if !c.has(uid) && slices.ContainsFunc(c.pods, before) {
			a.shift(claims, n, 1)
			ahead = append(ahead, uid)
		}
	}
	return ahead
}

// precedes reports whether what a nominated pod asks for is held against another pending pod: one of the same quota
// that has no higher priority. Of two nominated pods of one priority the first by UID precedes the other.
func (e *entry) precedes(o *entry) bool {
	switch {
	case o == nil || o.state != Pending || o.group.quota != e.group.quota:
		return false
	case o.pod.Priority != e.pod.Priority:
		return e.pod.Priority > o.pod.Priority
	}
	return !o.pod.Nominated || e.pod.UID < o.pod.UID
}

// each calls f with what a pod asks of each quota on its path.
func (a *Account) each(e *entry, f func(claim)) {
	leaf, asks := e.group.quota, a.asks(e)
	for n := leaf; n != nil && n != a.root && n != a.system; n = n.parent {
		for _, asked := range asks {
			if asked.N == 0 {
				continue
			}
			c := claim{quota: n, dimension: asked.Dimension, n: asked.N}
			f(c)
			if c.firm = true; e.pod.NonPreemptible && n == leaf && n != a.fallback {
				f(c)
			}
		}
		if a.rules.LeafOnly {
			break
		}
	}
}

// find returns the claim on what another claims too; nil where there is none.
func find(claims []claim, o claim) *claim {
	for i := range claims {
		if claims[i].sameAs(o) {
			return &claims[i]
		}
	}
	return nil
}

// sameAs reports whether two claims are on the same.
func (c *claim) sameAs(o claim) bool {
	return c.quota == o.quota && c.dimension == o.dimension && c.firm == o.firm
}

// shift adds to what claims hold what a pod asks for on its path, times sign.
func (a *Account) shift(claims []claim, e *entry, sign int64) {
	a.each(e, func(asked claim) {
		if c := find(claims, asked); c != nil {
			c.held = amount.Plus(c.held, sign*asked.n)
		}
	})
}

// claim adds what a pod asks of each quota on its path.
func (a *Account) claim(claims []claim, e *entry) []claim {
	others := len(claims)
	a.each(e, func(asked claim) {
		if c := find(claims[:others], asked); c != nil {
			c.n = amount.Plus(c.n, asked.n)
		} else {
			claims = append(claims, asked)
		}
	})
	return claims
}

// check returns what the claims of so many pods exceed; leaf is the quota whose path is named.
func (a *Account) check(leaf *Quota, claims []claim, pods int) *Excess {
	var x *Excess
	for _, c := range claims {
		limit, kind, used := a.limit(c)
		if kind != "" && amount.Plus(used, c.n) > limit {
			x = x.add(c, Shortage{a.forest.NameOf(c.dimension), limit, used, c.n}, kind)
		}
	}
	if x != nil {
		x.Pods = pods
		slices.SortFunc(x.Shortages, func(s, o Shortage) int { return cmp.Compare(s.Dimension, o.Dimension) })
		for _, b := range x.blocks {
			s := x.Shortages[0]
			if x.LimitKind == RuntimeLimit && !b.firm && b.quota.Name() == x.Quota &&
				a.forest.NameOf(b.dimension) == s.Dimension {
				x.Outside = a.outside(b.claim, s.Limit, amount.Plus(s.Used, s.Request)-s.Limit)
			}
		}
		x.path = a.path(leaf)
		for _, n := range slices.Backward(x.path) {
			x.Path = append(x.Path, n.Name())
		}
	}
	return x
}

// outside is Excess.Outside of a quota whose runtime is the limit and lacks so much.
func (a *Account) outside(c claim, limit, lacks int64) Outside {
	if most, _ := c.quota.Max(c.dimension); limit >= most {
		return Outside{}
	}
	for q := c.quota; q.parent != nil; q = q.parent {
		if q.parent == a.root && (q.spec.IgnoreDefaultTree || q.spec.Total[a.forest.NameOf(c.dimension)] > 0) {
			return Outside{}
		}
		for _, o := range q.parent.children {
			if _, divides := o.Max(c.dimension); divides && o != q {
				lacks -= max(o.Amount(Used, c.dimension)-o.cells[c.dimension].effective, 0)
			}
		}
	}
	if lacks <= 0 {
		return Outside{}
	}
	return Outside{max(a.fallback.Amount(Used, c.dimension), 0), max(a.system.Amount(Used, c.dimension), 0)}
}

// path returns the quotas from one upwards, without Root.
func (a *Account) path(q *Quota) (path []*Quota) {
	for ; q != nil && q != a.root; q = q.parent {
		path = append(path, q)
	}
	return path
}

// limit returns what the quota of a claim may use, and what it uses and holds; no kind where it is not limited.
func (a *Account) limit(c claim) (limit int64, kind LimitKind, used int64) {
	m := Used
	var named bool
	switch {
	case c.firm:
		kind, m = MinLimit, NonPreemptibleUsed
		limit = c.quota.Min(c.dimension)
		_, named = c.quota.Max(c.dimension)
	case a.rules.ByMax || c.quota == a.fallback:
		kind = MaxLimit
		limit, named = c.quota.Max(c.dimension)
	default:
		kind = RuntimeLimit
		limit, named = a.forest.Runtime(c.quota, c.dimension)
	}
	if !named {
		return 0, "", 0
	}
	return limit, kind, amount.Plus(c.quota.Amount(m, c.dimension), c.held)
}

// add records one limit that a claim exceeds. x is nil for the first one. Shortages are listed for the first quota and
// kind of limit only; blocks has all of them.
func (x *Excess) add(c claim, s Shortage, kind LimitKind) *Excess {
	if x == nil {
		x = &Excess{Quota: c.quota.Name(), LimitKind: kind}
	}
	if x.Quota == c.quota.Name() && x.LimitKind == kind {
		x.Shortages = append(x.Shortages, s)
	}
	x.blocks = append(x.blocks, block{c, s.Limit - s.Used})
	return x
}

// Grew reports whether a pod that was refused can be admitted now, with or without victims: more is left than then
// under one of the limits that refused it, it is under other limits, or it and its gang ask for less there.
func (a *Account) Grew(uid string, x *Excess) bool {
	e := a.pods[uid]
	if e == nil {
		return false
	}
	all := a.together([]string{uid})
	if x.LimitKind == NoQuota {
		_, missing := a.QuotaOf(PodsOf{Quota: x.Quota})
		names := func(uid string) bool { return a.pods[uid].pod.Quota == x.Quota }
		return !missing || !slices.ContainsFunc(all.pods, names)
	}
	if !slices.Equal(x.path, a.path(e.group.quota)) {
		return true
	}
	a.claims = a.claimAll(a.claims[:0], all)
	a.holdAhead(a.claims, all)
	for _, b := range x.blocks {
		c := find(a.claims, b.claim)
		if c == nil || c.n < b.n {
			return true
		}
		if limit, kind, used := a.limit(*c); kind == "" || limit-used > b.free {
			return true
		}
	}
	return false
}

// String names the quota and the dimensions, in the units of a Vector.
func (x *Excess) String() string {
	switch x.LimitKind {
	case NoQuota:
		return fmt.Sprintf("quota %q does not exist", x.Quota)
	case Unlimited:
		return fmt.Sprintf("a bound pod would leave quota %q", x.Quota)
	}
	text := fmt.Sprintf("quota %q", x.Quota)
	for _, s := range x.Shortages {
		text += fmt.Sprintf("; %s: used %d + request %d > %s %d", s.Dimension, s.Used, s.Request, x.LimitKind, s.Limit)
	}
	return text
}
