package evict

import "time"

// Detector decides since when a node counts as overloaded: after more than Abnormal consecutive samples above its
// threshold, until more than Normal consecutive ones are below it.
type Detector struct {
	Abnormal, Normal int
	Expiry           time.Duration // a sample of a measurement that was older does not count
}

// Sample is one look at the load of a node.
type Sample struct {
	At, Measured time.Time
	Over         bool // the load was above the threshold
}

// IsAbnormal reports whether a node counts as overloaded after samples, the oldest first.
func (d Detector) IsAbnormal(samples []Sample) (abnormal bool) {
	n := 0 // consecutive samples that contradict the result so far
	for _, s := range samples {
		if s.At.Sub(s.Measured) > d.Expiry {
			continue
		}
		limit := d.Abnormal
		if abnormal {
			limit = d.Normal
		}
		if n++; s.Over == abnormal {
			n = 0
		}
		if n > limit {
			abnormal, n = !abnormal, 0
		}
	}
	return abnormal
}
