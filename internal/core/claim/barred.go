package claim

import (
	"fmt"
	"slices"
	"strings"
)

// Bar is what keeps a device from a request. Of several that apply, the first one in the order of the constants counts.
type Bar uint8

// Bars.
const (
	Free        Bar = iota
	PoolBroken      // its pool is not complete, or invalid; By is the pool
	Unselected      // By is the selector of the request
	Tainted         // By is the taint
	Allocated       // By is the claim
	HeldOutside     // By is the pod that has the card
	TooSmall        // By is the capacity or counter of which too little is left
)

var barTexts = [...]string{
	Free: "free", PoolBroken: "in incomplete or invalid pool ", Unselected: "fail selector ", Tainted: "tainted ",
	Allocated: "allocated to ", HeldOutside: "held outside DRA by ", TooSmall: "with too little ",
}

// Barred is a device of the class of a request, with what keeps it from the request.
type Barred struct {
	Bar Bar
	By  string
}

// Request is a request, or an alternative of one, with the devices that a node has of its class.
type Request struct {
	// Claim and Name name it, where an extended resource has a Name alone; Alternative is that of several, "" for a
	// request without.
	Claim, Name, Alternative string
	Class                    string
	// Count is the number of devices, 0 for all.
	Count   int64
	Devices []Barred
}

// free is the number of devices that the request could get.
func (r *Request) free() (n int64) {
	for _, d := range r.Devices {
		if d.Bar == Free {
			n++
		}
	}
	return n
}

// needed is the number of devices that it needs: one that asks for all needs each one that its selectors match.
func (r *Request) needed() int64 {
	if r.Count > 0 {
		return r.Count
	}
	n := int64(0)
	for _, d := range r.Devices {
		if d.Bar != Unselected {
			n++
		}
	}
	return max(n, 1)
}

// namesShown is the number of names that a text has of each bar.
const namesShown = 3

// Text says what keeps the devices from the request. The numbers add up to that of all devices of its class.
func (r *Request) Text() string {
	name, asks := strings.TrimPrefix(r.Claim+"/"+r.Name, "/"), "all"
	if r.Alternative != "" {
		name += "/" + r.Alternative
	}
	if r.Count > 0 {
		asks = fmt.Sprint(r.Count)
	}
	if len(r.Devices) == 0 {
		return fmt.Sprintf("%s requests %s of class %s, of which the node has no device", name, asks, r.Class)
	}
	text := fmt.Sprintf("%s requests %s of %d devices of class %s:", name, asks, len(r.Devices), r.Class)
	for bar := PoolBroken; int(bar) < len(barTexts); bar++ {
		var causes []string
		count := 0
		for _, d := range r.Devices {
			if d.Bar == bar {
				causes, count = append(causes, d.By), count+1
			}
		}
		if count == 0 {
			continue
		}
		slices.Sort(causes)
		causes = slices.Compact(causes)
		more := ""
		if len(causes) > namesShown {
			more = fmt.Sprintf(" and %d more", len(causes)-namesShown)
			causes = causes[:namesShown]
		}
		text += fmt.Sprintf(" %d %s%s%s,", count, barTexts[bar], strings.Join(causes, ", "), more)
	}
	return fmt.Sprintf("%s %d %s", text, r.free(), barTexts[Free])
}

// Unmet says what keeps devices from requests that a node does not satisfy, a clause each, and how many devices the
// first one needs that lacks some, and could get; 0 and 0 where each could be satisfied alone. constraints are those of
// the claims.
func Unmet(requests []Request, constraints []string) (text string, needed, free int64) {
	var clauses []string
	short := func(r *Request) bool { return r.free() < r.needed() }
	for i := range requests {
		r := &requests[i]
		clauses = append(clauses, r.Text())
		alternative := func(o Request) bool { return o.Claim == r.Claim && o.Name == r.Name && !short(&o) }
		if needed == 0 && short(r) && !slices.ContainsFunc(requests, alternative) {
			needed, free = r.needed(), r.free()
		}
	}
	if needed == 0 {
		what := "all requests together"
		if len(constraints) > 0 {
			what = strings.Join(constraints, " and ")
		}
		clauses = append(clauses, "no set of free devices satisfies "+what)
	}
	return strings.Join(clauses, "; "), needed, free
}
