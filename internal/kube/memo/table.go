package memo

import (
	"math/bits"
	"sync/atomic"
)

const (
	// fewSlots is the number of slots of the zero Table.
	fewSlots = 4
	// probes is the number of slots in which a value may be: those from its hash on.
	probes = 8
)

// Table remembers the last values of a function, by their arguments. It is lossy: it has a fixed number of slots, and a
// new value may replace an older one. It may be used by any number of goroutines at any time, without a lock: an entry
// never changes, and is read whole or not at all. Recalling a value allocates nothing. The zero value is an empty table
// of 4 slots.
//
// An argument comes with its hash. Slots are filled in the order of the probes and never emptied, so a lookup ends at
// the first empty slot.
type Table[K comparable, V any] struct {
	// many are the slots of a table made by New; nil in a zero Table. Invariant: their number is a power of 2.
	many []atomic.Pointer[entry[K, V]]
	// few are the slots of a zero Table, so that the table and its slots are one block of memory.
	few [fewSlots]atomic.Pointer[entry[K, V]]
}

type entry[K comparable, V any] struct {
	key K
	// asked is true once a caller has asked for the value; false for one that was only prepared.
	asked atomic.Bool
	value V
}

// New returns an empty table of at least so many slots, one or more.
func New[K comparable, V any](slots int) *Table[K, V] {
	return &Table[K, V]{many: make([]atomic.Pointer[entry[K, V]], 1<<bits.Len(uint(slots-1)))}
}

func (t *Table[K, V]) slots() []atomic.Pointer[entry[K, V]] {
	if t.many == nil {
		return t.few[:]
	}
	return t.many
}

// Recall returns the value of a key; false if it is not remembered.
func (t *Table[K, V]) Recall(key K, hash uint64) (value V, remembered bool) {
	slots := t.slots()
	for i := range uint64(min(len(slots), probes)) {
		e := slots[(hash+i)&uint64(len(slots)-1)].Load()
		if e == nil {
			break
		}
		if e.key == key {
			if !e.asked.Load() {
				e.asked.Store(true)
			}
			return e.value, true
		}
	}
	return value, false
}

// Keep remembers the value of a key that a caller has asked for, in place of another value if its slots are taken.
func (t *Table[K, V]) Keep(key K, hash uint64, value V) {
	e := &entry[K, V]{key: key, value: value}
	e.asked.Store(true)
	t.insert(e, hash)
}

// Prepare remembers a value as Keep does, before any caller has asked for it.
func (t *Table[K, V]) Prepare(key K, hash uint64, value V) {
	t.insert(&entry[K, V]{key: key, value: value}, hash)
}

func (t *Table[K, V]) insert(e *entry[K, V], hash uint64) {
	slots := t.slots()
	for i := range uint64(min(len(slots), probes)) {
		if slots[(hash+i)&uint64(len(slots)-1)].CompareAndSwap(nil, e) {
			return
		}
	}
	slots[hash&uint64(len(slots)-1)].Store(e)
}

// Asked yields the keys whose values a caller has asked for.
func (t *Table[K, V]) Asked(yield func(K) bool) {
	slots := t.slots()
	for i := range slots {
		if e := slots[i].Load(); e != nil && e.asked.Load() && !yield(e.key) {
			return
		}
	}
}
