package device

import (
	"math"
	"math/bits"
)

// bound is above the ring of a set: every device has two neighbours in it.
func (c *Class) bound(mask uint64) int64 {
	least := int32(math.MaxInt32)
	for m := mask; m != 0; m &= m - 1 {
		i, first, second := bits.TrailingZeros64(m), int32(0), int32(0)
		for o := mask &^ (m & -m); o != 0; o &= o - 1 {
			switch w := c.w[i*c.n+bits.TrailingZeros64(o)]; {
			case w > first:
				first, second = w, first
			case w > second:
				second = w
			}
		}
		if bits.OnesCount64(mask) == 2 {
			second = first
		}
		least = min(least, second)
	}
	return int64(least)
}

// ringOf is the weakest link of the best ring through a set, as Class.rings finds it, over numbers of twins in place of
// sets. A set with too many of them has its weakest link of all. cost counts steps.
func (c *Class) ringOf(mask uint64, groups []uint64) (ring int64, cost int) {
	bound, weakest := c.bound(mask), c.weakest(mask)
	if bound == weakest {
		return bound, bits.OnesCount64(mask)
	}
	var first, count, stride []int
	total := 1
	for _, g := range groups {
		if g &= mask; g != 0 && total <= mostPaths {
			first, count = append(first, bits.TrailingZeros64(g)), append(count, bits.OnesCount64(g))
			stride = append(stride, total)
			total *= bits.OnesCount64(g) + 1
		}
	}
	if total > mostPaths {
		return weakest, bits.OnesCount64(mask)
	}
	n := len(first)
	link := func(a, b int) int32 {
		if a != b {
			return c.w[first[a]*c.n+first[b]]
		}
		for _, g := range groups { // between two twins
			if g &= mask; g>>first[a]&1 != 0 && g&(g-1) != 0 {
				return c.w[first[a]*c.n+bits.TrailingZeros64(g&^(1<<first[a]))]
			}
		}
		return 0
	}
	between := make([]int32, n*n)
	for i := range between {
		between[i] = link(i/n, i%n)
	}
	path := make([]int32, total*n)
	path[stride[0]*n] = math.MaxInt32
	for at := stride[0]; at < total; at++ {
		for end := range n {
			so := path[at*n+end]
			if so == 0 {
				continue
			}
			for next := range n {
				if at/stride[next]%(count[next]+1) < count[next] {
					to := (at+stride[next])*n + next
					path[to] = max(path[to], min(so, between[end*n+next]))
				}
			}
		}
	}
	for end := range n {
		ring = max(ring, int64(min(path[(total-1)*n+end], between[end*n])))
	}
	return ring, total * n * n
}

func (c *Class) weakest(mask uint64) int64 {
	least := int64(math.MaxInt64)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		for o := m & (m - 1); o != 0; o &= o - 1 {
			least = min(least, int64(c.w[i*c.n+bits.TrailingZeros64(o)]))
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
