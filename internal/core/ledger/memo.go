package ledger

import (
	"sync/atomic"

	"github.com/tenon-project/tenon/internal/core/why"
)

// memoSlots is the number of verdicts that a view remembers: pods come in crowds of equal ones.
const memoSlots = 4

// Memo is what was decided on one view about the last requests. A view never changes, so a verdict remains true for as
// long as the view is there. It may be used by anybody at any time, without a lock: a verdict is read whole or not at
// all.
type Memo struct {
	slots [memoSlots]atomic.Pointer[verdict]
}

type verdict struct {
	key    MemoKey
	reason why.Reason
}

// MemoKey names a request by all that verdicts depend on. A memo never stores the zero value.
type MemoKey struct {
	hash uint64
	text string
}

// Equal reports whether two keys are the same.
func (k MemoKey) Equal(o MemoKey) bool { return k == o }

// NewMemoKey returns the key of a signature.
func NewMemoKey(signature string) MemoKey {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	k := MemoKey{hash: offset, text: signature}
	for i := range len(signature) {
		k.hash = (k.hash ^ uint64(signature[i])) * prime
	}
	return k
}

// Recall returns the verdict about a key; false when it is not remembered.
func (m *Memo) Recall(k MemoKey) (why.Reason, bool) {
	for i := range uint64(memoSlots) {
		v := m.slots[(k.hash+i)%memoSlots].Load()
		if v == nil {
			break // Keep fills the slots from here on
		}
		if v.key == k {
			return v.reason, true
		}
	}
	return why.Reason{}, false
}

// Keep remembers a verdict, in place of an older one when the memo is full.
func (m *Memo) Keep(k MemoKey, r why.Reason) {
	if k.text == "" {
		return
	}
	fresh := &verdict{k, r}
	for i := range uint64(memoSlots) {
		if m.slots[(k.hash+i)%memoSlots].CompareAndSwap(nil, fresh) {
			return
		}
	}
	m.slots[k.hash%memoSlots].Store(fresh)
}
