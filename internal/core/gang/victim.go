package gang

import (
	"cmp"
	"time"
)

// Victim is what decides which of several pods is evicted. Preemption, the eviction of whole units and the revocation
// of quotas have this one order, and break ties by names of their own.
type Victim struct {
	Priority int32
	Start    time.Time // zero for a pod that has not started: it has done less than any that has
}

// Compare is negative where v is evicted before o: its priority is lower, or it started later. It is 0 between equals.
func (v Victim) Compare(o Victim) int {
	return cmp.Or(cmp.Compare(v.Priority, o.Priority), compareStarts(o.Start, v.Start))
}

// compareStarts is negative where a is earlier than b. Pods that have not started come last.
func compareStarts(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return -a.Compare(b)
	}
	return a.Compare(b)
}
