package window

import (
	"math/bits"
	"slices"
	"time"
)

// Windows are the times that a Series summarizes, ascending.
func Windows() []time.Duration {
	return []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute}
}

const (
	windows = 3
	// buckets is enough for 5·10^11 units. Larger samples count as that much.
	buckets = 512
	// maxSamples bounds the ring: a sample a second for the longest window. Of more, the oldest are forgotten early.
	maxSamples = 1801
)

// Series is the samples of one amount. Its zero value is not usable.
type Series struct {
	unit    int64
	bounds  []int64 // in units, ascending; shared by all
	samples []sample
	first   int // position of the oldest sample in the ring
	n       int // number of samples in the ring
	windows [windows]window
}

// sample is an amount at a time.
type sample struct {
	at     time.Time
	value  int64
	bucket uint16
}

// window is the last samples of a Series. Invariant: counts and sum are those of the n newest samples of the ring.
type window struct {
	span   time.Duration
	n      int
	sum    int64
	counts [buckets]uint16
}

// Stats summarize the samples of a window.
type Stats struct {
	Samples                 int
	Avg, P50, P90, P95, P99 int64
}

// Buckets are the bounds of the histograms of Series, which share them.
type Buckets struct{ bounds []int64 }

// NewBuckets computes the bounds.
func NewBuckets() Buckets {
	bounds := make([]int64, buckets)
	for i := 1; i < buckets; i++ {
		bounds[i] = bounds[i-1] + max(1, bounds[i-1]/20)
	}
	return Buckets{bounds}
}

// Series returns a Series without samples. Amounts below unit count as one: it must be positive.
func (b Buckets) Series(unit int64) *Series {
	s := &Series{unit: unit, bounds: b.bounds}
	for i, span := range Windows() {
		s.windows[i].span = span
	}
	return s
}

// Add takes a sample, of 0 or more. A second one of the same time is ignored; one that is older than the last one makes
// the Series forget the others.
func (s *Series) Add(at time.Time, value int64) {
	if s.n > 0 {
		last := s.at(s.n - 1).at
		if at.Before(last) {
			s.forget()
		} else if at.Equal(last) {
			return
		}
	}
	value = max(0, value)
	units := value/s.unit + min(1, value%s.unit)
	i, _ := slices.BinarySearch(s.bounds, units)
	added := sample{at, value, uint16(min(i, buckets-1))}
	s.drop(at)
	if s.n == maxSamples {
		s.dropOldest()
	}
	s.push(added)
	for i := range s.windows {
		w := &s.windows[i]
		w.n++
		w.sum += value
		w.counts[added.bucket]++
	}
}

// Over summarizes the window of a span, one of Windows, that ends at now; false when it has no samples.
func (s *Series) Over(span time.Duration, now time.Time) (Stats, bool) {
	s.drop(now)
	for i := range s.windows {
		if w := &s.windows[i]; w.span == span && w.n > 0 {
			return Stats{
				Samples: w.n, Avg: w.sum / int64(w.n),
				P50: s.percentile(w, 50), P90: s.percentile(w, 90), P95: s.percentile(w, 95), P99: s.percentile(w, 99),
			}, true
		}
	}
	return Stats{}, false
}

// percentile is the upper bound of the bucket of the smallest sample that percent of all are not above.
func (s *Series) percentile(w *window, percent int) int64 {
	rank := (w.n*percent + 99) / 100
	for i, count := range w.counts {
		if rank -= int(count); rank <= 0 {
			return s.bounds[i] * s.unit
		}
	}
	return 0 // the counts of a window with samples add up to their number
}

// drop removes from each window what is too old at now, and from the ring what is in no window.
func (s *Series) drop(now time.Time) {
	for i := range s.windows {
		w := &s.windows[i]
		for w.n > 0 && now.Sub(s.at(s.n-w.n).at) >= w.span {
			w.remove(s.at(s.n - w.n))
		}
	}
	for s.n > s.windows[windows-1].n {
		s.first, s.n = (s.first+1)%len(s.samples), s.n-1
	}
}

// dropOldest removes the oldest sample from all windows that have it, and from the ring.
func (s *Series) dropOldest() {
	for i := range s.windows {
		if w := &s.windows[i]; w.n == s.n {
			w.remove(s.at(0))
		}
	}
	s.first, s.n = (s.first+1)%len(s.samples), s.n-1
}

// remove takes a sample out of the counts.
func (w *window) remove(old *sample) {
	w.n--
	w.sum -= old.value
	w.counts[old.bucket]--
}

// forget drops all samples.
func (s *Series) forget() {
	s.first, s.n = 0, 0
	for i := range s.windows {
		s.windows[i] = window{span: s.windows[i].span}
	}
}

// at returns the ith sample of the ring, the oldest one for 0.
func (s *Series) at(i int) *sample { return &s.samples[(s.first+i)%len(s.samples)] }

// push appends to the ring, which doubles until it can have all samples.
func (s *Series) push(added sample) {
	if s.n == len(s.samples) {
		grown := make([]sample, min(max(16, 2*s.n), maxSamples))
		for i := range s.n {
			grown[i] = *s.at(i)
		}
		s.samples, s.first = grown, 0
	}
	s.n++
	*s.at(s.n - 1) = added
}

// Counter makes rates of a counter of nanoseconds of CPU time. Its zero value is ready for use.
type Counter struct {
	at    time.Time
	value int64
	known bool
}

// Advance takes the counter's value at a time, and returns how many thousandths of a CPU were used since the last one;
// false for the first one, when no time has passed, and when the clock or the counter went back: a counter does when it
// is another one. No machine has a rate above 2^40: false too.
func (c *Counter) Advance(at time.Time, nanoseconds int64) (milliCPU int64, ok bool) {
	passed, used := int64(at.Sub(c.at)), nanoseconds-c.value
	ok = c.known && passed > 0 && used >= 0 && c.value >= 0
	*c = Counter{at, nanoseconds, true}
	if !ok {
		return 0, false
	}
	high, low := bits.Mul64(uint64(used), 1000)
	if high >= uint64(passed) {
		return 0, false // the quotient has more than 64 bits
	}
	milli, _ := bits.Div64(high, low, uint64(passed))
	return int64(milli), milli <= 1<<40
}

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
