package domain

import (
	"iter"
	"math"
	"slices"
)

// Request is members of gangs that are placed by the same rules, so that they share a domain.
type Request struct {
	Members []string // UIDs of the members to place, in the order in which they are tried
	Held    []string // UIDs of the members that have a node already, or a reservation on one
	Min     int      // so many of Members must be placed; at most len(Members)
	Rules   []Rule   // from the innermost layer to the outermost
	// Joint asks that the devices of all members are on one node and well linked, where that is possible.
	Joint bool
	// Ranked asks that members that follow each other share a domain of the innermost layer, as far as possible.
	Ranked bool
}

// Bound returns the innermost rule that must hold; the zero value without one.
func (r *Request) Bound() Rule {
	if i := slices.IndexFunc(r.Rules, func(rule Rule) bool { return rule.Must }); i >= 0 {
		return r.Rules[i]
	}
	return Rule{}
}

// Site is a node on which members may be placed.
type Site struct {
	Name string   // of the node
	In   []string // the node's domain by rule of the Request; "" where the node is in none
	Free []int64  // by dimension of the Demand, at least 0; Unlimited where the node does not count the resource
	Held int      // how many of Request.Held are on the node
	// Reserved is how many Reservations that members may use are on the node. Their room is in Free.
	Reserved int
	Link     int64 // how well the members' devices would be linked on the node; 0 where that does not matter
}

// Unlimited is an amount that no demand exceeds.
const Unlimited = math.MaxInt64

// Demand is a lower bound of what the members ask for, by dimension (CPU, memory and so on).
type Demand struct {
	Each []int64 // the smallest request of a member
	All  []int64 // the sum of the Request.Min smallest requests
}

// Domain is nodes on which the members may be placed together.
type Domain struct {
	Name  string
	Rule  Rule   // the rule whose domain it is; zero for the whole cluster
	Parts []Part // at least one
}

// Part is some nodes of a Domain. Members fill the Parts in order: a Part with a number gets exactly so many members.
// Of Parts without a number, a member goes to that of the member before it, else to the next one with room.
type Part struct {
	Sites   []int // indexes of the nodes, ascending
	Members int   // how many members the Part gets; 0 for any number
}

// Combinations yields one domain for each of several requests, every combination once. The last request's domains
// change first.
func Combinations(requests []iter.Seq[Domain]) iter.Seq[[]Domain] {
	return func(yield func([]Domain) bool) { combine(requests, nil, yield) }
}

// combine yields each combination of the choices of all requests, and reports whether to go on.
func combine(requests []iter.Seq[Domain], chosen []Domain, yield func([]Domain) bool) bool {
	if len(requests) == 0 {
		return yield(slices.Clone(chosen))
	}
	for d := range requests[0] {
		if !combine(requests[1:], append(chosen, d), yield) {
			return false
		}
	}
	return true
}
