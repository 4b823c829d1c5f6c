package place_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/memo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func binding(cpus int, changes ...func(*place.Request)) *place.Request {
	r := &place.Request{UID: "new", Namespace: "ns", Name: "new", Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: cpus}
	for _, change := range changes {
		change(r)
	}
	return r
}

func required(w place.BindWish) func(*place.Request) {
	return func(r *place.Request) { r.Required = w }
}

func preferred(w place.BindWish) func(*place.Request) {
	return func(r *place.Request) { r.Preferred = w }
}

func exclusive(e cpualloc.Exclusive) func(*place.Request) {
	return func(r *place.Request) { r.Exclusive = e }
}

func numaExclusive(n place.NUMAExclusive) func(*place.Request) {
	return func(r *place.Request) { r.NUMAExclusive = n }
}

func policy(p hint.Policy) func(*place.Request) {
	return func(r *place.Request) { r.Topology = p }
}

func containers(n ...int) func(*place.Request) {
	return func(r *place.Request) {
		r.Kubelet = guestOf(r.UID, 0, 0)
		r.Kubelet.Containers = nil
		for i, cpus := range n {
			c := kubelet.Container{Name: string(rune('a' + i)), CPUs: cpus}
			r.Kubelet.Containers = append(r.Kubelet.Containers, c)
		}
	}
}

// count makes a static kubelet one whose behaviour is not known.
func count(tb interface{ Fatalf(string, ...any) }, f *ledger.Facts) {
	if f.Machine == nil || !f.Model.Config.CPU.Static {
		return
	}
	f.Model.Node, f.Model.Fault = kubelet.NewNode(f.Machine, kubelet.Counting(f.Model.Config.CPU), kubelet.Inventory{})
	if f.Model.Node != nil {
		f.Model.Node = f.Model.Node.WithBuffers(new(sync.Pool))
	}
	if !f.Model.Fault.OK() {
		tb.Fatalf("the kubelet of the test is refused: %+v", f.Model.Fault)
	}
}

