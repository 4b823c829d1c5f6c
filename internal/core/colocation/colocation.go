package colocation

import (
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Policy says with what a high pod counts.
type Policy uint8

// Policies. Use and MaxUseRequest are those that Koordinator calls usage and maxUsageRequest.
const (
	Use Policy = iota
	Request
	MaxUseRequest
)

// Rule is how one resource is reclaimed. Percentages are 0 to 100, ReclaimPercent is 0 to 200.
type Rule struct {
	Policy         Policy
	ReclaimPercent int64 // of the capacity that all pods together may use, as Policy counts them
	BatchPercent   int64 // of the capacity that batch pods have at most
	MidPercent     int64 // of the allocatable amount that mid pods have at most
	StaticPercent  int64 // of the capacity that mid pods have under Strategy.MidStatic
}

// Pod is what counts of a pod.
type Pod struct {
	Class    qos.Class
	Band     qos.Band
	Request  amount.Pair // zero if Gone
	Use      amount.Pair // zero unless Reported
	Reported bool        // The report has a row of the pod.
	Gone     bool        // The report alone has the pod.
	// Started says that the pod ran when the report was made. What it uses without a row is in the use of the node.
	Started bool
}

// High reports whether the pod's resources are not those of batch pods.
func (p *Pod) High() bool { return p.Band != qos.Batch && p.Band != qos.Free }

// Node is a node at the time of a report.
type Node struct {
	Capacity, Allocatable amount.Pair
	Reserved              amount.Pair // the greater of what the kubelet and the node's annotation keep for the system
	Use                   amount.Pair // of everything, over the time of the report
	// System is the use of neither pods nor applications, if the report HasSystem. What Use has besides rows and
	// applications is that of the system too, except where a pod has ended or begun within the time of the report.
	System               amount.Pair
	HasSystem            bool
	HostUse, HighHostUse amount.Pair // of applications outside of pods: all, and those that are neither batch nor free
	ProdReclaimable      amount.Pair // what prod pods are predicted not to use
	ThirdParty           amount.Pair // what other schedulers have given away of what batch pods may have
	Pods                 []Pod
}

// Account is how one resource of a node was divided.
type Account struct {
	Capacity, Margin int64
	Reserved, System int64 // the System uses this, applications of the host included
	High             int64 // what high pods count
	Batch, Mid       int64
	// Bound is the capacity less what the system and high pods use: batch pods never have more.
	Bound int64
}

// Accounts is an Account of each Resource.
type Accounts [amount.Resources]Account

// Compute divides the node.
func (s *Strategy) Compute(n *Node) (accounts Accounts) {
	for r := range amount.Resources {
		accounts[r] = s.divide(n, r)
	}
	return accounts
}

// divide computes what one resource of a node leaves to batch pods.
func (s *Strategy) divide(n *Node, r amount.Resource) Account {
	rule := s.Rules[r]
	a := Account{Capacity: n.Capacity[r], Reserved: n.Reserved[r]}
	a.Margin = a.Capacity - percentOf(a.Capacity, rule.ReclaimPercent)
	var used, rows, prodRequests int64 // rows: of all pods
	unattributed := false
	for i := range n.Pods {
		p := &n.Pods[i]
		rows += p.Use[r]
		if !p.High() {
			continue
		}
		unattributed = unattributed || p.Started && !p.Reported
		a.High += rule.counts(p, r)
		used += p.Use[r]
		if p.Band != qos.Mid {
			prodRequests += p.Request[r]
		}
	}
	use, rest := n.Use[r], max(n.Use[r]-rows-n.HostUse[r], 0)
	switch {
	case !n.HasSystem:
	case unattributed: // what such a pod uses is in the rest
		rest = max(rest, n.System[r])
	default:
		rest, use = n.System[r], n.System[r]+rows+n.HostUse[r]
	}
	a.System = rest + n.HighHostUse[r]
	apart := max(a.System, a.Reserved)
	switch {
	case rule.Policy == Request:
		apart = a.Reserved
	case unattributed:
		apart = a.System + a.Reserved
	}
	a.Bound = max(a.Capacity-a.System-used, 0)
	a.Batch = max(min(a.Capacity-a.Margin-apart-a.High, percentOf(a.Capacity, rule.BatchPercent), a.Bound)-
		n.ThirdParty[r], 0)
	if s.MidStatic {
		a.Mid = percentOf(a.Capacity, rule.StaticPercent)
	} else {
		unallocated := max(a.Capacity-max(a.System, a.Reserved)-prodRequests, 0)
		a.Mid = min(n.ProdReclaimable[r], a.Capacity-use) + percentOf(unallocated, s.MidUnallocatedPercent)
	}
	a.Mid = max(min(a.Mid, percentOf(n.Allocatable[r], rule.MidPercent)), 0)
	return a
}

// counts returns what a high pod counts of a resource.
func (rule Rule) counts(p *Pod, r amount.Resource) int64 {
	switch {
	case r == amount.CPU && p.Class == qos.LSE && !p.Gone:
		return p.Request[r]
	case !p.Reported, rule.Policy == Request && !p.Gone:
		return p.Request[r]
	case rule.Policy == MaxUseRequest:
		return max(p.Request[r], p.Use[r])
	}
	return p.Use[r]
}

// percentOf returns a percentage of an amount, rounded down.
func percentOf(n, percent int64) int64 { return amount.Part(n, percent, 100, 0) }

// marginPercent is added to the peak of what prod pods used.
const marginPercent = 10

// Predict returns what prod pods requested and are predicted not to use: their requests less a peak of what they used
// together and a margin.
func Predict(requests, peak amount.Pair) (rest amount.Pair) {
	for r := range rest {
		rest[r] = max(requests[r]-peak[r]-percentOf(peak[r], marginPercent), 0)
	}
	return rest
}

// Zone is a NUMA node: what batch pods could have of it if nothing else ran, and what is used of it by all.
type Zone struct{ Capacity, Use amount.Pair }

// Spread divides what batch pods are granted of a node over its NUMA nodes, in proportion to what others leave there.
// batchUse is what batch pods use of the node; they run on all NUMA nodes alike. No NUMA node gets more than others
// leave, so that the parts may be less together than what is granted.
func Spread(granted, batchUse amount.Pair, zones []Zone) []amount.Pair {
	parts := make([]amount.Pair, len(zones))
	for r := range amount.Resources {
		var capacity, left int64
		for i := range zones {
			capacity += zones[i].Capacity[r]
		}
		for i, z := range zones {
			others := max(z.Use[r]-amount.Part(batchUse[r], z.Capacity[r], capacity, 0), 0)
			parts[i][r] = max(z.Capacity[r]-others, 0)
			left += parts[i][r]
		}
		// Each zone gets what its room is of the room that is left, of what is left to grant: the sum is exact.
		for i, rest := 0, min(max(granted[r], 0), left); i < len(parts); i++ {
			room := parts[i][r]
			parts[i][r] = amount.Part(rest, room, left, 0)
			rest, left = rest-parts[i][r], left-room
		}
	}
	return parts
}
