package amount

import (
	"maps"
	"math"
	"reflect"
)

// List is amounts by resource name. Whether an absent name differs from a zero is said where a list is kept.
type List map[string]int64

// Add adds amounts to a.
func (a List) Add(more List) {
	for name, n := range more {
		a[name] = Plus(a[name], n)
	}
}

// Take subtracts amounts from a. What a lacks becomes negative.
func (a List) Take(less List) {
	for name, n := range less {
		a[name] = minus(a[name], n)
	}
}

// Holds reports whether each of the amounts asked for is in a. Of a resource that a does not name it has none.
func (a List) Holds(asked List) bool {
	for name, n := range asked {
		if n > a[name] {
			return false
		}
	}
	return true
}

// Pair returns what a has of CPU and memory under these names.
func (a List) Pair(cpu, memory string) Pair { return Pair{a[cpu], a[memory]} }

// Equal reports whether both lists have the same names and amounts; at once for one and the same map.
func (a List) Equal(other List) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(other).Pointer() || maps.Equal(a, other)
}

// Plus is a + b, within the int64s.
func Plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// minus is a − b, within the int64s.
func minus(a, b int64) int64 {
	if b == math.MinInt64 { // its negative is no int64
		return Plus(Plus(a, math.MaxInt64), 1)
	}
	return Plus(a, -b)
}
