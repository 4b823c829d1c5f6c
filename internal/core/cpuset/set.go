package cpuset

import (
	"iter"
	"math/bits"
	"slices"
)

// MaxCPUs is the number of CPUs that a Set can hold: indices 0…MaxCPUs-1.
const MaxCPUs = 1024

// words is the number of 64-bit words of a set.
const words = MaxCPUs / 64

// Set is a set of CPU indices. The zero value is empty. Sets are compared with ==.
type Set struct {
	w [words]uint64
}

// Of returns the set of the given indices. It panics when one is outside 0…MaxCPUs-1: callers validate at the gate.
func Of(cpus ...int) Set {
	var s Set
	for _, c := range cpus {
		s.Add(c)
	}
	return s
}

// Span returns the set of first…last, both included; empty when last < first.
func Span(first, last int) Set {
	var s Set
	for c := first; c <= last; c++ {
		s.Add(c)
	}
	return s
}

// Add puts c into s.
func (s *Set) Add(c int) { s.w[c>>6] |= 1 << (c & 63) }

// Remove takes c out of s.
func (s *Set) Remove(c int) { s.w[c>>6] &^= 1 << (c & 63) }

// Include puts all CPUs of o into s.
func (s *Set) Include(o *Set) {
	for i := range s.w {
		s.w[i] |= o.w[i]
	}
}

// Has reports whether c is in s.
func (s *Set) Has(c int) bool { return uint(c) < MaxCPUs && s.w[c>>6]&(1<<(c&63)) != 0 }

// Union returns s ∪ o.
func (s Set) Union(o Set) Set {
	s.Include(&o)
	return s
}

// Intersect returns s ∩ o.
func (s Set) Intersect(o Set) Set {
	for i := range s.w {
		s.w[i] &= o.w[i]
	}
	return s
}

// Minus returns s − o.
func (s Set) Minus(o Set) Set {
	for i := range s.w {
		s.w[i] &^= o.w[i]
	}
	return s
}

// Len returns the number of CPUs in s.
func (s *Set) Len() int {
	n := 0
	for _, w := range s.w {
		n += bits.OnesCount64(w)
	}
	return n
}

// IsEmpty reports whether s has no CPU.
func (s *Set) IsEmpty() bool { return *s == Set{} }

// Overlaps reports whether s ∩ o is not empty.
func (s *Set) Overlaps(o *Set) bool {
	for i := range s.w {
		if s.w[i]&o.w[i] != 0 {
			return true
		}
	}
	return false
}

// SubsetOf reports whether s ⊆ o.
func (s *Set) SubsetOf(o *Set) bool { return s.CountIn(o) == s.Len() }

// CountIn returns |s ∩ o| without building the intersection.
func (s *Set) CountIn(o *Set) int {
	n := 0
	for i := range s.w {
		n += bits.OnesCount64(s.w[i] & o.w[i])
	}
	return n
}

// First returns the lowest CPU of s, or -1 when s is empty.
func (s *Set) First() int { return s.Next(0) }

// Next returns the lowest CPU of s that is ≥ from, or -1. Loop: for c := s.First(); c >= 0; c = s.Next(c + 1).
func (s *Set) Next(from int) int {
	from = max(from, 0)
	kept := ^uint64(0) << (from & 63)
	for i := from >> 6; i < words; i++ {
		if w := s.w[i] & kept; w != 0 {
			return i<<6 | bits.TrailingZeros64(w)
		}
		kept = ^uint64(0)
	}
	return -1
}

// All yields the CPUs of s in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := s.First(); c >= 0; c = s.Next(c + 1) {
			if !yield(c) {
				return
			}
		}
	}
}

// Slice returns the CPUs of s in ascending order in a new slice.
func (s Set) Slice() []int {
	return slices.AppendSeq(make([]int, 0, s.Len()), s.All())
}
