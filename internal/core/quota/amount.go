package quota

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Dimension is the id of a resource name in one Forest, in order of first appearance. Ids are never given back.
type Dimension int

// Amount is how much of one dimension.
type Amount struct {
	Dimension Dimension
	N         int64
}

// Vector is amounts of distinct dimensions, none of them negative, by name of the dimension.
type Vector []Amount

// Measure is one of the sums that a quota keeps over its pods and the quotas below it.
type Measure int

// What is measured. Request counts every pod that has not ended; above a leaf it is what the children ask for within
// their max. The others are plain sums.
const (
	Request Measure = iota
	Used            // by pods that are reserved or bound
	NonPreemptibleRequest
	NonPreemptibleUsed
	measures
)

// Dimension returns the id of a resource name.
func (f *Forest) Dimension(name string) Dimension {
	d, known := f.dimensions[name]
	if !known {
		d = Dimension(len(f.names))
		f.names = append(f.names, name)
		f.dimensions[name] = d
	}
	return d
}

// NameOf returns the resource name of a dimension.
func (f *Forest) NameOf(d Dimension) string { return f.names[d] }

// Vector translates amounts. Negative ones count as 0.
func (f *Forest) Vector(amounts amount.List) Vector {
	names := make([]string, 0, 8) // of a constant size, so that it is not allocated
	for name := range amounts {
		names = append(names, name)
	}
	slices.Sort(names)
	v := make(Vector, 0, len(names))
	for _, name := range names {
		v = append(v, Amount{f.Dimension(name), max(amounts[name], 0)})
	}
	return v
}

// sum is a total in 128 bits, two's complement: what is added can be taken back exactly, whatever the order, even
// where the amount that it stands for does not fit 63 bits.
type sum struct {
	high int64
	low  uint64
}

// sumOf returns n as a sum of 128 bits.
func sumOf(n int64) sum { return sum{n >> 63, uint64(n)} }

// plus returns s + o. Sums of all pods of a cluster cannot overflow 128 bits.
func (s sum) plus(o sum) sum {
	low, carry := bits.Add64(s.low, o.low, 0)
	return sum{s.high + o.high + int64(carry), low}
}

// minus returns s − o.
func (s sum) minus(o sum) sum {
	low, borrow := bits.Sub64(s.low, o.low, 0)
	return sum{s.high - o.high - int64(borrow), low}
}

// compare is negative if s is less than o.
func (s sum) compare(o sum) int {
	return cmp.Or(cmp.Compare(s.high, o.high), cmp.Compare(s.low, o.low))
}

// amount returns the total within 0 and MaxInt64.
func (s sum) amount() int64 {
	switch {
	case s.high < 0:
		return 0
	case s.high > 0 || s.low > math.MaxInt64:
		return math.MaxInt64
	}
	return int64(s.low)
}

// product returns a·b of unsigned factors as 128 bits; it is below 2¹²⁷ where one factor is an int64.
func product(a, b uint64) sum {
	high, low := bits.Mul64(a, b)
	return sum{int64(high), low}
}

// big returns the sum as a big integer, for exact divisions.
func (s sum) big() *big.Int {
	n := big.NewInt(s.high)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(s.low))
}
