package place_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestTheRestOfAPodIsBesideTheDevicesOfItsClaims is on the worked example: NUMA nodes 0 to 3 of 8 CPUs each. Each case
// has devices of claims on some NUMA nodes.
func TestTheRestOfAPodIsBesideTheDevicesOfItsClaims(t *testing.T) {
	t.Parallel()
	whole := func(n int64) func(*place.Request) { return gpus(t, map[string]int64{device.NVIDIAGPU: n}) }
	single, restricted := policy(hint.SingleNUMANode), policy(hint.Restricted)
	busy := func(list string) ledger.Entry {
		e := held(list)
		e.UID = "busy"
		return e
	}
	for name, tt := range map[string]struct {
		entries  []ledger.Entry
		request  *place.Request
		spread   int // that the devices need; 1 unless set
		required bool
		none     bool // no question is asked
		fits     []topo.NodeSet
		not      []topo.NodeSet
	}{
		"exclusive CPUs without a policy prefer one NUMA node": {
			entries: []ledger.Entry{busy("0-3,16-19")}, request: binding(4),
			fits: []topo.NodeSet{2, 4, 8, 3}, not: []topo.NodeSet{1},
		},
		"and as many as they need": {
			request: binding(12), fits: []topo.NodeSet{3, 12}, not: []topo.NodeSet{1, 8},
		},
		"a policy requires one": {
			entries: []ledger.Entry{busy("0-3,16-19")}, request: binding(4, single), required: true,
			fits: []topo.NodeSet{2, 4, 8}, not: []topo.NodeSet{1, 6},
		},
		"Restricted allows as many as the devices need": {
			request: binding(4, restricted), spread: 2, required: true,
			fits: []topo.NodeSet{1, 3, 12}, not: []topo.NodeSet{7},
		},
		"and no more": {
			request: binding(4, restricted), required: true, fits: []topo.NodeSet{1}, not: []topo.NodeSet{3},
		},
		"a shared pool under a policy": {
			entries: []ledger.Entry{confined(8000, 2)}, request: sharing(4000, single), required: true,
			fits: []topo.NodeSet{1, 8}, not: []topo.NodeSet{4},
		},
		"devices of annotations under a policy": {
			entries: []ledger.Entry{holding(0, 100), holding(1, 100)}, request: binding(2, single, whole(1)),
			required: true, fits: []topo.NodeSet{2, 4, 8}, not: []topo.NodeSet{1},
		},
		"a shared pool without a policy":  {request: sharing(4000), none: true},
		"CPUs that the node has not free": {entries: []ledger.Entry{busy("0-31")}, request: binding(4), none: true},
		"devices may be apart": {
			request: binding(4, single, func(r *place.Request) { r.DevicesApart = true }), none: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := worked(t)
			f := ledger.Facts{Machine: m, Devices: cards(t, m, []int{0, 0, 1, 1, 2, 2, 3, 3}), OwnDevices: true}
			v := ledger.New(f, tt.entries...).View()
			spread := max(tt.spread, 1)
			fits, required := place.BesideClaims(v, tt.request, spread)
			if required != tt.required || (fits == nil) != tt.none {
				t.Fatalf("required %t, a question %t", required, fits != nil)
			}
			if required != tt.request.AlignsClaims(v) {
				t.Errorf("AlignsClaims says %t", !required)
			}
			check := func(nodes topo.NodeSet, want bool) {
				if got := fits(nodes); got != want {
					t.Errorf("devices on %v: got %t", nodes, got)
				}
				beside := tt.request.Beside(nodes, spread)
				offer, reason := place.Try(v, beside)
				if place.Fits(v, beside) != reason {
					t.Errorf("devices on %v: Fits and Try differ: %v", nodes, reason)
				}
				switch refused := !reason.OK(); {
				case required && refused == want, !required && refused,
					refused && tt.request.Devices == nil && reason.Code != why.ClaimNotAligned:
					t.Errorf("devices on %v: %v", nodes, reason)
				case reason.OK() && want && !offer.Nodes.Within(nodes):
					t.Errorf("devices on %v, the rest on %v", nodes, offer.Nodes)
				}
			}
			for _, nodes := range tt.fits {
				check(nodes, true)
			}
			for _, nodes := range tt.not {
				check(nodes, false)
			}
		})
	}
}

// TestARequestBesideDevicesHasItsOwnVerdicts: verdicts are remembered by the key of a request.
func TestARequestBesideDevicesHasItsOwnVerdicts(t *testing.T) {
	t.Parallel()
	r := binding(4)
	r.Seal()
	if beside := r.Beside(1, 1); beside.Key == r.Key {
		t.Error("a request beside devices is answered by the verdict about another")
	}
	if r.Claimed != 0 {
		t.Error("the request of a pod has changed")
	}
}
