package ranking

import (
	"slices"
	"unsafe"
)

// entry is a ranking or a spread, and how many bytes of the profile's memory it counts for.
type entry interface{ size() *int }

// size returns the bytes that the ranking counts for.
func (r *ranking) size() *int { return &r.bytes }

// size returns the bytes that the spread counts for.
func (s *spread) size() *int { return &s.bytes }

// Bytes of an entry: of what does not depend on the number of nodes besides its key, and of what a map takes for an
// element.
const (
	bytesOfEntry = 1 << 10
	bytesOfPlace = 2 * int(unsafe.Sizeof(place{})+unsafe.Sizeof(int32(0)))
)

// add keeps an entry in the place of the one that has its key.
func (p *Profile) add(key string, e entry) {
	p.rankings.Remove(key)
	p.rankings.Add(key, e)
	p.weigh(e, bytesOfEntry+len(key))
}

// weigh counts more bytes of an entry that is kept, and lets others go while all take more than they may.
func (p *Profile) weigh(e entry, more int) {
	*e.size() += more
	for p.kept += more; p.kept > p.Memory && p.rankings.Len() > 2; {
		p.rankings.RemoveOldest()
	}
}

// column is a number for each member of a ranking; of use for feasible members alone.
type column[T uint8 | int64] struct {
	all   T
	array []T // nil while all members have the same
}

// at returns the number of a member.
func (c *column[T]) at(member int) T {
	if c.array == nil {
		return c.all
	}
	return c.array[member]
}

// set sets the number of one of n members, and returns how many bytes more the column takes. Where the member is first,
// no other member has a number that is of use.
func (c *column[T]) set(n, member int, to T, first bool) (bytes int) {
	switch {
	case c.array == nil && first:
		c.all = to
	case c.array == nil && c.all == to:
	case c.array == nil:
		c.array = slices.Repeat([]T{c.all}, n)
		bytes = n * int(unsafe.Sizeof(to))
		fallthrough
	default:
		c.array[member] = to
	}
	return bytes
}

// zeroes returns n zeroes, in the memory of a slice that is not needed any more.
func zeroes[T any](scratch []T, n int) []T {
	scratch = slices.Grow(scratch[:0], n)[:n]
	clear(scratch)
	return scratch
}