func sharing(milli int64, changes ...func(*place.Request)) *place.Request {
	r := &place.Request{
		UID: "new", Namespace: "ns", Name: "new", Class: qos.LS, Role: qos.SharedPool,
		RequestMilli: milli,
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func burst(limit int64) func(*place.Request) {
	return func(r *place.Request) { r.ConstrainedBurst, r.LimitMilli = true, limit }
}

func bindsOnPolicyNodes(r *place.Request) { r.OnPolicyNodes = boundOf(r) }

func held(cpus string) ledger.Entry {
	return ledger.Entry{UID: "held-" + cpus, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: cpus}
}

func confined(milli int64, numa ...int) ledger.Entry {
	return ledger.Entry{
		UID: fmt.Sprint("confined-", numa), Class: qos.LS, Role: qos.SharedPool, NUMAIDs: numa, MilliCPU: milli,
	}
}

func on(index int32) why.Where { return why.Where{Scope: why.NUMA, Index: index} }

func cpuReason(code why.Code, asked, free, extra int64) why.Reason {
	return why.Reason{Code: code, Resource: why.CPU, Unit: why.CPUs, Asked: asked, Free: free, Extra: extra}
}

func at(r why.Reason, where why.Where) why.Reason {
	r.Where = where
	return r
}

func unit(r why.Reason, u why.Unit) why.Reason {
	r.Unit = u
	return r
}

var conflict = why.Reason{Code: why.BindPolicyConflict, Resource: why.CPU}

func static(options ...func(*kubelet.CPU)) func(*ledger.Facts) {
	return func(f *ledger.Facts) {
		f.Model.Config.CPU.Static = true
		for _, o := range options {
			o(&f.Model.Config.CPU)
		}
	}
}

func fullPCPUsOnly(k *kubelet.CPU) { k.FullPCPUsOnly = true }

func TestTryOnTheWorkedExample(t *testing.T) {
	t.Parallel()
	label := func(b ledger.NodeBind) func(*ledger.Facts) { return func(f *ledger.Facts) { f.Bind = b } }
	numa := func(p hint.Policy) func(*ledger.Facts) { return func(f *ledger.Facts) { f.Topology = p } }
	arm := func(f *ledger.Facts) { f.ARM64 = true }
	none := func(*ledger.Facts) {}
	tests := map[string]struct {
		facts   func(*ledger.Facts)
		entries []ledger.Entry
		request *place.Request
		cpus    string // wanted, list format
		numa    []int  // wanted confinement
		reason  why.Reason
	}{
		// Bind policies.
		"whole cores are the default": {facts: none, request: binding(4), cpus: "0-1,16-17"},
		"a preferred spread takes one CPU of each core": {
			facts: none, request: binding(4, preferred(place.WantSpreadByPCPUs)), cpus: "0-3",
		},
		"a required spread takes one CPU of each core, on more NUMA nodes": {
			facts: none, request: binding(6, required(place.WantSpreadByPCPUs)), cpus: "0-5",
		},
		"required wins over preferred": {
			facts: none, request: binding(4, required(place.WantFullPCPUs), preferred(place.WantSpreadByPCPUs)),
			cpus: "0-1,16-17",
		},
		"a FullPCPUsOnly node gives a pod that prefers spreading whole cores": {
			facts: label(ledger.FullPCPUsOnly), request: binding(4, preferred(place.WantSpreadByPCPUs)),
			cpus: "0-1,16-17",
		},
		"a FullPCPUsOnly node refuses a pod that requires spreading": {
			facts: label(ledger.FullPCPUsOnly), request: binding(4, required(place.WantSpreadByPCPUs)),
			reason: conflict,
		},
		"a FullPCPUsOnly node refuses an odd number of CPUs": {
			facts: label(ledger.FullPCPUsOnly), request: binding(3), reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"a pod that requires whole cores cannot have an odd number of CPUs": {
			facts: none, request: binding(3, required(place.WantFullPCPUs)),
			reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"a SpreadByPCPUs node spreads a pod that prefers whole cores": {
			facts: label(ledger.SpreadByPCPUs), request: binding(4, preferred(place.WantFullPCPUs)), cpus: "0-3",
		},
		"a SpreadByPCPUs node refuses a pod that requires whole cores": {
			facts: label(ledger.SpreadByPCPUs), request: binding(4, required(place.WantFullPCPUs)), reason: conflict,
		},
		"full-pcpus-only of the kubelet counts where no label is": {
			facts: static(fullPCPUsOnly), request: binding(3), reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"the label None beats full-pcpus-only": {
			facts: func(f *ledger.Facts) {
				static(fullPCPUsOnly)(f)
				f.Bind = ledger.NoPolicy
			},
			request: binding(3), cpus: "0-1,16",
		},
		"full-pcpus-only counts for nothing under the policy none": {
			facts:   func(f *ledger.Facts) { f.Model.Config.CPU.FullPCPUsOnly = true },
			request: binding(3), cpus: "0-1,16",
		},

		// ARM.
		"arm64 with SMT refuses a required spread": {
			facts: arm, request: binding(4, required(place.WantSpreadByPCPUs)), reason: conflict,
		},
		"arm64 with SMT gives whole cores to a pod that prefers spreading": {
			facts: arm, request: binding(4, preferred(place.WantSpreadByPCPUs)), cpus: "0-1,16-17",
		},
		"arm64 with SMT does not hear the label SpreadByPCPUs": {
			facts:   func(f *ledger.Facts) { f.ARM64, f.Bind = true, ledger.SpreadByPCPUs },
			request: binding(4), cpus: "0-1,16-17",
		},

		// The kubelet's admission.
		"full-pcpus-only admits by container: 3+1 is refused though the pod's sum is even": {
			facts: static(fullPCPUsOnly), request: binding(4, containers(3, 1)),
			reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"full-pcpus-only refuses an odd Guaranteed pod without QoS label too, whatever the label says": {
			facts: func(f *ledger.Facts) {
				static(fullPCPUsOnly)(f)
				f.Bind = ledger.NoPolicy
			},
			request: sharing(3000, containers(3)), reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"a static kubelet without free CPUs would reject the pod": {
			facts: static(), entries: []ledger.Entry{{UID: "g", Guest: &tenancy.Guest{Pod: guestOf("g", 30, 0)}}},
			request: sharing(4000, containers(4)), reason: cpuReason(why.InsufficientKubeletCPU, 4, 2, 0),
		},
		"a kubelet that is not static rejects nothing": {
			facts: none, entries: []ledger.Entry{{UID: "g", Guest: &tenancy.Guest{Pod: guestOf("g", 30, 0)}}},
			request: sharing(4000, containers(4)),
		},

		// Amounts.
		"more CPUs than are free": {
			facts: none, entries: []ledger.Entry{held("0-15")}, request: binding(17),
			reason: cpuReason(why.InsufficientExclusiveCPU, 17, 16, 0),
		},
		"more whole cores than are whole": {
			facts: none, entries: []ledger.Entry{held("0-13")}, request: binding(6, required(place.WantFullPCPUs)),
			reason: cpuReason(why.InsufficientExclusiveCPU, 6, 4, int64(why.RequiredFullPCPUs)),
		},
		"more cores than there are": {
			facts: none, request: binding(17, required(place.WantSpreadByPCPUs)),
			reason: unit(cpuReason(why.InsufficientExclusiveCPU, 17, 16, int64(why.RequiredSpreadByPCPUs)), why.Cores),
		},
		"the shared pool keeps its floor": {
			facts: func(f *ledger.Facts) { f.MinSharedCPUs = 4 }, request: binding(29),
			reason: cpuReason(why.SharedPoolFloor, 29, 28, 4),
		},
		"exactly the floor may remain": {
			facts: func(f *ledger.Facts) { f.MinSharedCPUs = 16 }, request: binding(16), cpus: "0-7,16-23",
		},
		"what LS pods were promised is not given away": {
			facts: none, entries: []ledger.Entry{
				confined(7500, 0), confined(8000, 1), confined(8000, 2),
				confined(7000, 3),
			},
			request: binding(2), reason: cpuReason(why.SharedPoolCommitted, 2, 1, 0),
		},
		"beside a promise the rest of the NUMA node is free": {
			facts: none, entries: []ledger.Entry{
				confined(6000, 0), confined(8000, 1), confined(8000, 2),
				confined(7000, 3),
			},
			request: binding(3), cpus: "0,12,16",
		},

		// Topology policies.
		"without a policy a pod may cross NUMA nodes": {facts: none, request: binding(10), cpus: "0-4,16-20"},
		"SingleNUMANode refuses what needs two NUMA nodes": {
			facts: numa(hint.SingleNUMANode), request: binding(10),
			reason: at(cpuReason(why.TopologyPolicy, 10, 8, 1), on(0)),
		},
		"SingleNUMANode takes the one NUMA node that has room": {
			facts: numa(hint.SingleNUMANode), entries: []ledger.Entry{held("0"), held("4"), held("8")},
			request: binding(8),
			cpus:    "12-15,28-31",
		},
		"Restricted lets a large pod have the two NUMA nodes it needs": {
			facts: numa(hint.Restricted), request: binding(10), cpus: "0-4,16-20",
		},
		"Restricted refuses to spread what would fit into fewer NUMA nodes of an empty machine": {
			facts: numa(hint.Restricted), entries: []ledger.Entry{held("0,4,8,12")}, request: binding(8),
			reason: at(cpuReason(why.TopologyPolicy, 8, 7, 1), on(0)),
		},
		"Restricted says how much two NUMA nodes have": {
			facts: numa(hint.Restricted), entries: []ledger.Entry{held("0,4,8,12")}, request: binding(16),
			reason: cpuReason(why.TopologyPolicy, 16, 14, 2),
		},
		"Restricted counts cores for a required spread": {
			facts: numa(hint.Restricted), request: binding(5, required(place.WantSpreadByPCPUs)), cpus: "0-4",
		},
		"Restricted gives up an even spread that needs more NUMA nodes": {
			facts:   func(f *ledger.Facts) { f.Topology, f.Strategy = hint.Restricted, cpualloc.DistributeEvenly },
			entries: []ledger.Entry{held("0-2,16-18")}, request: binding(16),
			cpus: "8-15,24-31",
		},
		"the pod's policy tightens the node's": {
			facts: numa(hint.Restricted), request: binding(10, policy(hint.SingleNUMANode)),
			reason: at(cpuReason(why.TopologyPolicy, 10, 8, 1), on(0)),
		},
		"the pod's policy does not loosen the node's": {
			facts: numa(hint.SingleNUMANode), request: binding(10, policy(hint.BestEffort)),
			reason: at(cpuReason(why.TopologyPolicy, 10, 8, 1), on(0)),
		},
		"a promise to LS pods that breaks the alignment is named": {
			facts: numa(hint.SingleNUMANode), entries: []ledger.Entry{
				confined(1000, 0), confined(1000, 1),
				confined(1000, 2), confined(1000, 3),
			},
			request: binding(8), reason: at(cpuReason(why.SharedPoolCommitted, 8, 7, 0), on(0)),
		},

		// LS pods and shared pools.
		"an LS pod without any policy uses the whole pool": {facts: none, request: sharing(2000)},
		"an LS pod on a SingleNUMANode node gets the fullest pool that holds its request": {
			facts: numa(hint.SingleNUMANode), entries: []ledger.Entry{held("4-6")}, request: sharing(2000),
			numa: []int{1},
		},
		"LeastAllocated gives it the emptiest": {
			facts:   func(f *ledger.Facts) { f.Topology, f.Strategy = hint.SingleNUMANode, cpualloc.LeastAllocated },
			entries: []ledger.Entry{held("4-6"), confined(500, 0)}, request: sharing(2000), numa: []int{2},
		},
		"an LS pod larger than one NUMA node is refused by SingleNUMANode": {
			facts: numa(hint.SingleNUMANode), entries: []ledger.Entry{confined(500, 0)}, request: sharing(8500),
			reason: at(unit(cpuReason(why.TopologyPolicy, 8500, 8000, 1), why.MilliCPU), on(0)),
		},
		"an LS pod larger than one NUMA node gets two of one socket under Restricted": {
			facts: numa(hint.Restricted), entries: []ledger.Entry{confined(500, 0)}, request: sharing(8500),
			numa: []int{0, 1},
		},
		"Restricted does not widen beyond what an empty machine needs": {
			facts: numa(hint.Restricted), entries: []ledger.Entry{
				confined(7000, 0), confined(7000, 1),
				confined(7000, 2), confined(7500, 3),
			},
			request: sharing(1500), reason: at(unit(cpuReason(why.TopologyPolicy, 1500, 1000, 1), why.MilliCPU), on(0)),
		},
		"ConstrainedBurst counts by the limit": {
			facts: none, entries: []ledger.Entry{held("0-2"), held("12-14")}, request: sharing(2000, burst(6000)),
			numa: []int{1},
		},
		"ConstrainedBurst widens to more NUMA nodes": {
			facts: none, request: sharing(2000, burst(9000)), numa: []int{0, 1},
		},
		"ConstrainedBurst under SingleNUMANode does not widen": {
			facts: none, request: sharing(2000, burst(9000), policy(hint.SingleNUMANode)),
			reason: at(unit(cpuReason(why.TopologyPolicy, 9000, 8000, 1), why.MilliCPU), on(0)),
		},
		"a limit above the whole pool filters the node": {
			facts: none, entries: []ledger.Entry{held("0-3")}, request: sharing(2000, burst(29000)),
			reason: unit(cpuReason(why.SharedPoolTooSmall, 29000, 28000, 0), why.MilliCPU),
		},
		"a request above what is not promised filters the node": {
			facts: none, entries: []ledger.Entry{confined(31000, 0, 1, 2, 3)}, request: sharing(2000, burst(3000)),
			reason: unit(cpuReason(why.SharedPoolTooSmall, 2000, 1000, 0), why.MilliCPU),
		},
		// bindAllPodsOnPolicyNodes.
		"where all pods bind, a FullPCPUsOnly node gives an LS pod whole cores": {
			facts: label(ledger.FullPCPUsOnly), request: sharing(2000, burst(4000), bindsOnPolicyNodes), cpus: "0,16",
		},
		"where all pods bind, a SpreadByPCPUs node spreads an LS pod": {
			facts: label(ledger.SpreadByPCPUs), request: sharing(2000, bindsOnPolicyNodes), cpus: "0-1",
		},
		"where all pods bind, a fraction of a CPU is refused": {
			facts: label(ledger.FullPCPUsOnly), request: sharing(100, bindsOnPolicyNodes),
			reason: why.Reason{Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: 100},
		},
		"where all pods bind, an odd number of CPUs is refused by a FullPCPUsOnly node": {
			facts: label(ledger.FullPCPUsOnly), request: sharing(3000, bindsOnPolicyNodes),
			reason: cpuReason(why.SMTAlignment, 3, 0, 2),
		},
		"where all pods bind, a node without the label binds none": {
			facts:   none,
			request: sharing(100, bindsOnPolicyNodes),
		},
		"where all pods bind, the label None binds none": {
			facts:   label(ledger.NoPolicy),
			request: sharing(100, bindsOnPolicyNodes),
		},
		"where all pods bind, full-pcpus-only of the kubelet without a label binds none": {
			facts: static(fullPCPUsOnly), request: sharing(100, bindsOnPolicyNodes),
		},
		"where all pods bind, a node without the label still confines": {
			facts: numa(hint.SingleNUMANode), request: sharing(2000, bindsOnPolicyNodes), numa: []int{0},
		},

		"a Burstable pod without a request is not confined": {facts: numa(hint.SingleNUMANode), request: sharing(0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ledger.Facts{Machine: worked(t)}
			test.facts(&f)
			if f.Model.Node == nil {
				count(t, &f)
			}
			v := ledger.New(f, test.entries...).View()
			offer, reason := place.Try(v, test.request)
			if diff := cmp.Diff(test.reason, reason); diff != "" {
				t.Fatalf("reason (-want +got):\n%s", diff)
			}
			if got := offer.CPUs.String(); got != test.cpus {
				t.Errorf("CPUs: got %q, want %q", got, test.cpus)
			}
			if diff := cmp.Diff(test.numa, offer.Entry.NUMAIDs); diff != "" {
				t.Errorf("NUMA nodes (-want +got):\n%s", diff)
			}
			if offer.Entry.CPUList != test.cpus {
				t.Errorf("the entry has CPUs %q, the offer %q", offer.Entry.CPUList, test.cpus)
			}
		})
	}
}

func TestTryOnOtherMachines(t *testing.T) {
	t.Parallel()
	wide := func(nodes int) *topo.Machine { return machine(t, 1, nodes, 1, 1) }
	tests := map[string]struct {
		facts   ledger.Facts
		request *place.Request
		cpus    string
		reason  why.Code
	}{
		"without a topology a binding pod waits": {request: binding(2), reason: why.TopologyMissing},
		"a malformed topology is reported as such": {
			facts: ledger.Facts{Fault: why.Reason{Code: why.InvalidTopology}}, request: binding(2),
			reason: why.InvalidTopology,
		},
		"without a topology an LS pod runs": {
			facts: ledger.Facts{Topology: hint.SingleNUMANode}, request: sharing(2000, burst(4000)),
		},
		"64 NUMA nodes are served": {
			facts: ledger.Facts{Machine: wide(64)}, request: binding(3),
			cpus: "0-2",
		},
		"65 NUMA nodes are refused by name": {
			facts: ledger.Facts{Machine: wide(65)}, request: binding(3),
			reason: why.InvalidTopology,
		},
		"65 NUMA nodes do not confine an LS pod": {
			facts:   ledger.Facts{Machine: wide(65)},
			request: sharing(2000, burst(4000)),
		},
		"without SMT a required spread on arm64 takes any CPUs": {
			facts:   ledger.Facts{Machine: machine(t, 1, 1, 8, 1), ARM64: true},
			request: binding(3, required(place.WantSpreadByPCPUs)),
			cpus:    "0-2",
		},
		"without SMT required policies of node and pod cannot differ": {
			facts:   ledger.Facts{Machine: machine(t, 1, 1, 8, 1), Bind: ledger.FullPCPUsOnly},
			request: binding(3, required(place.WantSpreadByPCPUs)), cpus: "0-2",
		},
		"a core with an offline CPU is whole without it": {
			facts: ledger.Facts{Machine: machine(t, 1, 1, 2, 2, 2)}, request: binding(2, required(place.WantFullPCPUs)),
			cpus: "1,3",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ledger.New(test.facts).View()
			offer, reason := place.Try(v, test.request)
			if reason.Code != test.reason {
				t.Fatalf("got %+v, want %v", reason, test.reason)
			}
			if got := offer.Entry.CPUList; got != test.cpus {
				t.Errorf("CPUs: got %q, want %q", got, test.cpus)
			}
		})
	}
}

func TestArm64HasNoPCPULevel(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{Machine: worked(t), ARM64: true}).View()
	r := binding(2, exclusive(cpualloc.PCPULevel))
	effect, reason := place.EffectOn(v, r)
	if !reason.OK() || effect.Exclusive != cpualloc.NotExclusive || !effect.Ignored {
		t.Errorf("got %+v, %+v", effect, reason)
	}
	offer, _ := place.Try(v, r)
	if offer.Entry.Exclusive != cpualloc.PCPULevel {
		t.Errorf("the entry says %v, want what the pod declared", offer.Entry.Exclusive)
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	half := place.Usage{MilliCPU: 500, AllocatableMilliCPU: 1000, Memory: 50, AllocatableMemory: 100}
	quarter := place.Usage{MilliCPU: 250, AllocatableMilliCPU: 1000, Memory: 25, AllocatableMemory: 100}
	tests := map[string]struct {
		bind    ledger.NodeBind
		label   *cpualloc.Strategy
		request *place.Request
		usage   place.Usage
		most    bool // the plugin packs nodes
		want    int64
	}{
		"the node's label MostAllocated beats the plugin's": {
			label: new(cpualloc.MostAllocated), request: binding(4),
			usage: quarter, want: 62,
		},
		"the node's label LeastAllocated beats the plugin's": {
			label: new(cpualloc.LeastAllocated), request: binding(4),
			usage: quarter, most: true, want: 87,
		},
		"DistributeEvenly ranks no nodes": {
			label:   new(cpualloc.DistributeEvenly),
			request: binding(4), usage: quarter, most: true, want: 62,
		},

		"one NUMA node, half used":                 {request: binding(4), usage: half, want: 75},
		"less used is better under LeastAllocated": {request: binding(4), usage: quarter, want: 87},
		"more used is better under MostAllocated": {
			request: binding(4), usage: quarter,
			most: true, want: 62,
		},
		"two NUMA nodes rank below any one":    {request: binding(10), usage: quarter, want: 45},
		"three NUMA nodes rank below any two":  {request: binding(20), usage: half, want: 16},
		"an LS pod confined to two NUMA nodes": {request: sharing(1000, burst(9000)), usage: half, want: 44},
		"a plain pod":                          {request: sharing(1000), usage: half, want: 75},
		"a broken preference scores nothing": {
			bind:    ledger.FullPCPUsOnly,
			request: binding(4, preferred(place.WantSpreadByPCPUs)), usage: half,
		},
		"nothing allocatable does not divide by zero": {request: binding(4), want: 50},
		"more used than allocatable counts as all used": {
			request: binding(4),
			usage:   place.Usage{MilliCPU: 5, AllocatableMilliCPU: 1, Memory: 5, AllocatableMemory: 1}, want: 50,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := ledger.Facts{Machine: worked(t), Bind: test.bind}
			if test.label != nil {
				facts.Strategy, facts.StrategyByLabel = *test.label, true
			}
			v := ledger.New(facts).View()
			scoring := cpualloc.LeastAllocated
			if test.most {
				scoring = cpualloc.MostAllocated
			}
			if got := place.Score(v, test.request, test.usage, scoring); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestScoreStaysInRangeAndFollowsTheNumberOfNUMANodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, r := drawView(t), drawRequest(t)
		offer, reason := place.Try(v, r)
		if !reason.OK() {
			return
		}
		draw := func(label string) int64 { return rapid.Int64Range(0, 1<<50).Draw(t, label) }
		u := place.Usage{
			MilliCPU: draw("cpu"), AllocatableMilliCPU: draw("all cpu"), Memory: draw("memory"),
			AllocatableMemory: draw("all memory"),
		}
		got := place.Score(v, r, u, rapid.SampledFrom([]cpualloc.Strategy{0, 1}).Draw(t, "scoring"))
		if got < 0 || got > 100 {
			t.Fatalf("score %d", got)
		}
		r = r.On(v.Facts())
		effect, _ := place.EffectOn(v, r)
		exclusive := r.NUMAExclusive != place.ShareNUMANodes && effect.Topology >= hint.BestEffort
		mixed := exclusive && offer.Nodes&v.Summary().Mixed(offer.Nodes.Len()) != 0
		unmet := r.Isolated == place.PreferIsolated && !offer.CPUs.SubsetOf(&v.Facts().Isolated)
		broken := r.CPUs > 0 && (effect.Broken || mixed || unmet)
		if r.CPUs > 0 && broken != (got == 0) && !(exclusive && effect.Topology == hint.BestEffort) {
			t.Fatalf("score %d, broken preference %v", got, broken)
		}
		if offer.Nodes != 0 && offer.Nodes&(offer.Nodes-1) == 0 && !broken && !exclusive && got < 50 {
			t.Fatalf("score %d for one NUMA node", got)
		}
	})
}

// TestPoolsOfManyNUMANodes holds the search beyond allSets: what Fits accepts, Try grants; a request alone gets as
// few NUMA nodes as there can be.
func TestPoolsOfManyNUMANodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, spec(rapid.IntRange(1, 2).Draw(t, "sockets"), rapid.IntRange(5, 6).Draw(t, "NUMA nodes"), 2,
			1))
		var entries []ledger.Entry
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			entries = append(entries, ledger.Entry{
				UID: fmt.Sprint("pod-", i), Class: qos.LS, Role: qos.SharedPool,
				MilliCPU: int64(rapid.IntRange(0, 2000).Draw(t, "milli")),
				NUMAIDs:  []int{rapid.IntRange(0, m.NumNUMA()-1).Draw(t, "NUMA")},
			})
		}
		r := drawRequest(t)
		r.OnPolicyNodes = nil
		r.Class, r.Role, r.CPUs, r.RequestMilli = qos.LS, qos.SharedPool, 0,
			int64(rapid.IntRange(1, 12000).Draw(t, "request"))
		r.LimitMilli = r.RequestMilli + int64(rapid.IntRange(0, 9000).Draw(t, "burst room"))
		v := ledger.New(ledger.Facts{
			Machine:  m,
			Topology: rapid.SampledFrom([]hint.Policy{0, 2, 3}).Draw(t, "policy"),
		}, entries...).View()
		offer, reason := place.Try(v, r)
		if fits := place.Fits(v, r); fits != reason {
			t.Fatalf("Fits says %+v, Try says %+v", fits, reason)
		}
		checkReason(t, reason)
		if !r.ConstrainedBurst {
			checkPool(t, v, r, offer)
		}
	})
}

// eightNodes is a machine of 256 CPUs on 8 NUMA nodes that is half full.
func eightNodes(tb testing.TB, nodes int, f ledger.Facts) *ledger.View {
	tb.Helper()
	f.Machine = machine(tb, 2, nodes/2, 128/nodes, 2)
	var entries []ledger.Entry
	for i := range 64 {
		entries = append(entries, ledger.Entry{
			UID: fmt.Sprint("pod-", i), Class: qos.LSR, Role: qos.ExclusiveWithBE,
			CPUList: fmt.Sprintf("%d,%d", 2*i, 2*i+128),
		})
	}
	return ledger.New(f, entries...).View()
}

func TestFilterAndScoreAllocateNothing(t *testing.T) {
	tests := map[string]struct {
		facts   ledger.Facts
		request *place.Request
	}{
		"no policy":          {request: binding(4)},
		"refused":            {request: binding(200)},
		"required":           {request: binding(4, required(place.WantFullPCPUs))},
		"Restricted":         {facts: ledger.Facts{Topology: hint.Restricted}, request: binding(40)},
		"SingleNUMANode":     {facts: ledger.Facts{Topology: hint.SingleNUMANode}, request: binding(400)},
		"constrained burst":  {facts: ledger.Facts{Topology: hint.Restricted}, request: sharing(20000, burst(90000))},
		"LS, SingleNUMANode": {facts: ledger.Facts{Topology: hint.SingleNUMANode}, request: sharing(90000)},
		"memory": {
			facts:   ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 0, 1)},
			request: remembering(binding(40), 200, 12),
		},
		"memory, refused": {
			facts:   ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(64, 64, 4)},
			request: remembering(binding(60), 900, 12),
		},
		"memory, BestEffort": {
			facts:   ledger.Facts{Topology: hint.BestEffort, Amounts: memoryOn(64, 1, 4)},
			request: remembering(binding(4), 7, 12),
		},
		"memory of LS": {
			facts:   ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4)},
			request: remembering(sharing(20000, burst(60000)), 100, 0),
		},
		"NUMA nodes without pods of the other kind": {
			facts:   ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4)},
			request: remembering(binding(40, numaExclusive(place.RequireNUMAExclusive)), 100, 0),
		},
		"static kubelet": {
			facts:   ledger.Facts{Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{Static: true}}}},
			request: sharing(4000, containers(2, 2)),
		},
	}
	for name, test := range tests {
		for _, nodes := range []int{8, 64} {
			v := eightNodes(t, nodes, test.facts)
			allocs := testing.AllocsPerRun(100, func() {
				place.Fits(v, test.request)
				place.Score(v, test.request, place.Usage{AllocatableMilliCPU: 1, AllocatableMemory: 1},
					cpualloc.LeastAllocated)
				test.request.Concerns()
			})
			if allocs != 0 {
				t.Errorf("%s, %d NUMA nodes: %v allocations, want none", name, nodes, allocs)
			}
		}
	}
}

