package place_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func asking(memory ...align.Need) func(*place.Request) {
	return func(r *place.Request) { r.Needs = memory }
}

func gib(n int64) align.Need { return align.Need{Resource: "memory", N: n << 30} }

func pages(n int64) align.Need { return align.Need{Resource: "hugepages-1Gi", N: n << 30} }

func on4(gib ...int64) []align.Amount {
	var list []align.Amount
	for i, n := range gib {
		list = append(list, align.Amount{NUMAID: i, Resource: "memory", N: n << 30})
	}
	return list
}

func memoryReason(code why.Code, resource why.Resource, asked, free, extra int64) why.Reason {
	return why.Reason{
		Code: code, Resource: resource, Unit: why.Bytes, Asked: asked << 30, Free: free << 30,
		Extra: extra,
	}
}

// TestCPUAndMemoryMeet is on the worked example: NUMA nodes 0 and 1 on socket 0, 2 and 3 on socket 1, 8 CPUs each.
func TestCPUAndMemoryMeet(t *testing.T) {
	t.Parallel()
	single, restricted, bestEffort := policy(hint.SingleNUMANode), policy(hint.Restricted),
		policy(hint.BestEffort)
	takes := func(id int, list string, memory ...align.Amount) ledger.Entry {
		e := held(list)
		e.UID, e.Amounts = fmt.Sprint("held-", id), memory
		return e
	}
	mem := func(numa int, n int64) align.Amount {
		return align.Amount{NUMAID: numa, Resource: "memory", N: n << 30}
	}
	huge := func(numa int, n int64) align.Amount {
		return align.Amount{NUMAID: numa, Resource: "hugepages-1Gi", N: n << 30}
	}
	tests := map[string]struct {
		memory  []align.Amount
		entries []ledger.Entry
		request *place.Request
		cpus    string         // wanted
		placed  []align.Amount // wanted
		reason  why.Reason
	}{
		"exclusive CPUs go where the memory is": {
			memory: on4(4, 4, 4, 32), request: binding(4, single, asking(gib(16))), cpus: "12-13,28-29",
			placed: []align.Amount{mem(3, 16)},
		},
		"memory that is short on the only NUMA node with the CPUs is named as memory": {
			memory: on4(4, 32, 32, 32), entries: []ledger.Entry{takes(1, "4-15,20-31")},
			request: binding(4, single, asking(gib(16))),
			reason:  at(memoryReason(why.TopologyPolicy, why.Memory, 16, 4, 1), on(0)),
		},
		"what pods hold is gone": {
			memory: on4(32, 32, 32, 32), entries: []ledger.Entry{takes(1, "4-15,20-31"), takes(2, "0", mem(0, 20))},
			request: binding(4, single, asking(gib(16))),
			reason:  at(memoryReason(why.TopologyPolicy, why.Memory, 16, 12, 1), on(0)),
		},
		"a machine that has not enough says so": {
			memory: on4(4, 4, 4, 4), request: binding(4, single, asking(gib(20))),
			reason: memoryReason(why.InsufficientMemory, why.Memory, 20, 16, 0),
		},
		"Restricted refuses resources that need different numbers of NUMA nodes": {
			memory: on4(8, 8, 8, 8), request: binding(4, restricted, asking(gib(12))),
			reason: why.Reason{Code: why.TopologyMismatch, Resource: why.Memory, Asked: 2, Free: 1},
		},
		"and the other way round": {
			memory: on4(8, 8, 8, 8), request: binding(12, restricted, asking(gib(4))),
			reason: why.Reason{Code: why.TopologyMismatch, Resource: why.Memory, Asked: 1, Free: 2},
		},
		"Restricted takes two NUMA nodes where both resources need two": {
			memory: on4(8, 8, 8, 8), entries: []ledger.Entry{takes(1, "0", mem(0, 5))},
			request: binding(12, restricted, asking(gib(12))),
			cpus:    "8-13,24-29", placed: []align.Amount{mem(2, 6), mem(3, 6)},
		},
		"Restricted is refused while no two NUMA nodes have both": {
			memory: on4(8, 8, 8, 8), entries: []ledger.Entry{takes(1, "8-15,24-31"), takes(2, "0", mem(0, 5))},
			request: binding(12, restricted, asking(gib(12))),
			reason:  memoryReason(why.TopologyPolicy, why.Memory, 12, 11, 2),
		},
		"hugepage sizes are distinguished": {
			memory:  append(on4(32, 32, 32, 32), huge(0, 1), huge(1, 1), huge(2, 4)),
			request: binding(4, restricted, asking(gib(4), pages(2))),
			cpus:    "8-9,24-25", placed: []align.Amount{huge(2, 2), mem(2, 4)},
		},
		"hugepages that are short are named": {
			memory:  append(on4(32, 32, 32, 32), huge(0, 1), huge(1, 1), huge(2, 4)),
			entries: []ledger.Entry{takes(1, "8-15,24-31")},
			request: binding(4, restricted, asking(gib(4), pages(2))),
			reason:  at(memoryReason(why.TopologyPolicy, "hugepages-1Gi", 2, 1, 1), on(0)),
		},
		"a type that the machine does not report takes no part": {
			memory: on4(32, 32, 32, 32), request: binding(4, single, asking(gib(4), pages(2))), cpus: "0-1,16-17",
			placed: []align.Amount{mem(0, 4)},
		},
		"BestEffort spans the NUMA nodes that it needs, of one socket, and fills where the CPUs are": {
			memory: on4(8, 8, 8, 8), request: binding(4, bestEffort, asking(gib(12))), cpus: "0-1,16-17",
			placed: []align.Amount{mem(0, 8), mem(1, 4)},
		},
		"BestEffort goes where fewest NUMA nodes do": {
			memory: on4(8, 8, 8, 16), request: binding(4, bestEffort, asking(gib(12))), cpus: "12-13,28-29",
			placed: []align.Amount{mem(3, 12)},
		},
		"BestEffort leaves out memory that is not there": {
			memory: on4(8, 8, 8, 8), request: binding(4, bestEffort, asking(gib(33))), cpus: "0-1,16-17",
		},
		"without a policy memory takes no part": {
			memory: on4(8, 8, 8, 32), request: binding(4, asking(gib(12))), cpus: "0-1,16-17",
		},
		"memory is split in proportion to what is free": {
			memory: on4(9, 6, 3, 3), request: binding(16, restricted, asking(gib(10))), cpus: "0-7,16-23",
			placed: []align.Amount{mem(0, 6), mem(1, 4)},
		},
		"shared pools go where the memory is": {
			memory: on4(4, 4, 4, 32), request: sharing(4000, single, asking(gib(16))),
			placed: []align.Amount{mem(3, 16)},
		},
		"shared pools without the memory": {
			memory: on4(4, 4, 4, 15), request: sharing(4000, single, asking(gib(15))),
			entries: []ledger.Entry{confined(8000, 3)},
			reason:  at(memoryReason(why.TopologyPolicy, why.Memory, 15, 4, 1), on(0)),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ledger.New(ledger.Facts{Machine: worked(t), Amounts: test.memory, MinSharedCPUs: 0},
				test.entries...).View()
			offer, reason := place.Try(v, test.request)
			if reason != test.reason {
				t.Fatalf("got %+v, want %+v", reason, test.reason)
			}
			if offer.Entry.CPUList != test.cpus {
				t.Errorf("got CPUs %s, want %s", offer.Entry.CPUList, test.cpus)
			}
			got := offer.Entry
			if diff := cmp.Diff(ledger.Entry{
				CPUList: got.CPUList, Role: got.Role, NUMAIDs: got.NUMAIDs,
				Amounts: test.placed,
			}, ledger.Entry{
				CPUList: got.CPUList, Role: got.Role, NUMAIDs: got.NUMAIDs,
				Amounts: got.Amounts,
			},
				cmp.Comparer(ledger.Entry.Equal)); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClosestNUMANodesAreChosen is on a ring of four NUMA nodes: 0-2 and 1-3 are far from each other.
func TestClosestNUMANodesAreChosen(t *testing.T) {
	t.Parallel()
	s := spec(1, 4, 4, 2)
	for i := range 4 {
		row := []int{20, 20, 20, 20}
		row[i], row[(i+2)%4] = 10, 32
		s.NUMA = append(s.NUMA, topo.NUMASpec{ID: i, Distances: row})
	}
	m := grid.Build(t, s)
	f := ledger.Facts{Machine: m, Topology: hint.Restricted, Amounts: on4(8, 2, 8, 8)}
	offer, reason := place.Try(ledger.New(f).View(), binding(12, asking(gib(12))))
	if !reason.OK() || offer.Nodes != 0b1001 {
		t.Errorf("exclusive: got %b (%+v), want 1001: 0 and 2 are far from each other", offer.Nodes, reason)
	}
	offer, reason = place.Try(ledger.New(f).View(), sharing(12000, asking(gib(12))))
	if !reason.OK() || offer.Nodes != 0b1001 {
		t.Errorf("shared: got %b (%+v), want 1001", offer.Nodes, reason)
	}
	f.Amounts = nil
	offer, reason = place.Try(ledger.New(f, confined(4000, 1)).View(), sharing(12000))
	if !reason.OK() || offer.Nodes != 0b11 {
		t.Errorf("shared without memory: got %b (%+v), want 11", offer.Nodes, reason)
	}
}

// TestScoreFollowsSocketsThenDistances: a pod of two NUMA nodes on machines from best to worst; what the strategy says
// counts only between equal ones. Machines from the nearest to the farthest distance of a band are equal.
func TestScoreFollowsSocketsThenDistances(t *testing.T) {
	t.Parallel()
	worst, best := place.Usage{MilliCPU: 1, AllocatableMilliCPU: 1, Memory: 1, AllocatableMemory: 1},
		place.Usage{AllocatableMilliCPU: 1, AllocatableMemory: 1}
	last, lastWorst := int64(50), int64(50) // below every machine where one NUMA node does
	for _, shape := range []struct{ sockets, nearest, farthest int }{
		{1, 10, 17},
		{1, 18, 25},
		{1, 26, 33},
		{1, 34, 254},
		{2, 10, 17},
		{2, 18, 25},
		{2, 26, 33},
		{2, 34, 254},
	} {
		scores := func(distance int) (high, low int64) {
			s := spec(shape.sockets, 2/shape.sockets, 4, 2)
			s.NUMA = []topo.NUMASpec{
				{ID: 0, Distances: []int{10, distance}},
				{ID: 1, Distances: []int{distance, 10}},
			}
			m := grid.Build(t, s)
			v := ledger.New(ledger.Facts{Machine: m, Topology: hint.Restricted, Amounts: on4(8, 8)}).View()
			r := binding(12, asking(gib(12)))
			return place.Score(v, r, best, cpualloc.LeastAllocated), place.Score(v, r, worst, cpualloc.LeastAllocated)
		}
		high, low := scores(shape.nearest)
		if high >= last || high > lastWorst || low < 25 || low > high {
			t.Errorf("%d sockets, distance %d: %d to %d, want less than %d and at most %d, from 25 on", shape.sockets,
				shape.nearest, low, high, last, lastWorst)
		}
		if far, farWorst := scores(shape.farthest); far != high || farWorst != low {
			t.Errorf("%d sockets, distance %d: %d to %d, want what distance %d has, %d to %d", shape.sockets,
				shape.farthest, farWorst, far, shape.nearest, low, high)
		}
		last, lastWorst = high, low
	}
	s := spec(1, 3, 2, 2)
	m := grid.Build(t, s)
	v := ledger.New(ledger.Facts{Machine: m, Topology: hint.BestEffort, Amounts: on4(4, 4, 4)}).View()
	if got := place.Score(v, binding(2, asking(gib(9))), best, cpualloc.LeastAllocated); got < 12 || got > 24 {
		t.Errorf("CPUs on one NUMA node, memory on three: %d, want 12 to 24", got)
	}
}

// TestSingleNUMANodeIsTheTightest: what it grants, Restricted and BestEffort grant too, on one NUMA node.
func TestSingleNUMANodeIsTheTightest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		drawn, r := drawView(t), drawRequest(t)
		r.OnPolicyNodes = nil
		f := *drawn.Facts()
		try := func(p hint.Policy) (ledger.Offer, why.Reason) {
			f.Topology, r.Topology = p, p
			return place.Try(ledger.New(f, entriesOf(drawn)...).View(), r)
		}
		if _, reason := try(hint.SingleNUMANode); !reason.OK() {
			return
		}
		for _, p := range []hint.Policy{hint.Restricted, hint.BestEffort} {
			offer, reason := try(p)
			if !reason.OK() {
				t.Fatalf("%v refuses what SingleNUMANode grants: %+v", p, reason)
			}
			even := f.Strategy == cpualloc.DistributeEvenly && p == hint.BestEffort // splits where it can
			if offer.Nodes.Len() > 1 && !even {
				t.Fatalf("%v takes NUMA nodes %b where one would do", p, offer.Nodes)
			}
		}
	})
}

