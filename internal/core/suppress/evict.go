package suppress

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Bounds are two shares in percent: at the first, or beyond it, pods are evicted until the second is reached.
type Bounds struct{ FromPercent, ToPercent int64 }

// Memory that tasks wait for: from pressed on, in hundredths of a percent of the last 10 seconds, pods are evicted
// before the threshold, if pressedPercent of the node's memory is used.
const (
	pressed        int64 = 1000
	pressedPercent int64 = 70
)

// Early returns the bounds that hold while all tasks wait for memory in a part of the last 10 seconds, in hundredths of
// a percent; false where the part is too small to change b.
func (b Bounds) Early(waiting int64) (Bounds, bool) {
	from := max(b.ToPercent, pressedPercent)
	if waiting < pressed || b.FromPercent <= from {
		return b, false
	}
	return Bounds{from, b.ToPercent}, true
}

// Excess returns how much of what is used of a capacity has to go until it is at ToPercent; 0 while it is below
// FromPercent, and where FromPercent is 0 or less.
func Excess(used, capacity int64, b Bounds) int64 {
	if capacity <= 0 || b.FromPercent <= 0 || used < percentOf(capacity, b.FromPercent) {
		return 0
	}
	return max(used-percentOf(capacity, min(b.ToPercent, b.FromPercent)), 0)
}

// Unmet returns how much of what best-effort pods request has to go until what they may use is ToPercent of the rest; 0
// while it is FromPercent of all or more, and where FromPercent is 0 or less. A ToPercent below FromPercent counts as
// that.
func Unmet(requested, allowed int64, b Bounds) int64 {
	allowed = max(allowed, 0)
	if requested <= 0 || b.FromPercent <= 0 || allowed >= percentOf(requested, b.FromPercent) {
		return 0
	}
	to := min(max(b.FromPercent, b.ToPercent), 100)
	return max(requested-(allowed/to*100+allowed%to*100/to), 0)
}

// Short is Unmet while best-effort pods use a share, in percent, of what they may use: pods that want no more lack
// nothing.
func Short(requested, allowed, used, sharePercent int64, b Bounds) int64 {
	if used < percentOf(max(allowed, 0), sharePercent) {
		return 0
	}
	return Unmet(requested, allowed, b)
}

// Pod is a best-effort pod that may be evicted.
type Pod struct {
	UID string
	// EvictionPriority, Priority and SubPriority order pods, in this order: those with lower ones are evicted first.
	EvictionPriority, Priority, SubPriority int32
	// Used and Requested are amounts of the resource that is short.
	Used, Requested int64
	// Frees is what its eviction frees of what is needed: what it uses, or what it requests.
	Frees int64
	// IsLeaving reports that the pod is being deleted: it frees its amount without an eviction.
	IsLeaving bool
}

// Victims returns the pods to evict, in this order, so that an amount is free: no more pods than the order needs, and
// all that free something if they are not enough. Pods that leave count first.
func Victims(pods []Pod, need int64) (victims []Pod) {
	for _, p := range pods {
		if p.IsLeaving {
			need -= max(p.Frees, 0)
		}
	}
	for _, p := range slices.SortedFunc(slices.Values(pods), comparePods) {
		if need <= 0 {
			break
		}
		if !p.IsLeaving && p.Frees > 0 {
			victims = append(victims, p)
			need -= p.Frees
		}
	}
	return victims
}

// comparePods orders pods by priorities, then by how much more they use than they request.
func comparePods(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.SubPriority, b.SubPriority), compareRatio(b, a),
		cmp.Compare(b.Used, a.Used), cmp.Compare(a.UID, b.UID))
}

// compareRatio compares use over request. A pod that uses something and requests nothing is above all others.
func compareRatio(a, b Pod) int {
	times := func(a, b Pod) (high, low uint64) {
		requested := max(b.Requested, 0)
		if b.Used <= 0 {
			requested = max(requested, 1) // 0 of nothing is 0
		}
		return bits.Mul64(uint64(max(a.Used, 0)), uint64(requested))
	}
	highA, lowA := times(a, b)
	highB, lowB := times(b, a)
	return cmp.Or(cmp.Compare(highA, highB), cmp.Compare(lowA, lowB))
}

// gap is the longest time between two measurements that are taken as one series.
const gap = 10 * time.Second

// Lasting is how long something has been so, by a series of measurements. The zero value has seen none.
type Lasting struct{ since, last time.Time }

// For takes a measurement and reports whether it has been so for a time. A clock that went back, and a gap in the
// measurements, begin the time anew.
func (l *Lasting) For(window time.Duration, now time.Time, isSo bool) bool {
	since, passed := l.since, now.Sub(l.last)
	*l = Lasting{since: now, last: now}
	if !isSo {
		l.since = time.Time{}
		return false
	}
	if !since.IsZero() && passed >= 0 && passed <= gap {
		l.since = since
	}
	return now.Sub(l.since) >= window
}

// part is what best-effort pods may use of a NUMA node: of its CPUs that LSR pods have, or of the others.
type part struct {
	cores [][]int // those that have no place yet
	total int     // CPUs of all cores
	taken int     // CPUs of those that have a place
}

// Order returns the CPUs of pool in the order in which best-effort pods get them, each entry those of one core. lsr are
// CPUs that LSR pods have. The pool contains no CPU of an LSE pod.
func Order(m *topo.Machine, pool, lsr cpuset.Set) [][]int {
	byCore := map[topo.Core][]int{}
	for _, c := range pool.Slice() {
		byCore[m.CoreOf(topo.CPU(c))] = append(byCore[m.CoreOf(topo.CPU(c))], c)
	}
	byKey := map[[2]int]*part{}
	for _, core := range slices.Sorted(maps.Keys(byCore)) {
		cpus := byCore[core]
		key := [2]int{int(m.NUMAOf(topo.CPU(cpus[0]))), 0}
		if slices.ContainsFunc(cpus, lsr.Has) {
			key[1] = 1
		}
		if byKey[key] == nil {
			byKey[key] = &part{}
		}
		p := byKey[key]
		p.cores, p.total = append(p.cores, cpus), p.total+len(cpus)
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	order := make([][]int, 0, len(byCore))
	for all, placed := pool.Len(), 0; placed < all; {
		var next *part
		most := 0
		for _, key := range keys {
			p := byKey[key]
			if lacks := p.total*(placed+1) - p.taken*all; lacks > most {
				next, most = p, lacks
			}
		}
		order = append(order, next.cores[0])
		next.taken += len(next.cores[0])
		placed += len(next.cores[0])
		next.cores = next.cores[1:]
	}
	return order
}

// First returns the longest beginning of an order that has no more than n CPUs, and no fewer than MinCPUs as far as the
// order has them.
func First(order [][]int, n int) cpuset.Set {
	var set cpuset.Set
	size := 0
	for _, cpus := range order {
		if size >= MinCPUs && size+len(cpus) > n {
			break
		}
		for _, c := range cpus {
			set.Add(c)
		}
		size += len(cpus)
	}
	return set
}
