package device

import "slices"

// walk visits the sets of k devices of open, better ones first by all that does not depend on the account.
type walk struct {
	class *Class
	open  uint64
	k, at int
	fine  bool // see Keys.band
	// interchangeable are groups of devices that nothing distinguishes. Only sets with the first devices of each group
	// are visited: the others are not better.
	interchangeable []uint64
	// list has the sets where they do not come from the tables of the class; k is 0 then.
	list []Keys
	// approximate: not all sets are there.
	approximate bool
}

// next returns the next set, with the keys that the class knows; false at the end.
func (w *walk) next(k *Keys) bool {
	if w.at < len(w.list) {
		*k = w.list[w.at]
		w.at++
		return true
	}
	if w.k >= len(w.class.order) {
		return false
	}
	c, order, closed := w.class, w.class.order[w.k], ^w.open
	for at := w.at; at < len(order); at++ {
		if mask := uint64(order[at]); mask&closed == 0 && w.first(mask) {
			w.at = at + 1
			*k = c.keys(mask)
			return true
		}
	}
	return false
}

// first reports whether a set has the first open devices of each interchangeable group.
func (w *walk) first(mask uint64) bool {
	for _, g := range w.interchangeable {
		if rest := g & w.open &^ mask; rest != 0 && g&mask > rest&-rest {
			return false
		}
	}
	return true
}

// best returns the best set by all keys that check accepts: of the first band that has one. check fills in the keys
// about other types and shares. left are the devices that are free before the choice. Of classes with tables it looks
// at no more than all sets of k devices, 12,870, and allocates nothing.
func (w *walk) best(left uint64, q Demand, check func(Keys) (Keys, bool)) (best Keys, found bool) {
	var k Keys
	for w.next(&k) {
		if found && !k.band(&best, w.fine) {
			break
		}
		if w.complete(&k, left, q, check) && (!found || k.Compare(&best) < 0) {
			best, found = k, true
		}
	}
	return best, found
}

// complete fills in the keys that depend on the account; false where check refuses the set.
func (w *walk) complete(k *Keys, left uint64, q Demand, check func(Keys) (Keys, bool)) (ok bool) {
	if *k, ok = check(*k); !ok {
		return false
	}
	k.Residual = w.class.residual(left&^k.Mask, q)
	k.LinksLeft = w.class.keys(left &^ k.Mask).Links
	return true
}

// listed is the walk through given sets.
func (c *Class) listed(list []Keys) *walk {
	slices.SortFunc(list, func(a, b Keys) int { return a.Compare(&b) })
	return &walk{class: c, list: list}
}

// orEqual is q, and the same for all sizes where it is zero.
func (q Demand) orEqual() Demand {
	if q == (Demand{}) {
		return Demand{1, 1, 1}
	}
	return q
}
