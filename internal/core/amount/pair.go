package amount

import "math/bits"

// Resource is one of the two resources of a Pair.
type Resource uint8

// Resources: CPU in milli-CPUs, Memory in bytes.
const (
	CPU Resource = iota
	Memory
	Resources // how many there are
)

// Both returns CPU and Memory.
func Both() []Resource { return []Resource{CPU, Memory} }

// String returns the name of the resource in Kubernetes.
func (r Resource) String() string { return [Resources]string{"cpu", "memory"}[r] }

// Pair is an amount of CPU and one of memory.
type Pair [Resources]int64

// Plus returns p + q.
func (p Pair) Plus(q Pair) Pair {
	for r := range p {
		p[r] = Plus(p[r], q[r])
	}
	return p
}

// Without returns p − q, 0 where q is more.
func (p Pair) Without(q Pair) Pair {
	for r := range p {
		p[r] = max(minus(p[r], q[r]), 0)
	}
	return p
}

// Larger returns the larger amount of each resource.
func (p Pair) Larger(q Pair) Pair {
	for r := range p {
		p[r] = max(p[r], q[r])
	}
	return p
}

// List returns the amounts under these names.
func (p Pair) List(cpu, memory string) List { return List{cpu: p[CPU], memory: p[Memory]} }

// Part returns n·part/whole, rounded down, or half up with half = whole/2; the largest int64 where that does not fit.
// Negative factors count as 0, and so does everything of a whole that is not positive.
func Part(n, part, whole, half int64) int64 {
	if whole <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(max(part, 0)))
	low, carry := bits.Add64(low, uint64(half), 0)
	if high += carry; high >= uint64(whole) {
		return 1<<63 - 1
	}
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(min(quotient, 1<<63-1))
}
