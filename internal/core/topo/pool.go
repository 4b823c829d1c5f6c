package topo

import (
	"maps"
	"slices"
)

// Pool makes equal values share one. The zero value is ready. It is not safe for concurrent use: the adapter that owns
// it holds its lock.
type Pool[T interface{ Equal(T) bool }] struct {
	known []T
}

// Intern returns the pooled value that equals v, or keeps and returns v.
func (p *Pool[T]) Intern(v T) T {
	if i := slices.IndexFunc(p.known, v.Equal); i >= 0 {
		return p.known[i]
	}
	p.known = append(p.known, v)
	return v
}

// Equal reports whether m and o describe the same machine: whether their Specs would be equal. Distances that were left
// out equal the ones that are assumed. nil equals nil alone.
func (m *Machine) Equal(o *Machine) bool {
	if m == o || m == nil || o == nil {
		return m == o
	}
	// Everything else of a Machine is derived from these.
	return m.arch == o.arch && m.online == o.online &&
		slices.Equal(m.cpus, o.cpus) && slices.Equal(m.sockets, o.sockets) && slices.Equal(m.l3s, o.l3s) &&
		slices.EqualFunc(m.numa, o.numa, func(a, b numaRow) bool {
			return a.id == b.id && a.memory == b.memory && slices.Equal(a.dist, b.dist) &&
				maps.Equal(a.hugepages, b.hugepages)
		})
}