// remembering is a request that asks for GiB of ordinary memory and for hugepages besides.
func remembering(r *place.Request, gib, hugepages int64) *place.Request {
	r.Needs = []align.Need{{Resource: "memory", N: gib << 30}}
	if hugepages > 0 {
		r.Needs = append(r.Needs, align.Need{Resource: "hugepages-1Gi", N: hugepages << 30})
	}
	return r
}

// memoryOn has GiB of ordinary memory and of hugepages on each of n NUMA nodes, on the large ones twice as much.
func memoryOn(n int, gib, hugepages int64, large ...int) []align.Amount {
	var list []align.Amount
	for i := range n {
		more := int64(1)
		if slices.Contains(large, i) {
			more = 2
		}
		list = append(list, align.Amount{NUMAID: i, Resource: "memory", N: more * gib << 30},
			align.Amount{NUMAID: i, Resource: "hugepages-1Gi", N: more * hugepages << 30})
	}
	return list
}

func BenchmarkFits(b *testing.B) {
	for _, bench := range []struct {
		name    string
		numa    int
		facts   ledger.Facts
		request *place.Request
	}{
		{"policy=none/kind=exclusive", 8, ledger.Facts{}, binding(4)},
		{"policy=none/kind=shared", 8, ledger.Facts{}, sharing(4000)},
		{"policy=SingleNUMANode/kind=exclusive", 8, ledger.Facts{Topology: hint.SingleNUMANode}, binding(4)},
		{"policy=Restricted/kind=exclusive", 8, ledger.Facts{Topology: hint.Restricted}, binding(40)},
		{"policy=Restricted/kind=exclusive", 64, ledger.Facts{Topology: hint.Restricted}, binding(40)},
		{"policy=SingleNUMANode/kind=shared", 8, ledger.Facts{Topology: hint.SingleNUMANode}, sharing(4000)},
		{"policy=Restricted/kind=burst", 8, ledger.Facts{Topology: hint.Restricted}, sharing(4000, burst(60000))},
		{
			"policy=Restricted/kind=burst,refused", 8,
			ledger.Facts{Topology: hint.Restricted},
			sharing(4000, burst(110000)),
		},
		{
			"policy=Restricted/kind=burst,refused", 64,
			ledger.Facts{Topology: hint.Restricted},
			sharing(4000, burst(110000)),
		},
		{
			"policy=SingleNUMANode/memory/kind=exclusive", 8,
			ledger.Facts{Topology: hint.SingleNUMANode, Amounts: memoryOn(8, 64, 4, 1, 3, 5, 7)},
			remembering(binding(4), 48, 0),
		},
		{
			"policy=Restricted/memory/kind=exclusive", 8,
			ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 1, 3, 5, 7)},
			remembering(binding(40), 200, 0),
		},
		{
			"policy=Restricted/memory/kind=exclusive,two types", 8,
			ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 1, 3, 5, 7)},
			remembering(binding(40), 200, 12),
		},
		{
			"policy=Restricted/memory/kind=exclusive,refused", 8,
			ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 0, 1, 2, 3)},
			remembering(binding(60), 200, 12),
		},
		{
			"policy=BestEffort/memory/kind=exclusive", 8,
			ledger.Facts{Topology: hint.BestEffort, Amounts: memoryOn(8, 64, 4, 1, 3, 5, 7)},
			remembering(binding(40), 200, 0),
		},
		{
			"policy=Restricted/memory/kind=burst", 8,
			ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 1, 3, 5, 7)},
			remembering(sharing(4000, burst(60000)), 200, 0),
		},
		{
			"policy=Restricted/memory/kind=exclusive", 64,
			ledger.Facts{Topology: hint.Restricted, Amounts: memoryOn(64, 8, 4)},
			remembering(binding(40), 150, 0),
		},
		{"policy=Restricted/kind=exclusive,refused", 64, ledger.Facts{Topology: hint.Restricted}, binding(100)},
	} {
		b.Run(fmt.Sprintf("%s/numa=%d", bench.name, bench.numa), func(b *testing.B) {
			v := eightNodes(b, bench.numa, bench.facts)
			b.ReportAllocs()
			for b.Loop() {
				place.Fits(v, bench.request)
			}
		})
	}
}

