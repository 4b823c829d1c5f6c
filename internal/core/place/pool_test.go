package place_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestThePoolsOfNUMANodesAreComparedWithARequest: neither whole CPUs nor milli-CPU need a number of NUMA nodes.
func TestThePoolsOfNUMANodesAreComparedWithARequest(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{Machine: worked(t)}, confined(2500, 1)).View()
	got, ok := place.Align(v, sharing(1500, policy(hint.Restricted)))
	want := []place.AlignmentRow{
		{Resource: "pool", Need: 2, Have: []int64{8, 8, 8, 8}},
		{Resource: "pool-left", Need: 1500, Have: []int64{8000, 5500, 8000, 8000}},
	}
	if diff := cmp.Diff(want, got.Rows); diff != "" || !ok {
		t.Errorf("explained: %v; rows (-want +got):\n%s", ok, diff)
	}
}

// TestSharedPoolPodsAreConfinedWhereTheAgentWritesCpusets: under a Restricted or tighter policy of the node, a pod of
// the shared pool is kept to NUMA nodes in mode Own alone. Elsewhere no agent would: it runs everywhere, and one that
// asks for the confinement itself is refused instead of being promised it.
func TestSharedPoolPodsAreConfinedWhereTheAgentWritesCpusets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*place.Request)
		owned  bool // confined in mode Own
		want   why.Code
	}{
		"a pod that asks for nothing": {func(*place.Request) {}, true, why.None},
		"a pod with BestEffort":       {func(r *place.Request) { r.Topology = hint.BestEffort }, true, why.None},
		"a pod with Restricted": {
			func(r *place.Request) { r.Topology = hint.Restricted }, true,
			why.PoolNotConfined,
		},
		"a pod with SingleNUMANode": {
			func(r *place.Request) { r.Topology = hint.SingleNUMANode }, true,
			why.PoolNotConfined,
		},
		"a pod with ConstrainedBurst": {burst(2000), true, why.PoolNotConfined},
		"a pod of BE with Restricted": {
			func(r *place.Request) { r.Role, r.Topology = qos.BEPool, hint.Restricted },
			false, why.None,
		},
		"a pod that requests no CPU": {
			func(r *place.Request) { r.RequestMilli, r.Topology = 0, hint.Restricted },
			false, why.None,
		},
		"a pod that the kubelet places, Restricted": {
			func(r *place.Request) {
				r.Kubelet, r.Topology = guestOf("p", 1, 0), hint.Restricted
			}, true, why.None,
		},
	}
	for name, tt := range tests {
		for _, mode := range []ledger.Mode{ledger.Own, ledger.Follow, ledger.Blind} {
			for _, node := range []hint.Policy{hint.Restricted, hint.SingleNUMANode} {
				t.Run(fmt.Sprintf("%s, mode %s, node %s", name, mode, node), func(t *testing.T) {
					t.Parallel()
					facts := guardedFacts(t, 2, mode, hint.Restricted)
					facts.Topology = node
					r := &place.Request{
						UID: "p", Name: "p", Class: qos.LS, Role: qos.SharedPool, RequestMilli: 1000,
						LimitMilli: 1000,
					}
					tt.change(r)
					v := ledger.New(facts).View()
					offer, reason := place.Try(v, r)
					if fits := place.Fits(v, r); fits != reason {
						t.Errorf("Fits says %+v, Try %+v", fits, reason)
					}
					want, confined := why.None, tt.owned
					if mode != ledger.Own {
						want, confined = tt.want, false
					}
					if mode == ledger.Blind && r.Kubelet.CPUs() > 0 {
						want = why.PoolNotConfined // the choice of its kubelet is not predicted there
					}
					if reason.Code != want || (offer.Entry.NUMAIDs != nil) != confined {
						t.Errorf("got %s and NUMA nodes %v, want %s and confined: %t", reason.Code, offer.Entry.NUMAIDs,
							want, confined)
					}
				})
			}
		}
	}
}
