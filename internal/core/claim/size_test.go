package claim

import (
	"math"
	"testing"
)

func TestTheLeastDevicesOfRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests [][]int64
		want     int64
	}{
		"none":                         {nil, 0},
		"the sum of all":               {[][]int64{{16}, {17}}, 33},
		"the smallest alternative":     {[][]int64{{1 << 62, 2, 3}, {30}}, 32},
		"what takes all needs none":    {[][]int64{{0}, {4}}, 4},
		"what takes all, or a number":  {[][]int64{{7, 0}, {4}}, 4},
		"a negative number":            {[][]int64{{-5}, {4}}, 4},
		"no alternative":               {[][]int64{{}, {4}}, 4},
		"a sum that overflows":         {[][]int64{{1 << 62}, {1 << 62}}, math.MaxInt64},
		"the most, and one more":       {[][]int64{{math.MaxInt64}, {1}}, math.MaxInt64},
		"as much as there is, exactly": {[][]int64{{math.MaxInt64 - 1}, {1}}, math.MaxInt64},
	} {
		if got := Least(c.requests); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
