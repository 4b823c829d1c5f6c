package place

import (
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Seal computes r's signature once, for Recall. r must not be changed afterwards.
func (r *Request) Seal() { r.Key = ledger.NewMemoKey(r.Signature()) }

// Recall is Fits for a sealed request: v answers requests with equal signatures from memory, those that are not sealed
// never. remembered reports which it was. An answer that is remembered costs no look at the machine, one that is not an
// allocation besides.
func Recall(v *ledger.View, r *Request) (reason why.Reason, remembered bool) {
	memo := v.Memo()
	if reason, remembered = memo.Recall(r.Key); remembered {
		return reason, true
	}
	reason = Fits(v, r)
	memo.Keep(r.Key, reason)
	return reason, false
}
