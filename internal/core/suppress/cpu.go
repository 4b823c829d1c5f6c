package suppress

// Use is what a node's CPUs do, in milli-CPU.
type Use struct {
	// Capacity is that of the node.
	Capacity int64
	// NonBE is the use of pods that are not best-effort, and of such applications outside of pods.
	NonBE int64
	// System is the use of the node outside of all pods and applications, Reserved what is reserved for it.
	System, Reserved int64
}

// Limits say how much of a node's CPUs may be in use while best-effort pods get what is left, and what those keep in
// any case, in percent of the capacity.
type Limits struct{ ThresholdPercent, MinPercent int64 }

// Allowed returns how much best-effort pods may use, in milli-CPU. Negative measurements count as 0. The result is at
// least the minimum and never above the capacity.
func (u Use) Allowed(l Limits) int64 {
	capacity := max(u.Capacity, 0)
	left := percentOf(capacity, l.ThresholdPercent)
	for _, taken := range []int64{u.NonBE, max(u.System, u.Reserved)} {
		left = max(left-max(taken, 0), 0)
	}
	return min(max(left, percentOf(capacity, l.MinPercent)), capacity)
}

// percentOf returns a share of an amount; percent outside of 0 to 100 counts as the nearer bound.
func percentOf(amount, percent int64) int64 {
	percent = min(max(percent, 0), 100)
	return amount/100*percent + amount%100*percent/100
}

// Rules of both policies.
const (
	// MinCPUs is the fewest CPUs that best-effort pods keep, if they may use as many at all.
	MinCPUs = 2
	// MinQuota is the smallest quota, in microseconds of a period of 100 ms.
	MinQuota = 2000
	// growthPercent is the largest growth in a step, ignoredPercent the largest growth of a quota that is not made;
	// both of the node.
	growthPercent, ignoredPercent = 10, 1
	// period is that of quotas, in microseconds.
	period = 100_000
)

// Size is how many CPUs a node has, and how many of them best-effort pods may use; Threads is that of a core.
type Size struct{ Usable, Total, Threads int }

// NextCPUs returns the number of CPUs for best-effort pods that have now CPUs. A step of growth is at least a core.
func NextCPUs(now int, allowedMilli int64, s Size) int {
	floor := min(MinCPUs, s.Usable)
	want := max(int(min(max(allowedMilli, 0)/1000, int64(s.Usable))), floor)
	if want > now {
		want = min(want, max(now+max(s.Total*growthPercent/100, s.Threads, 1), floor))
	}
	return want
}

// NextQuota returns the quota for best-effort pods that have the quota now, in microseconds of a period. It shrinks at
// once; a small growth is not made. The first quota, with now 0, is not bounded by a step.
func NextQuota(now, allowedMilli, capacityMilli int64) int64 {
	want := max(allowedMilli*(period/1000), MinQuota)
	node := max(capacityMilli, 0) * (period / 1000)
	switch small := percentOf(node, ignoredPercent); {
	case now <= 0 || want <= now:
		return want
	case want < now+small:
		return now
	}
	return min(want, now+max(percentOf(node, growthPercent), 1))
}
