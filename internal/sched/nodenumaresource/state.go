package nodenumaresource

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
)

const stateKey fwk.StateKey = Name

// state is what one scheduling cycle knows of its pod. A cycle without it does not concern us.
type state struct {
	request *place.Request
	// signature is the request's, while some node is left alone for some shape; else "".
	signature string

	// milliCPU and memory (bytes) are the pod's requests, known from PreScore on.
	milliCPU, memory int64

	// changed is the view of node in a dry run: without victims, with nominated pods. The framework clones the state
	// for each node that it tries.
	node    string
	changed *ledger.View

	// offer is committed on the account of reserved.
	offer    ledger.Offer
	view     *ledger.View // that the offer was computed on
	reserved string
	// recorded: PreBind has written the allocation, so that another binder may have bound the pod with it.
	recorded bool
}

// Clone copies the state for a dry run. Requests, views and offers are never changed in place.
func (s *state) Clone() fwk.StateData {
	c := *s
	return &c
}

func read(cs fwk.CycleState) *state {
	data, err := cs.Read(stateKey)
	if err != nil {
		return nil
	}
	s, _ := data.(*state)
	return s
}

// viewOf returns the view that the cycle must use for the node.
func (p *Plugin) viewOf(s *state, node string) *ledger.View {
	if s.changed != nil && s.node == node {
		return s.changed
	}
	return p.store.View(node)
}
