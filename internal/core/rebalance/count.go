package rebalance

// Surplus returns how many equal pods should leave each node, so that none of so many places has more than its share,
// rounded up. A node with one pod keeps it.
func Surplus(counts []int, places int) []int {
	total, leaving := 0, make([]int, len(counts))
	for _, n := range counts {
		total += n
	}
	if places < 2 {
		return leaving
	}
	share := max((total+places-1)/places, 1)
	for i, n := range counts {
		leaving[i] = max(n-share, 0)
	}
	return leaving
}

// Spread returns how many pods should leave each domain for a smaller one, with the fewest moves after which no two
// domains differ by more than the skew. Fewer domains than least are left alone: pods cannot go where there is nothing.
func Spread(counts []int, skew, least int) []int {
	leaving := make([]int, len(counts))
	if len(counts) < max(least, 2) || skew < 1 {
		return leaving
	}
	now := append([]int{}, counts...)
	for {
		high, low := 0, 0
		for i, n := range now {
			if n < now[low] {
				low = i
			}
			if n > now[high] {
				high = i
			}
		}
		if now[high]-now[low] <= skew {
			break
		}
		now[high]--
		now[low]++
	}
	for i, n := range now {
		leaving[i] = max(counts[i]-n, 0)
	}
	return leaving
}
