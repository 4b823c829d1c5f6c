package claim

import (
	"maps"
	"slices"
)

// Pool is the slices in which a driver publishes the devices of a pool. The zero value is an empty pool.
type Pool[D any] struct {
	// slices are those that exist, by name.
	slices map[string]Slice[D]
	// lost are the devices that claims have, that use counters and that the newest slices do not list, by name: as they
	// were listed last. A device that was never seen is not among them.
	lost map[string]D
}

// Slice is a ResourceSlice of a pool. Slices of an older generation are about to be removed.
type Slice[D any] struct {
	Generation int64
	Devices    []Listed[D]
}

// Listed is a device in a slice.
type Listed[D any] struct {
	Name    string
	Counted bool // it uses counters
	Device  D
}

// Put replaces a slice, or adds it. held reports whether a claim has a device.
func (p *Pool[D]) Put(name string, s Slice[D], held func(device string) bool) {
	was := p.slices[name]
	if p.slices == nil {
		p.slices = map[string]Slice[D]{}
	}
	p.slices[name] = s
	p.updateLost(&was, held)
}

// Remove is Put for a slice that is gone.
func (p *Pool[D]) Remove(name string, held func(device string) bool) {
	was := p.slices[name]
	delete(p.slices, name)
	p.updateLost(&was, held)
}

// Release forgets lost devices that no claim has any more.
func (p *Pool[D]) Release(held func(device string) bool) {
	maps.DeleteFunc(p.lost, func(name string, _ D) bool { return !held(name) })
}

// IsEmpty reports whether the pool has no slices and has lost no device.
func (p *Pool[D]) IsEmpty() bool { return len(p.slices) == 0 && len(p.lost) == 0 }

// Find returns the devices of a name in the newest generation that has one: while a driver replaces its slices, those
// of the last generation count too.
func (p *Pool[D]) Find(name string) (found []D) {
	newest := int64(-1)
	for _, key := range slices.Sorted(maps.Keys(p.slices)) {
		s := p.slices[key]
		if s.Generation < newest {
			continue
		}
		for i := range s.Devices {
			if s.Devices[i].Name != name {
				continue
			}
			if s.Generation > newest {
				newest, found = s.Generation, nil
			}
			found = append(found, s.Devices[i].Device)
		}
	}
	return found
}

// Lost returns the lost devices by name. An allocator counts what an allocated device uses only while it is listed, so
// the caller lists them again.
func (p *Pool[D]) Lost() (list []D) {
	for _, name := range slices.Sorted(maps.Keys(p.lost)) {
		list = append(list, p.lost[name])
	}
	return list
}

// updateLost finds out which devices are lost after a slice was replaced or removed.
func (p *Pool[D]) updateLost(was *Slice[D], held func(device string) bool) {
	newest := int64(-1)
	for _, s := range p.slices {
		newest = max(newest, s.Generation)
	}
	lost, listed := maps.Clone(p.lost), map[string]bool{}
	if lost == nil {
		lost = map[string]D{}
	}
	note := func(s *Slice[D]) {
		for i := range s.Devices {
			if d := &s.Devices[i]; d.Counted {
				lost[d.Name] = d.Device
			}
		}
	}
	note(was)
	for _, s := range p.slices {
		if s.Generation < newest {
			note(&s)
			continue
		}
		for i := range s.Devices {
			listed[s.Devices[i].Name] = true
		}
	}
	maps.DeleteFunc(lost, func(name string, _ D) bool { return listed[name] || !held(name) })
	p.lost = lost
}
