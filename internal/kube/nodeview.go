package kube

import (
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/memo"
)

// NodeView is the view of a node's ledger with a memory of the last verdicts on it: pods that wait at one time are
// equal to few others. Any number of goroutines may use it.
type NodeView struct {
	*ledger.View
	verdicts memo.Table[place.Key, why.Reason]
}

// NewNodeView returns v with an empty memory.
func NewNodeView(v *ledger.View) *NodeView { return &NodeView{View: v} }

// Fits is place.Fits, from memory if an equal request was answered before; remembered then is true.
func (v *NodeView) Fits(r *place.Request) (reason why.Reason, remembered bool) {
	return place.Recall(&v.verdicts, v.View, r)
}
