package annotation

import "strconv"

// Annotations of a Pod about its eviction, written by users.
const (
	// EvictionCost is an int32: pods with a lower one are moved first. 2147483647: the pod is never moved. Default: 0.
	EvictionCost = "scheduling.koordinator.sh/eviction-cost"
	// Evictable lets the descheduler move a pod that it would leave: a bare pod, one with local storage, a high
	// priority or labels that are not selected. Its presence counts, whatever its value. No limit is lifted.
	Evictable = "descheduler.alpha.kubernetes.io/evict"
	// EvictionPolicyKey is an annotation that holds an EvictionPolicy.
	EvictionPolicyKey = "koordinator.sh/eviction-policy"
)

// EvictionPolicy has the features for which agents may evict a best-effort pod: BEMemoryEvict, BECPUEvict. A pod
// without it may be evicted for each of them, and one with a value that cannot be read for none.
type EvictionPolicy []string

// String returns the value of the annotation.
func (p EvictionPolicy) String() string { return encode(p) }

// ParseEvictionPolicy reads an EvictionPolicy.
func ParseEvictionPolicy(text string) (EvictionPolicy, []Warning, error) {
	return read[EvictionPolicy](text, nil)
}

// ParseEvictionCost reads an EvictionCost, which has neither a plus sign nor leading zeros.
func ParseEvictionCost(text string) (int32, []Warning, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, nil, invalid(text, "must be a whole number that fits int32, without plus sign and leading zeros")
	}
	return int32(n), nil, nil
}
