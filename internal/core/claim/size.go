package claim

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// MostDevices is how many devices an allocation can have (the API's AllocationResultsMaxSize).
const MostDevices = 32

// Least returns how many devices some requests need at least; math.MaxInt64 for more than that. Each request has the
// number of devices of each of its alternatives, of which the smallest counts; 0 for one that takes what there is.
func Least(requests [][]int64) (sum int64) {
	for _, alternatives := range requests {
		least := int64(0)
		if len(alternatives) > 0 {
			least = max(slices.Min(alternatives), 0)
		}
		sum = amount.Plus(sum, least)
	}
	return sum
}
