package fragment

import (
	"slices"
	"sync/atomic"
)

const (
	memoSlots  = 1 << 16 // values that a generation remembers, at most
	memoProbes = 8       // slots in which a value may be
)

// memo remembers the values of shapes. It may be used at any time, without a lock: an entry never changes, and is read
// whole or not at all.
type memo struct {
	slots [memoSlots]atomic.Pointer[entry]
}

type entry struct {
	milliCPU int64
	value    int64
	model    Model
	free     []int16
	used     atomic.Bool // asked for, and not only computed by Renew
}

// recall returns the value of a shape with this hash; false when it is not remembered.
func (m *memo) recall(h *shape, hash uint64) (int64, bool) {
	for i := range uint64(memoProbes) {
		e := m.slots[(hash+i)%memoSlots].Load()
		if e == nil {
			break // keep fills the slots from here on
		}
		if e.milliCPU == h.milliCPU && e.model == h.model && slices.Equal(e.free, h.free[:h.n]) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e.value, true
		}
	}
	return 0, false
}

// shapes returns those that were asked for.
func (m *memo) shapes(yield func(*shape) bool) {
	for i := range m.slots {
		if e := m.slots[i].Load(); e != nil && e.used.Load() {
			h := shape{milliCPU: e.milliCPU, model: e.model, n: len(e.free)}
			copy(h.free[:], e.free)
			if !yield(&h) {
				return
			}
		}
	}
}

// keep remembers a value, in place of another one when its slots are taken.
func (m *memo) keep(h *shape, hash uint64, value int64, used bool) {
	e := &entry{milliCPU: h.milliCPU, value: value, model: h.model, free: slices.Clone(h.free[:h.n])}
	e.used.Store(used)
	for i := range uint64(memoProbes) {
		if m.slots[(hash+i)%memoSlots].CompareAndSwap(nil, e) {
			return
		}
	}
	m.slots[hash%memoSlots].Store(e)
}
