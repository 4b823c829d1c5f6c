package window

import (
	"math/bits"
	"time"
)

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
