package window

import "time"

// slots is into how many parts a Mean divides its time.
const slots = 30

// Mean is the average of an amount over one time, in less memory than a Series: what is older than that leaves in parts
// of 1/30 of the time. Its zero value is ready for use.
type Mean struct {
	span  time.Duration
	last  time.Time
	slots [slots]slot
}

// slot is the samples of one part of the time.
type slot struct {
	part, sum int64 // part counts from the Unix epoch
	n         int64
}

// Add takes a sample. Another span than before, or a time before the last one, makes the Mean forget the others.
func (m *Mean) Add(span time.Duration, at time.Time, value int64) {
	if span != m.span || at.Before(m.last) {
		*m = Mean{span: span}
	}
	m.last = at
	part := m.part(at)
	s := &m.slots[part%slots]
	if s.part != part {
		*s = slot{part: part}
	}
	s.sum += value
	s.n++
}

// At returns the average at a time; false without samples.
func (m *Mean) At(now time.Time) (int64, bool) {
	if m.span <= 0 {
		return 0, false
	}
	var sum, n int64
	for part, i := m.part(now), 0; i < slots; i++ {
		if s := &m.slots[i]; s.part > part-slots && s.part <= part {
			sum, n = sum+s.sum, n+s.n
		}
	}
	if n == 0 {
		return 0, false
	}
	return sum / n, true
}

// part returns the number of the part of the span that a time falls in.
func (m *Mean) part(at time.Time) int64 { return at.UnixNano() / max(1, int64(m.span)/slots) }
