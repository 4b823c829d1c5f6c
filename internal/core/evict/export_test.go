package evict

import (
	"slices"
	"time"
)

// NextToken returns when a token bucket has a token after evictions.
func NextToken(evictions []time.Time, interval time.Duration, burst int) time.Time {
	return nextToken(slices.Values(evictions), interval, burst)
}
