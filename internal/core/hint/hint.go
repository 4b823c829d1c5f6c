package hint

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Hint is one answer of a provider: the NUMA nodes that would serve the request, and whether fewer could not. Mask 0 is
// the kubelet's nil affinity: any nodes.
type Hint struct {
	Mask      topo.NodeSet
	Preferred bool
}

// List is what a provider answers for one resource. nil is "I do not care", an empty list that is not nil is "I
// cannot". A provider without any resource to answer for counts as one nil list.
type List []Hint

// Policy is a Topology Manager policy.
type Policy uint8

// Policies, from the least to the most strict.
const (
	None Policy = iota
	BestEffort
	Restricted
	SingleNUMANode
)

var ( //nolint:gochecknoglobals // lists of words, never written
	policyNames  = []string{"none", "best-effort", "restricted", "single-numa-node"}
	policyLabels = []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}
)

// String returns the kubelet's spelling.
func (p Policy) String() string { return policyNames[p] }

// Label returns the spelling of node labels and pod annotations.
func (p Policy) Label() string { return policyLabels[p] }

// ParsePolicy reads the kubelet's spelling; false for any other word.
func ParsePolicy(s string) (Policy, bool) {
	p := slices.Index(policyNames, s)
	return Policy(max(p, 0)), p >= 0
}

// Answer is what a merge comes to.
type Answer struct {
	Hint     Hint
	Admitted bool
}

// Rule is how one kubelet merges. It is immutable in use and may be shared.
type Rule struct {
	Policy Policy
	// Nodes is the number of NUMA nodes of the machine, at most topo.MaxNodes.
	Nodes int
	// Distances, when it is not nil, are the SLIT distances by dense index: masks of equal size are ranked by their
	// mean over all ordered pairs, a node with itself included (option prefer-closest-numa-nodes). SingleNUMANode
	// ignores it.
	Distances [][]int
}

// spread ranks masks of equal size as the kubelet's mean distance does: it is the sum of which the mean is taken. Both
// order alike, in float64 too, while sums are below 2^52.
func (r *Rule) spread(m topo.NodeSet) int64 {
	if r.Distances == nil || r.Policy == SingleNUMANode {
		return 0
	}
	var sum int64
	for from := m; from != 0; from &= from - 1 {
		row := r.Distances[from.First()]
		for to := m; to != 0; to &= to - 1 {
			sum += int64(row[to.First()])
		}
	}
	return sum
}

// closer reports whether a goes before b, both of one size.
func (r *Rule) closer(a, b topo.NodeSet) bool {
	if sa, sb := r.spread(a), r.spread(b); sa != sb {
		return sa < sb
	}
	return a < b
}

// finish converts the best candidate into the policy's answer; found = false: there is none.
func (r *Rule) finish(best Hint, found bool) Answer {
	all := topo.FirstNodes(r.Nodes)
	if !found {
		best = Hint{Mask: all}
	}
	if r.Policy == SingleNUMANode && best.Mask == all {
		best.Mask = 0
	}
	return Answer{Hint: best, Admitted: best.Preferred || r.Policy == BestEffort}
}
