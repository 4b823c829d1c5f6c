package suppress

import (
	"cmp"
	"slices"
	"strings"
)

// Pod is a best-effort pod as a candidate for eviction.
type Pod struct {
	// ID identifies the pod.
	ID string
	// EvictionPriority is that of the user: pods with a lower one are evicted first. Priority is the pod's, SubPriority
	// that inside of its class.
	EvictionPriority, Priority, SubPriority int64
	// Request and Use are of the resource that is short, in its unit. Negative amounts count as 0.
	Request, Use int64
	// Evicting reports that the pod is being evicted, or ends: it will release its amounts without another eviction.
	Evicting bool
	// Kept reports that the pod must not be evicted: its owner forbids it, or it is one of the node itself.
	Kept bool
}

// over compares the use of two pods over their requests without a division: that of a pod without a request is
// infinite unless it uses nothing.
func over(a, b Pod) int {
	use, request := func(p Pod) float64 { return float64(max(p.Use, 0)) }, func(p Pod) float64 {
		return float64(max(p.Request, 0))
	}
	if left, right := use(a)*request(b), use(b)*request(a); left != right {
		return cmp.Compare(left, right)
	}
	return cmp.Compare(use(a), use(b))
}

// Victims returns pods, in the order in which they are to be evicted, that release need, or all that there are if they
// release less. What a pod releases is its amount by releases. Pods that are being evicted release theirs first; they
// are not among the victims. Pods with a lower eviction priority go first, then those with a lower priority, a lower
// sub-priority, and a larger use over their request.
func Victims(pods []Pod, need int64, releases func(Pod) int64) []Pod {
	var candidates []Pod
	for _, p := range pods {
		switch {
		case p.Evicting:
			need -= max(releases(p), 0)
		case !p.Kept && releases(p) > 0:
			candidates = append(candidates, p)
		}
	}
	slices.SortFunc(candidates, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.SubPriority, b.SubPriority), over(b, a), strings.Compare(a.ID, b.ID))
	})
	for i, p := range candidates {
		if need <= 0 {
			return candidates[:i]
		}
		need -= releases(p)
	}
	if need > 0 && len(candidates) == 0 {
		return nil
	}
	return candidates
}

// Memory is the memory of a node, in bytes, and when best-effort pods are evicted for it, in percent of the capacity.
type Memory struct {
	Capacity, Used                 int64
	ThresholdPercent, LowerPercent int64
}

// Release returns how many bytes are to be released: 0 below the threshold, else what is used above the lower percent.
func (m Memory) Release() int64 {
	if m.Capacity <= 0 || m.Used < percentOf(m.Capacity, m.ThresholdPercent) {
		return 0
	}
	return max(min(m.Used, m.Capacity)-percentOf(m.Capacity, min(m.LowerPercent, m.ThresholdPercent)), 0)
}

// Satisfaction is how far best-effort pods get the CPUs that they request, in milli-CPU, over a time and now.
type Satisfaction struct {
	// Limit is what they may use, Request what they request and Use what they use.
	Limit, Request, Use int64
}

// Release returns how much request is to be evicted, in milli-CPU: 0 unless pods may use less than the lower percent of
// their requests, and use at least busyPercent of that; else what they request beyond upper percent.
func (s Satisfaction) Release(lowerPercent, upperPercent, busyPercent int64) int64 {
	if s.Request <= 0 || s.Limit <= 0 || s.Limit >= percentOf(s.Request, lowerPercent) ||
		s.Use < percentOf(s.Limit, busyPercent) {
		return 0
	}
	return max(percentOf(s.Request, upperPercent)-s.Limit, 0)
}
