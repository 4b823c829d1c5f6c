package evict

import (
	"errors"
	"slices"
	"time"
)

// ParseIntOrPercent reads a number or a percentage.
func ParseIntOrPercent(text string) (IntOrPercent, error) {
	var v validation
	i := v.intOrPercent("n", text)
	return i, errors.Join(v...)
}

// NextToken returns when a token bucket has a token after evictions.
func NextToken(evictions []time.Time, interval time.Duration, burst int) time.Time {
	return nextToken(slices.Values(evictions), interval, burst)
}
