package place

import (
	"math/bits"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Usage is the node's load as the scheduler accounts it, r included.
type Usage struct {
	MilliCPU, AllocatableMilliCPU int64
	Memory, AllocatableMemory     int64
}

// Scoring is the node-level strategy of the plugin.
type Scoring uint8

// Scorings.
const (
	ScoreLeastAllocated Scoring = iota
	ScoreMostAllocated
)

// Score ranks a node that Fits: 0–100, fewer NUMA nodes first, then the strategy. A node that honours the pod's
// preference only by breaking it (SpreadByPCPUs on FullPCPUsOnly) scores 0. It allocates nothing.
//
// One NUMA node scores 50–100, two 25–49, three 12–24 and so on: each number of NUMA nodes has a range of its own, and
// the strategy ranks inside it: the one that the node's label numa-allocate-strategy names, else s.
func Score(v *ledger.View, r *Request, u Usage, s Scoring) int64 {
	r = r.On(v.Facts())
	span := 1
	if r.CPUs > 0 {
		o, reason := judgeCPUs(v, r)
		if o.Broken || !reason.OK() {
			return 0
		}
		span = o.needed(v.Summary())
	} else if c, confined := confine(v, r); confined {
		span = max(bits.OnesCount64(uint64(c.choose())), 1)
	}
	low, high := int64(100)>>min(span, 62), int64(100)
	if span > 1 {
		high = max(int64(100)>>min(span-1, 62)-1, 0)
	}
	return max(low+u.rank(scoringOf(v.Facts(), s))*(high-low)/100, 1)
}

// scoringOf is the node's own strategy where its label says one that ranks nodes, else s.
func scoringOf(f *ledger.Facts, s Scoring) Scoring {
	switch {
	case f.StrategyByLabel && f.Strategy == cpualloc.MostAllocated:
		return ScoreMostAllocated
	case f.StrategyByLabel && f.Strategy == cpualloc.LeastAllocated:
		return ScoreLeastAllocated
	}
	return s
}

// rank is the mean of CPU and memory, 0–100.
func (u Usage) rank(s Scoring) int64 {
	return (share(u.MilliCPU, u.AllocatableMilliCPU, s) + share(u.Memory, u.AllocatableMemory, s)) / 2
}

// share is the used part in percent for ScoreMostAllocated, the unused for ScoreLeastAllocated; 0 of nothing.
func share(used, all int64, s Scoring) int64 {
	if all <= 0 {
		return 0
	}
	used = min(max(used, 0), all)
	if s == ScoreLeastAllocated {
		used = all - used
	}
	return 100 * used / all
}
