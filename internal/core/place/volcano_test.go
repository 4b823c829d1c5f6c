package place_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// annotated is a Guaranteed pod with Volcano's annotation.
func annotated(uid string, n int, bytes int64, policy hint.Policy) *place.Request {
	r := pinnedRequest(uid, n, bytes)
	r.Role, r.Topology, r.Volcano = qos.SharedPool, policy, policy
	return r
}

// TestVolcanosTable is the table of seed 004 on nodes whose kubelet decides: none and best-effort never filter,
// restricted requires the preferred hint, single-numa-node one NUMA node; what the kubelet itself refuses is never
// bound.
func TestVolcanosTable(t *testing.T) {
	t.Parallel()
	const (
		none, bestEffort, restricted, single = hint.None, hint.BestEffort, hint.Restricted,
			hint.SingleNUMANode
		granted, misplaced, refused, differs = why.None, why.TopologyPolicy, why.KubeletTopologyAffinity,
			why.TopologyPolicyDiffers
	)
	// The machine has two NUMA nodes of 8 CPUs, of which CPU 0 is reserved.
	shapes := map[string]struct {
		fill  []int // CPUs of pods that are there
		cpus  int
		bytes int64
		// want is by the pod's policy, then by the node's.
		want [4][4]why.Code
	}{
		"one NUMA node has room": {cpus: 4, bytes: 1, want: [4][4]why.Code{
			none:       {granted, granted, granted, granted},
			bestEffort: {granted, granted, granted, granted},
			restricted: {differs, granted, granted, granted},
			single:     {differs, granted, granted, granted},
		}},
		"one would do, and only two together have room": {fill: []int{4, 4}, cpus: 6, bytes: 1, want: [4][4]why.Code{
			none:       {granted, granted, refused, refused},
			bestEffort: {granted, granted, refused, refused},
			restricted: {differs, misplaced, refused, refused},
			single:     {differs, misplaced, refused, refused},
		}},
		"two are needed": {cpus: 12, bytes: 150, want: [4][4]why.Code{
			none:       {granted, granted, granted, refused},
			bestEffort: {granted, granted, granted, refused},
			restricted: {differs, granted, granted, refused},
			single:     {differs, misplaced, misplaced, refused},
		}},
	}
	for name, s := range shapes {
		for _, node := range []hint.Policy{hint.None, hint.BestEffort, hint.Restricted, hint.SingleNUMANode} {
			for pod := none; pod <= single; pod++ {
				t.Run(fmt.Sprintf("%s/pod=%s/node=%s", name, pod, node), func(t *testing.T) {
					t.Parallel()
					facts := guardedFacts(t, 2, ledger.Follow, node)
					facts.Topology, facts.Model.Gen = facts.Model.Config.Topology.Policy, 0
					l := ledger.New(facts)
					for i, n := range s.fill {
						o, reason := place.Try(l.View(), pinnedRequest(fmt.Sprintf("f%d", i), n, 1))
						if !reason.OK() || l.Commit(o) != nil {
							t.Fatalf("pod %d that is there does not fit: %+v", i, reason)
						}
					}
					got := place.Fits(l.View(), annotated("p", s.cpus, s.bytes, pod))
					if want := s.want[pod][facts.Model.Config.Topology.Policy]; got.Code != want {
						t.Errorf("Fits = %s (%s), want %s", got.Code, got.Text(), want)
					}
				})
			}
		}
	}
}

