package hint

// Hint is one answer of a provider: the NUMA nodes that would serve the request, and whether fewer could not. Mask 0 is
// the kubelet's nil affinity: any nodes.
type Hint struct {
	Mask      Mask
	Preferred bool
}

// List is what a provider answers for one resource. nil is "I do not care", an empty list that is not nil is "I cannot".
type List []Hint

// Policy is a Topology Manager policy.
type Policy uint8

// Policies, from loose to tight.
const (
	None Policy = iota
	BestEffort
	Restricted
	SingleNUMANode
)

// String returns the kubelet's spelling.
func (p Policy) String() string {
	return [...]string{"none", "best-effort", "restricted", "single-numa-node"}[p]
}

// ParsePolicy reads the kubelet's spelling; false for any other word.
func ParsePolicy(s string) (Policy, bool) {
	for p := None; p <= SingleNUMANode; p++ {
		if p.String() == s {
			return p, true
		}
	}
	return None, false
}

// Rule is how one kubelet merges.
type Rule struct {
	Policy Policy
	// Nodes is the number of NUMA nodes of the machine, at most MaxNodes.
	Nodes int
	// Distances, when it is not nil, are the SLIT distances by dense index: masks of equal size are ranked by their mean
	// (option prefer-closest-numa-nodes). SingleNUMANode ignores it.
	Distances [][]int
}

// Merge returns the best hint of the lists and whether the policy admits it, exactly as the kubelet's merge does. Under
// None the answer is Hint{Preferred: true} and true.
func (r *Rule) Merge(lists []List) (Hint, bool) { panic("not built") }
