// Package window summarizes samples of an amount: averages and percentiles over the last 5, 10 and 30 minutes, in
// bounded memory, and rates of counters.
//
//	Counter ─► rate ─┬─► Series: average, p50, p90, p95, p99 of each window
//	                 └─► Mean: the average of one window, for what there is much of
//
// A Series keeps the samples of its longest window in a ring, and for each window how many of them are in each bucket
// of a histogram. A sample enters all windows when it comes, and leaves each of them when it is too old for it, so a
// sample costs the same however many there are. Buckets are 1/20 of their lower bound wide, and never less than a unit.
// A percentile is the upper bound of the bucket that the exact one is in: it is never below the exact one, and above it
// by at most 5 % or one unit. Averages are exact.
//
// A time without samples is not filled in: it counts for nothing. A sample that is older than the last one means that
// the clock went back: it is not known how old the others are, so they are forgotten.
package window