// TestFreeMemoryNeverRefuses: a pod that fits still does when other pods let go of their memory. One that minds other
// pods is left out: a pod whose memory was all that it had on a NUMA node becomes one of the other kind.
func TestFreeMemoryNeverRefuses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, r := drawView(t), drawRequest(t)
		if r.NUMAExclusive = place.ShareNUMANodes; r.OnPolicyNodes != nil {
			r.OnPolicyNodes.NUMAExclusive = place.ShareNUMANodes
		}
		if !place.Fits(v, r).OK() {
			return
		}
		entries := entriesOf(v)
		for i := range entries {
			if rapid.Bool().Draw(t, "lets go") {
				entries[i].Amounts = nil
			}
		}
		if reason := place.Fits(ledger.New(*v.Facts(), entries...).View(), r); !reason.OK() {
			t.Fatalf("refused with more memory free: %+v", reason)
		}
	})
}

// TestCommittedMemoryComesBack: the account after commit and revert is the one before, and while a pod is there its
// memory is gone.
func TestCommittedMemoryComesBack(t *testing.T) {
	t.Parallel()
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		drawn, r := drawView(t), drawRequest(t)
		account := ledger.New(*drawn.Facts(), entriesOf(drawn)...)
		before := account.View()
		offer, reason := place.Try(before, r)
		if !reason.OK() {
			return
		}
		testkit.Check(t, account.Commit(offer))
		for _, a := range offer.Entry.Amounts {
			was, now := align.Find(before.Summary().Rows, a.Resource).Free[a.NUMAID],
				align.Find(account.View().Summary().Rows, a.Resource).Free[a.NUMAID]
			if was-now != a.N {
				t.Fatalf("%+v took %d bytes", a, was-now)
			}
			held++
		}
		account.Revert(offer)
		if !account.View().Equal(before) {
			t.Fatalf("got %+v, want %+v", account.View().Summary(), before.Summary())
		}
	})
	if held == 0 {
		t.Error("no pod held memory: the generator is too narrow")
	}
}

