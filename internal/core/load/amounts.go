package load

import "math/bits"

// Resource is what nodes are judged by.
type Resource uint8

// Resources: CPU in milli-CPUs, Memory in bytes.
const (
	CPU Resource = iota
	Memory
	resources
)

// resourceNames has the name of each Resource, by its number.
var resourceNames = [resources]string{"cpu", "memory"}

// String returns the name of the resource in Kubernetes.
func (r Resource) String() string { return resourceNames[r] }

// Resources returns all resources with their names, in a fixed order.
func Resources() []Resource { return []Resource{CPU, Memory} }

// Amounts are milli-CPUs and bytes, each from 0 to Most.
type Amounts [resources]int64

// Most bounds an amount, so that sums of a million of them fit. It is 9 PB, or 9 trillion CPUs.
const Most = 1 << 53

// Percents are a percentage for each resource; 0 is for a resource that is not judged.
type Percents [resources]int64

// IsZero reports whether no resource is judged.
func (p Percents) IsZero() bool { return p == Percents{} }

// Plus returns the sum of amounts.
func (a Amounts) Plus(b Amounts) Amounts {
	for r := range a {
		a[r] += b[r]
	}
	return a
}

// minus returns a − b, which may be negative.
func (a Amounts) minus(b Amounts) Amounts {
	for r := range a {
		a[r] -= b[r]
	}
	return a
}

// most returns the larger amount of each resource.
func (a Amounts) most(b Amounts) Amounts {
	for r := range a {
		a[r] = max(a[r], b[r])
	}
	return a
}

// share returns n·numerator/denominator, rounded down, or half up with half = denominator/2; the largest int64 where
// that does not fit.
func share(n, numerator, denominator, half int64) int64 {
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(numerator))
	low, carry := bits.Add64(low, uint64(half), 0)
	if high += carry; high >= uint64(denominator) {
		return 1<<63 - 1
	}
	quotient, _ := bits.Div64(high, low, uint64(denominator))
	return int64(min(quotient, 1<<63-1))
}