func TestWhatVolcanosPodsAskOfANode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts  func(*ledger.Facts)
		policy hint.Policy
		strict bool
		want   why.Code
		text   string
	}{
		"the node's CPUs are unknown": {
			facts:  func(f *ledger.Facts) { *f = ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}} },
			policy: hint.Restricted, want: why.NUMAInfoEmpty, text: "numa info is empty",
		},
		"their report is wrong": {
			facts:  func(f *ledger.Facts) { *f = ledger.Facts{Fault: why.Reason{Code: why.InvalidTopology}} },
			policy: hint.SingleNUMANode, want: why.InvalidTopology, text: "node(s) invalid CPU Topology",
		},
		"the report of an exporter is wrong": {
			facts: func(f *ledger.Facts) {
				*f = ledger.Facts{Imported: true, Mode: ledger.Blind, Fault: why.Reason{Code: why.InvalidTopology}}
			},
			policy: hint.Restricted, want: why.InvalidTopology, text: "node(s) invalid CPU Topology",
		},
		"best-effort needs to know nothing": {
			facts:  func(f *ledger.Facts) { *f = ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}} },
			policy: hint.BestEffort,
		},
		"an imported node whose kubelet pins nothing": {
			facts: func(f *ledger.Facts) {
				f.Mode, f.Imported, f.Model.Config.CPU = ledger.Blind, true, kubelet.CPU{}
			},
			policy: hint.Restricted, want: why.CPUManagerNotStatic, text: "cpu manager policy isn't static",
		},
		"best-effort runs there": {
			facts: func(f *ledger.Facts) {
				f.Mode, f.Imported, f.Model = ledger.Blind, true, kubelet.Facts{}
			},
			policy: hint.BestEffort,
		},
		"in Own mode the node's policy may be another": {
			facts:  func(f *ledger.Facts) { f.Mode, f.Model = ledger.Own, kubelet.Facts{} },
			policy: hint.Restricted,
		},
		"unless it must be the same": {
			facts:  func(f *ledger.Facts) { f.Mode, f.Model = ledger.Own, kubelet.Facts{} },
			policy: hint.Restricted, strict: true, want: why.TopologyPolicyDiffers,
			text: "task topology policy[restricted] is different with node[none]",
		},
		"the kubelet's policy counts and not the label's": {
			facts:  func(f *ledger.Facts) { f.Topology = hint.SingleNUMANode },
			policy: hint.SingleNUMANode, strict: true, want: why.TopologyPolicyDiffers,
			text: "task topology policy[single-numa-node] is different with node[best-effort]",
		},
		"best-effort must be the same too": {
			facts: func(f *ledger.Facts) {
				f.Mode, f.Model, f.Topology = ledger.Own, kubelet.Facts{},
					hint.Restricted
			},
			policy: hint.BestEffort, strict: true, want: why.TopologyPolicyDiffers,
			text: "task topology policy[best-effort] is different with node[restricted]",
		},
		"the same policy is the same": {policy: hint.BestEffort, strict: true},
		"none asks nothing":           {strict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := guardedFacts(t, 2, ledger.Follow, hint.BestEffort)
			if c.facts != nil {
				c.facts(&facts)
			}
			r := annotated("p", 2, 1, c.policy)
			r.SamePolicy = c.strict
			v := ledger.New(facts).View()
			got := place.Fits(v, r)
			if got.Code != c.want || got.Text() != c.text {
				t.Errorf("Fits = %s %q, want %s %q", got.Code, got.Text(), c.want, c.text)
			}
			if _, tried := place.Try(v, r); tried != got {
				t.Errorf("Try says %+v, Fits %+v", tried, got)
			}
		})
	}
}

func TestImportedNodesGiveCPUsOnlyThroughTheirKubelet(t *testing.T) {
	t.Parallel()
	facts := guardedFacts(t, 2, ledger.Blind, hint.None)
	facts.Imported, facts.Model = true, kubelet.Facts{}
	v := ledger.New(facts).View()
	lsr := pinnedRequest("lsr", 2, 1)
	lsr.Class, lsr.Role, lsr.CPUs = qos.LSR, qos.ExclusiveWithBE, 2
	aligned := pinnedRequest("aligned", 2, 1)
	aligned.Role, aligned.Topology = qos.SharedPool, hint.SingleNUMANode
	for _, r := range []*place.Request{lsr, aligned} {
		if got := place.Fits(v, r).Code; got != why.CPUManagerNotStatic {
			t.Errorf("Fits(%s) = %s, want %s: no agent would enforce its CPUs", r.UID, got, why.CPUManagerNotStatic)
		}
	}
	plain := pinnedRequest("plain", 2, 1)
	plain.Role = qos.SharedPool
	if got := place.Fits(v, plain); !got.OK() {
		t.Errorf("a pod without requirements is refused: %+v", got)
	}
}

func TestSpanCountsTheNUMANodesOfAPlacement(t *testing.T) {
	t.Parallel()
	follow := guardedFacts(t, 3, ledger.Follow, hint.BestEffort)
	own := guardedFacts(t, 3, ledger.Own, hint.None)
	own.Model = kubelet.Facts{}
	lsr := func(n int) *place.Request {
		r := annotated("p", n, 1, hint.BestEffort)
		r.Class, r.Role, r.CPUs = qos.LSR, qos.ExclusiveWithBE, n
		return r
	}
	for name, c := range map[string]struct {
		facts ledger.Facts
		r     *place.Request
		want  int
		ok    bool
	}{
		"the kubelet takes one":           {follow, annotated("p", 4, 1, hint.BestEffort), 1, true},
		"the kubelet takes two":           {follow, annotated("p", 12, 1, hint.BestEffort), 2, true},
		"we take three":                   {own, lsr(18), 3, true},
		"a pod of the pool is everywhere": {own, annotated("p", 4, 1, hint.BestEffort), 3, true},
		"a confined pod of the pool":      {own, annotated("p", 4, 1, hint.SingleNUMANode), 1, true},
		"nothing is known of the node":    {ledger.Facts{}, annotated("p", 4, 1, hint.BestEffort), 0, false},
		"it does not fit":                 {follow, annotated("p", 40, 1, hint.BestEffort), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := place.Span(ledger.New(c.facts).View(), c.r)
			if got != c.want || ok != c.ok {
				t.Errorf("Span = %d, %v, want %d, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestSignaturesTellVolcanosPodsApart(t *testing.T) {
	t.Parallel()
	plain, ours, strict := pinnedRequest("p", 2, 1), annotated("p", 2, 1, hint.Restricted),
		annotated("p", 2, 1, hint.Restricted)
	plain.Role, plain.Topology = qos.SharedPool, hint.Restricted
	strict.SamePolicy = true
	if a, b, c := plain.Signature(), ours.Signature(), strict.Signature(); a == b || b == c || a == c {
		t.Errorf("three pods that nodes answer differently are signed %q, %q, %q", a, b, c)
	}
}