// TestManyNUMANodes holds the bounded search: what Fits accepts Try grants, and all answers keep their promises. What
// it cannot decide it says.
func TestManyNUMANodes(t *testing.T) {
	t.Parallel()
	granted, undecided := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := spec(rapid.IntRange(1, 4).Draw(t, "sockets"), rapid.IntRange(5, 12).Draw(t, "NUMA nodes"),
			rapid.IntRange(1, 2).Draw(t, "cores"), 1)
		m := grid.Build(t, s)
		f := ledger.Facts{
			Machine: m, Amounts: drawMemory(t, m, 30),
			Strategy: rapid.SampledFrom([]cpualloc.Strategy{0, 1}).Draw(t, "strategy"),
			Topology: rapid.SampledFrom([]hint.Policy{1, 2, 2, 3}).Draw(t, "policy"),
		}
		var entries []ledger.Entry
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			entries = append(entries, ledger.Entry{
				UID: fmt.Sprint("pod-", i), Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: fmt.Sprint(i),
				Amounts: drawMemory(t, m, 9),
			})
		}
		v, r := ledger.New(f, entries...).View(), drawRequest(t)
		r.OnPolicyNodes, r.ConstrainedBurst = nil, false
		fits := place.Fits(v, r)
		offer, reason := place.Try(v, r)
		if fits != reason {
			t.Fatalf("Fits says %+v, Try says %+v", fits, reason)
		}
		checkReason(t, reason)
		if reason.Code == why.TopologyUndecided {
			undecided++
		}
		if reason.OK() {
			checkMemory(t, v, r, offer)
			if len(offer.Entry.Amounts) > 0 {
				granted++
			}
		}
	})
	t.Logf("%d granted with memory, %d undecided", granted, undecided)
	if granted == 0 {
		t.Error("no pod was granted memory: the generator is too narrow")
	}
}

