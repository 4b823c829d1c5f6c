package place_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestSingleNUMANodeExclusiveIsObeyed has 4 NUMA nodes of 4 cores on 2 sockets: CPUs 0-15, siblings at +16.
func TestSingleNUMANodeExclusiveIsObeyed(t *testing.T) {
	t.Parallel()
	const single, restricted = hint.SingleNUMANode, hint.Restricted
	require, prefer := numaExclusive(place.RequireNUMAExclusive), numaExclusive(place.PreferNUMAExclusive)
	spanning, oneEach := []ledger.Entry{held("0-1,4-5")}, []ledger.Entry{held("0"), held("4"), held("8"), held("12")}
	for name, c := range map[string]struct {
		facts   ledger.Facts
		holders []ledger.Entry
		request *place.Request
		nodes   uint64
		code    why.Code
		span    int64
		zero    bool // the score
	}{
		"nothing asked: beside pods that span several": {
			holders: spanning, request: binding(2, policy(single)), nodes: 0b0001,
		},
		"required: NUMA nodes of a pod that spans several are left out": {
			holders: spanning, request: binding(2, policy(single), require), nodes: 0b0100,
		},
		"required: refused where all are spanned": {
			holders: []ledger.Entry{held("0,4"), held("8,12")}, request: binding(2, policy(single), require),
			code: why.NUMANodeShared, span: 1, zero: true,
		},
		"preferred: taken where all are spanned, with score 0": {
			holders: []ledger.Entry{held("0,4"), held("8,12")}, request: binding(2, policy(single), prefer),
			nodes: 0b0001, zero: true,
		},
		"preferred: NUMA nodes without such pods first": {
			holders: spanning, request: binding(2, policy(single), prefer), nodes: 0b0100,
		},
		"the reverse: a pod that spans two avoids NUMA nodes of confined pods": {
			holders: []ledger.Entry{held("0")}, request: binding(10, policy(restricted), require), nodes: 0b1100,
		},
		"the reverse: refused where each NUMA node has a confined pod": {
			holders: oneEach, request: binding(10, policy(restricted), require), code: why.NUMANodeShared, span: 2,
			zero: true,
		},
		"the reverse: preferred is taken there": {
			holders: oneEach, request: binding(10, policy(restricted), prefer), nodes: 0b0011, zero: true,
		},
		"pods of one kind share NUMA nodes": {
			holders: oneEach, request: binding(2, policy(single), require), nodes: 0b0001,
		},
		"the node's policy is enough": {
			facts: ledger.Facts{Topology: single}, holders: spanning, request: binding(2, require), nodes: 0b0100,
		},
		"without a policy nothing is asked": {
			holders: []ledger.Entry{held("0,4,8,12")}, request: binding(2, require), nodes: 0b0001,
		},
		"BestEffort never refuses, its score is 0": {
			facts: ledger.Facts{Topology: hint.BestEffort}, holders: []ledger.Entry{held("0,4,8,12")},
			request: binding(2, require), nodes: 0b0001, zero: true,
		},
		"a pod of the shared pool": {
			holders: []ledger.Entry{confined(1000, 0, 1)}, request: sharing(2000, policy(single), require),
			nodes: 0b0100,
		},
		"a pod of the shared pool, refused": {
			holders: []ledger.Entry{confined(1000, 0, 1), confined(1000, 2, 3)},
			request: sharing(2000, policy(single), require), code: why.NUMANodeShared, span: 1,
		},
		"memory on a second NUMA node makes a pod span": {
			facts: ledger.Facts{Amounts: memoryOn(4, 64, 0)},
			holders: []ledger.Entry{func() ledger.Entry {
				e := held("0")
				e.Amounts = []align.Amount{{NUMAID: 1, Resource: "memory", N: 1 << 30}}
				return e
			}()},
			request: binding(2, policy(single), require), nodes: 0b0100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.facts.Machine = worked(t)
			v := ledger.New(c.facts, c.holders...).View()
			offer, reason := place.Try(v, c.request)
			if reason.Code != c.code || reason.Extra != c.span || uint64(offer.Nodes) != c.nodes {
				t.Errorf("got NUMA nodes %b, %+v; want %b, %v of %d", offer.Nodes, reason, c.nodes, c.code, c.span)
			}
			usage := place.Usage{AllocatableMilliCPU: 1, AllocatableMemory: 1}
			score := place.Score(v, c.request, usage, cpualloc.LeastAllocated)
			if reason.OK() && (score == 0) != c.zero {
				t.Errorf("score %d", score)
			}
		})
	}
}
