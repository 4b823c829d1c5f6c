package fragment

import "math/bits"

// Winner returns the index of the largest value, of equal ones that with the smallest name; −1 of none.
func Winner(values []int64, name func(i int) string) int {
	best := -1
	for i, v := range values {
		if best < 0 || v > values[best] || v == values[best] && name(i) < name(best) {
			best = i
		}
	}
	return best
}

// Normalize replaces values by scores from 0 to 100 that keep their order: 100 for the winner, which has the largest
// value, and at most 99 for the others, 0 for all of them when all values are equal. Where winner is −1, all that have
// the largest value get 100.
func Normalize(values []int64, winner int) {
	if len(values) == 0 {
		return
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	width := uint64(high) - uint64(low)
	for i, v := range values {
		switch {
		case i == winner || winner < 0 && v == high:
			values[i] = 100
		case width == 0:
			values[i] = 0
		default:
			above, below := bits.Mul64(99, uint64(v)-uint64(low))
			score, _ := bits.Div64(above, below, width)
			values[i] = int64(score)
		}
	}
}
