package load

import "time"

// Condition is how long a node must be high before pods leave it.
type Condition struct {
	// Abnormal and Normal are how many reports in a row begin and end an anomaly with one more.
	Abnormal, Normal int
	// Timeout ends an anomaly that began so long ago.
	Timeout time.Duration
}

// Detector finds nodes that are high for long enough, by keys. It is kept from round to round. The zero value has seen
// no node. Not safe for concurrent use.
type Detector struct{ nodes map[string]*streak }

// streak is what was seen of a node.
type streak struct {
	last, seen time.Time // of the last report that counted: when it was made, and when it was marked
	began      time.Time // of the anomaly; zero where there is none
	// abnormal and normal are reports in a row. Invariant: one of them is 0.
	abnormal, normal int
}

// Mark counts a report that was made at a time, once, and returns whether the node is in an anomaly.
func (d *Detector) Mark(key string, c Condition, high bool, made, now time.Time) bool {
	s := d.nodes[key]
	if s == nil {
		if d.nodes == nil {
			d.nodes = map[string]*streak{}
		}
		s = &streak{}
		d.nodes[key] = s
	}
	if !s.began.IsZero() && now.Sub(s.began) >= c.Timeout {
		*s = streak{last: s.last, seen: s.seen}
	}
	if made.Equal(s.last) {
		return !s.began.IsZero()
	}
	s.last, s.seen = made, now
	if high {
		s.abnormal, s.normal = s.abnormal+1, 0
	} else {
		s.abnormal, s.normal = 0, s.normal+1
	}
	switch {
	case s.abnormal > c.Abnormal && s.began.IsZero():
		s.began = now
	case s.normal > c.Normal:
		s.began = time.Time{}
	}
	return !s.began.IsZero()
}

// Reset counts a node from the start again, from the next report on.
func (d *Detector) Reset(key string) {
	if s := d.nodes[key]; s != nil {
		*s = streak{last: s.last, seen: s.seen}
	}
}

// Forget removes what was seen of nodes that had no new report for so long.
func (d *Detector) Forget(after time.Duration, now time.Time) {
	for key, s := range d.nodes {
		if now.Sub(s.seen) >= after {
			delete(d.nodes, key)
		}
	}
}