// BenchmarkFilter5000Nodes asks every node of a cluster, each with an account of its own: half of them have the pod's
// memory where its CPUs are. Nodes of equal facts share them, as in the scheduler, or each node has facts of its own,
// as where machines differ by some bytes of memory. Both do the same work; the latter reads more of the main memory.
func BenchmarkFilter5000Nodes(b *testing.B) {
	const nodes = 5000
	m := machine(b, 2, 4, 16, 2)
	account := func(i int) (ledger.Facts, []ledger.Entry) {
		f := ledger.Facts{Machine: m, Topology: hint.Restricted, Amounts: memoryOn(8, 64, 4, 0, 1, 2, 3)}
		if i%2 == 0 {
			f.Amounts = memoryOn(8, 64, 4, 4, 5, 6, 7)
		}
		var entries []ledger.Entry
		for c := range 16 {
			cpus := 4*c + i%3
			entries = append(entries, held(fmt.Sprintf("%d-%d,%d-%d", cpus, cpus+1, cpus+128, cpus+129)))
		}
		return f, entries
	}
	own, shared := make([]*ledger.View, nodes), make([]*ledger.View, nodes)
	for i := range own {
		f, entries := account(i)
		own[i] = ledger.New(f, entries...).View()
	}
	var frames ledger.Frames
	for i := range shared {
		f, entries := account(i)
		l := ledger.New(ledger.Facts{Machine: m}, entries...)
		frames.SetFacts(l, f)
		shared[i] = l.View()
	}
	r := remembering(binding(60), 200, 12)
	r.Seal()
	run := func(b *testing.B, views []*ledger.View, ask func(*ledger.View) why.Reason) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() {
			granted := 0
			for _, v := range views {
				if reason := ask(v); reason.OK() {
					granted++
				}
			}
			if granted != nodes/2 {
				b.Fatalf("%d nodes would take the pod, want half", granted)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/nodes, "ns/node")
	}
	for name, views := range map[string][]*ledger.View{"shared": shared, "own": own} {
		b.Run("numa=8/memo=none/facts="+name, func(b *testing.B) {
			run(b, views, func(v *ledger.View) why.Reason { return place.Fits(v, r) })
		})
	}
	memories := make([]verdicts, nodes)
	b.Run("numa=8/memo=hit", func(b *testing.B) {
		i := 0
		run(b, shared, func(v *ledger.View) why.Reason {
			reason, _ := place.Recall(&memories[i%nodes], v, r)
			i++
			return reason
		})
	})
}

