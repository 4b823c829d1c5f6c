package topo

import (
	"maps"
	"slices"
)

// Pool makes equal machines share one value. The zero value is ready. It is not safe for concurrent use: the adapter
// that owns it holds its lock.
type Pool struct {
	byFingerprint map[uint64][]*Machine
}

// Intern returns the pooled machine that equals m, or keeps and returns m.
func (p *Pool) Intern(m *Machine) *Machine {
	if p.byFingerprint == nil {
		p.byFingerprint = map[uint64][]*Machine{}
	}
	for _, known := range p.byFingerprint[m.fingerprint] {
		if known.Equal(m) {
			return known
		}
	}
	p.byFingerprint[m.fingerprint] = append(p.byFingerprint[m.fingerprint], m)
	return m
}

// Equal reports whether m and o describe the same machine: whether their Specs would be equal. Distances that were left
// out equal the ones that are assumed.
func (m *Machine) Equal(o *Machine) bool {
	if m == o {
		return true
	}
	// Everything else of a Machine is derived from these.
	return m.fingerprint == o.fingerprint && m.arch == o.arch &&
		m.online == o.online && m.isolated == o.isolated &&
		slices.Equal(m.cpus, o.cpus) && slices.Equal(m.sockets, o.sockets) && slices.Equal(m.l3s, o.l3s) &&
		slices.EqualFunc(m.numa, o.numa, func(a, b numaRow) bool {
			return a.id == b.id && a.memory == b.memory && slices.Equal(a.dist, b.dist) &&
				maps.Equal(a.hugepages, b.hugepages)
		})
}
