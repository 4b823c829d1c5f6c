package quota

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Charge is what a ResourceClaim counts in quotas. However many pods use the claim, it counts once: with the pod that
// comes first in ReservedFor of those that hold their amounts, else with the first of all its pods by UID.
type Charge struct {
	// ID is the namespace and name of the claim, as in Pod.Claims.
	ID string
	// Amounts is what the claim has, or what it may get at most before it is allocated. It must not be changed.
	Amounts amount.List
	// ReservedFor are the UIDs of the pods that may use the devices, the first one first.
	ReservedFor []string
}

// charge is a Charge with what the account derives from it.
type charge struct {
	Charge
	users []string // by UID, ascending: pods of the account that use the claim
	payer string   // the pod that it counts with; empty for none
	// counts is among the pods of the payer's group, with its state; its group is nil where nothing counts.
	counts entry
}

// classSuffix ends the name under which Kubernetes limits the devices of a DeviceClass.
const classSuffix = ".deviceclass.resource.k8s.io/devices"

// ClassDimension is the name under which quotas limit the devices of a DeviceClass: that of Kubernetes' ResourceQuota.
func ClassDimension(class string) string { return class + classSuffix }

// undivided is the total of the devices of a class: no node says how many it has, so that max alone limits them.
const undivided = 1 << 46

// isClass reports whether a dimension is the devices of a class.
func isClass(dimension string) bool { return strings.HasSuffix(dimension, classSuffix) }

// isMapped reports whether devices of a class count under a name.
func (c *Config) isMapped(name string) bool {
	for _, mapped := range c.Classes {
		if mapped == name {
			return true
		}
	}
	return false
}

// Named returns the amounts of a claim under the names that Classes gives them.
func (c *Config) Named(amounts amount.List) amount.List {
	if len(c.Classes) == 0 {
		return amounts
	}
	named := amount.List{}
	for name, n := range amounts {
		class, ofClass := strings.CutSuffix(name, classSuffix)
		if mapped := c.Classes[class]; ofClass && mapped != "" {
			name = mapped
		}
		named.Add(amount.List{name: n})
	}
	return named
}

// PutCharge adds a claim or replaces what is known of it; without amounts it forgets the claim. It reports whether the
// claim counts less now.
func (a *Account) PutCharge(c Charge) (less bool) {
	known := a.charge(c.ID)
	for name, n := range known.Amounts {
		less = less || c.Amounts[name] < n
	}
	known.Charge = c
	a.recount(c.ID)
	return less
}

// charge returns what is known of a claim.
func (a *Account) charge(id string) *charge {
	if a.charges[id] == nil {
		a.charges[id] = &charge{Charge: Charge{ID: id}}
	}
	return a.charges[id]
}

// use makes a pod a user of the claims now, and no longer of the claims before.
func (a *Account) use(uid string, before, now []string) {
	for _, id := range before {
		c := a.charge(id)
		c.users = slices.DeleteFunc(c.users, func(u string) bool { return u == uid })
	}
	for _, id := range now {
		c := a.charge(id)
		if at, found := slices.BinarySearch(c.users, uid); !found {
			c.users = slices.Insert(c.users, at, uid)
		}
	}
	for _, id := range slices.Concat(before, now) {
		a.recount(id)
	}
}

// recount counts a claim with the pod that pays for it now.
func (a *Account) recount(id string) {
	c := a.charge(id)
	if c.counts.group != nil {
		a.count(&c.counts, (*Forest).Subtract)
		a.leave(&c.counts)
	}
	c.payer, c.counts = "", entry{pod: Pod{UID: "claim " + id}, charge: c}
	if p := a.payerOf(c); p != nil {
		c.payer, c.counts.pod.NonPreemptible = p.pod.UID, p.pod.NonPreemptible
		c.counts.vector, c.counts.group, c.counts.state = a.forest.Vector(c.Amounts), p.group, min(p.state, Reserved)
		p.group.pods[c.counts.pod.UID] = &c.counts
		a.count(&c.counts, (*Forest).Add)
	}
	if len(c.users) == 0 && len(c.Amounts) == 0 {
		delete(a.charges, id)
	}
}

// payerOf returns the pod that a claim counts with, nil for none.
func (a *Account) payerOf(c *charge) *entry {
	rank := func(e *entry) int {
		at := slices.Index(c.ReservedFor, e.pod.UID)
		switch {
		case e.state == Pending:
			return len(c.ReservedFor) + 1
		case at < 0:
			return len(c.ReservedFor)
		}
		return at
	}
	var users []*entry
	for _, uid := range c.users {
		users = append(users, a.pods[uid])
	}
	if len(users) == 0 {
		return nil
	}
	return slices.MinFunc(users, func(x, y *entry) int { return cmp.Compare(rank(x), rank(y)) })
}

// asks returns what a pod asks for or holds, with the claims that count with it and end with it.
func (a *Account) asks(e *entry) Vector {
	v := e.vector
	for _, id := range e.pod.Claims {
		if c := a.charges[id]; c != nil && c.payer == e.pod.UID && a.ends(c) {
			v = v.plus(c.counts.vector)
		}
	}
	return v
}

// ends reports whether no other pod than the payer holds a claim.
func (a *Account) ends(c *charge) bool {
	return !slices.ContainsFunc(c.users, func(uid string) bool {
		return uid != c.payer && a.pods[uid].state != Pending
	})
}

// claimShared adds the claims of a company's pods that no pod holds yet and that count with pods outside of it: each
// once, with the first of its pods.
func (a *Account) claimShared(claims []claim, c company) []claim {
	var seen []string
	for _, uid := range c.pods {
		e := a.pods[uid]
		if e == nil || e.state != Pending {
			continue
		}
		for _, id := range e.pod.Claims {
			one := a.charges[id]
			if one.counts.state == Pending && !slices.Contains(c.pods, one.payer) && !slices.Contains(seen, id) {
				seen = append(seen, id)
				claims = a.claim(claims, &entry{
					pod: Pod{NonPreemptible: e.pod.NonPreemptible}, vector: one.counts.vector, group: e.group,
				})
			}
		}
	}
	return claims
}

// plus returns the sums of two vectors.
func (v Vector) plus(o Vector) Vector {
	v = slices.Clone(v)
	for _, n := range o {
		if at := slices.IndexFunc(v, func(m Amount) bool { return m.Dimension == n.Dimension }); at >= 0 {
			v[at].N = amount.Plus(v[at].N, n.N)
		} else {
			v = append(v, n)
		}
	}
	return v
}