// verdicts is the memo of a view.
type verdicts = memo.Table[place.Key, why.Reason]

// TestRecallAnswersAsFitsDoes asks views again and again about requests of a few signatures.
func TestRecallAnswersAsFitsDoes(t *testing.T) {
	t.Parallel()
	hits, misses := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		var memory verdicts
		requests := rapid.SliceOfN(rapid.Custom(drawRequest), 1, 6).Draw(t, "requests")
		for range 10 {
			r := *rapid.SampledFrom(requests).Draw(t, "request")
			r.UID = "another"
			r.Seal()
			got, remembered := place.Recall(&memory, v, &r)
			if want := place.Fits(v, &r); got != want {
				t.Fatalf("got %+v (remembered %v), want %+v", got, remembered, want)
			}
			if remembered {
				hits++
			} else {
				misses++
			}
		}
		unsealed := *requests[0]
		for range 2 {
			if got, remembered := place.Recall(&memory, v, &unsealed); remembered || got != place.Fits(v, &unsealed) {
				t.Fatalf("a request without signature: %+v, remembered %v", got, remembered)
			}
		}
	})
	if hits == 0 || misses == 0 {
		t.Errorf("%d hits, %d misses: the generator is too narrow", hits, misses)
	}
}

// BenchmarkFitsWorst refuses pods that no four NUMA nodes hold: the large pools have nothing left, or all pools are
// large and have too little left, so that every set of four is looked at.
func BenchmarkFitsWorst(b *testing.B) {
	for name, pools := range map[string]struct {
		promised int64
		large    int
	}{"pools=large": {32000, 4}, "pools=equal": {26000, 8}} {
		b.Run(name, func(b *testing.B) {
			var entries []ledger.Entry
			for i := range pools.large {
				entries = append(entries, confined(pools.promised, i))
			}
			for i := pools.large; i < 8; i++ {
				entries = append(entries, held(fmt.Sprintf("%d-%d,%d-%d", 16*i, 16*i+11, 128+16*i, 128+16*i+11)))
			}
			f := ledger.Facts{Machine: machine(b, 2, 4, 16, 2), Topology: hint.Restricted}
			v := ledger.New(f, entries...).View()
			r := sharing(25000, burst(105000))
			if reason := place.Fits(v, r); reason.Code != why.TopologyPolicy {
				b.Fatalf("got %+v", reason)
			}
			b.ReportAllocs()
			for b.Loop() {
				place.Fits(v, r)
			}
		})
	}
}

func BenchmarkTry(b *testing.B) {
	v := eightNodes(b, 8, ledger.Facts{})
	r := binding(8)
	b.ReportAllocs()
	for b.Loop() {
		place.Try(v, r)
	}
}

func BenchmarkScore(b *testing.B) {
	v := eightNodes(b, 8, ledger.Facts{})
	r := binding(8)
	b.ReportAllocs()
	for b.Loop() {
		place.Score(v, r, place.Usage{MilliCPU: 1, AllocatableMilliCPU: 2, Memory: 1, AllocatableMemory: 2},
			cpualloc.LeastAllocated)
	}
}
