package place

import (
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Key names a request by all that verdicts about it depend on. The zero value is the key of a request that is not
// sealed.
type Key struct {
	hash      uint64 // of signature
	signature string
}

// Equal reports whether two keys are the same.
func (k Key) Equal(o Key) bool { return k == o }

// Seal computes r's key once, for Recall. r must not be changed afterwards.
func (r *Request) Seal() {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	k := Key{offset, r.Signature()}
	for i := range len(k.signature) {
		k.hash = (k.hash ^ uint64(k.signature[i])) * prime
	}
	r.Key = k
}

// Memo remembers verdicts about requests on one view. A view never changes, so a verdict remains true for as long as
// the view exists. A Memo may forget a verdict at any time, and must be safe for concurrent use.
type Memo interface {
	Recall(k Key, hash uint64) (why.Reason, bool)
	Keep(k Key, hash uint64, verdict why.Reason)
}

// Recall is Fits, answered from the memo of v if the request is sealed and an equal request was answered before;
// remembered then is true. A remembered answer costs no look at the view, and no allocation.
func Recall(m Memo, v *ledger.View, r *Request) (reason why.Reason, remembered bool) {
	if r.Key == (Key{}) {
		return Fits(v, r), false
	}
	if reason, remembered = m.Recall(r.Key, r.Key.hash); remembered {
		return reason, true
	}
	reason = Fits(v, r)
	m.Keep(r.Key, r.Key.hash, reason)
	return reason, false
}