// TestTheSearchOfManyNUMANodesSaysWhereItEnds has 40 NUMA nodes, each of which has the less of one type of memory the
// more it has of the other, so that no bound cuts the search short.
func TestTheSearchOfManyNUMANodesSaysWhereItEnds(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{Machine: machine(t, 4, 10, 4, 1), Topology: hint.Restricted}
	var entries []ledger.Entry
	amounts := func(numa int, ordinary, huge int64) []align.Amount {
		return []align.Amount{
			{NUMAID: numa, Resource: "memory", N: ordinary},
			{NUMAID: numa, Resource: "hugepages-1", N: huge},
		}
	}
	for i := range 40 {
		f.Amounts = append(f.Amounts, amounts(i, 750, 750)...)
		free := 550 + int64(i*37%200)
		entries = append(entries, ledger.Entry{
			UID: fmt.Sprint("pod-", i), Class: qos.LS, Role: qos.SharedPool, NUMAIDs: []int{i},
			Amounts: amounts(i, 750-free, free-550),
		})
	}
	v := ledger.New(f, entries...).View()
	r := binding(32, asking(align.Need{Resource: "memory", N: 5251}, align.Need{Resource: "hugepages-1", N: 5251}))
	want := why.Reason{Code: why.TopologyUndecided, Resource: why.CPU, Extra: 8}
	if reason := place.Fits(v, r); reason != want {
		t.Errorf("Fits says %+v, want %+v", reason, want)
	}
	if _, reason := place.Try(v, r); reason != want {
		t.Errorf("Try says %+v, want %+v", reason, want)
	}
	r.Needs[1].N = 5200
	f.Topology = hint.BestEffort
	if offer, reason := place.Try(ledger.New(f, entries...).View(), r); !reason.OK() ||
		offer.Nodes.Len() > 9 {
		t.Errorf("BestEffort takes %b (%+v), want at most 9 NUMA nodes", offer.Nodes, reason)
	}
}
