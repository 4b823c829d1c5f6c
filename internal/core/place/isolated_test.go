package place_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func isolation(i place.Isolation) func(*place.Request) {
	return func(r *place.Request) { r.Isolated = i }
}

// isolating is a machine of 16 CPUs whose boot has isolated some: one thread per core, and one NUMA node, unless
// changes say more. CPUs 8-15 are on NUMA node 1 if there are two.
func isolating(t *testing.T, nodes, threads int, isolated string, changes ...func(*ledger.Facts)) ledger.Facts {
	t.Helper()
	f := ledger.Facts{
		Machine: grid.Build(t, spec(1, nodes, 16/nodes/threads, threads)), Isolated: cpuset.MustParse(isolated),
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func holds(uid string, role qos.Role, cpus string) ledger.Entry {
	return ledger.Entry{UID: uid, Name: uid, Class: qos.LSE, Role: role, CPUList: cpus}
}

// TestIsolatedCPUsAreGivenAsAsked has a case for each rule of the term, beside each policy that it meets.
func TestIsolatedCPUsAreGivenAsAsked(t *testing.T) {
	t.Parallel()
	const require, prefer = place.RequireIsolated, place.PreferIsolated
	static := func(f *ledger.Facts) { f.Model.Config.CPU.Static = true }
	for name, c := range map[string]struct {
		facts   ledger.Facts
		entries []ledger.Entry
		request *place.Request
		cpus    string
		code    why.Code
		free    int64
	}{
		"absent: none is taken": {isolating(t, 1, 1, "4-7"), nil, binding(2), "0-1", why.None, 0},
		"absent: none is taken where no other is left": {
			isolating(t, 1, 1, "0-3"),
			[]ledger.Entry{holds("a", qos.Exclusive, "4-15")},
			binding(1), "",
			why.InsufficientExclusiveCPU, 0,
		},
		"prefer: isolated ones": {isolating(t, 1, 1, "4-7"), nil, binding(2, isolation(prefer)), "4-5", why.None, 0},
		"prefer, more than are isolated: none of them": {
			isolating(t, 1, 1, "4-7"), nil, binding(6, isolation(prefer)), "0-3,8-9", why.None, 0,
		},
		"prefer, a node without isolated CPUs": {
			isolating(t, 1, 1, ""), nil, binding(2, isolation(prefer)), "0-1", why.None, 0,
		},
		"prefer, isolated ones on more NUMA nodes than others": {
			isolating(t, 2, 1, "6-9"), nil, binding(4, isolation(prefer)), "0-3", why.None, 0,
		},
		"prefer, as many NUMA nodes either way": {
			isolating(t, 2, 1, "4-7,12-15"),
			[]ledger.Entry{holds("a", qos.Exclusive, "0-2,8-10")},
			binding(2, isolation(prefer)), "4-5", why.None, 0,
		},
		"prefer, only isolated ones are left": {
			isolating(t, 1, 1, "4-7"),
			[]ledger.Entry{holds("a", qos.Exclusive, "0-3,8-15")},
			binding(3, isolation(prefer)), "4-6", why.None, 0,
		},
		"require, as many as there are": {
			isolating(t, 1, 1, "4-7"), nil, binding(4, isolation(require)), "4-7", why.None, 0,
		},
		"require, more than there are": {
			isolating(t, 1, 1, "4-7"), nil, binding(6, isolation(require)), "", why.InsufficientIsolatedCPU, 4,
		},
		"require, another pod has some": {
			isolating(t, 1, 1, "4-7"),
			[]ledger.Entry{holds("a", qos.ExclusiveWithBE, "4-5")},
			binding(3, isolation(require)), "", why.InsufficientIsolatedCPU, 2,
		},
		"require, a node without isolated CPUs": {
			isolating(t, 1, 1, ""), nil, binding(1, isolation(require)), "", why.InsufficientIsolatedCPU, 0,
		},
		"require, offline and reserved ones do not count": {
			isolating(t, 1, 1, "4-7", func(f *ledger.Facts) {
				f.NodeReserved, f.System = cpuset.Of(4), cpuset.Of(5)
			}), nil, binding(3, isolation(require)), "", why.InsufficientIsolatedCPU, 2,
		},
		"require, the kubelet's static policy reserves them": {
			isolating(t, 1, 1, "4-7", static, func(f *ledger.Facts) {
				f.Model.Config.CPU.Reserved = cpuset.MustParse("0,4-6")
			}), nil, binding(2, isolation(require)), "", why.InsufficientIsolatedCPU, 1,
		},
		"require, the floor of the shared pool does not bound them": {
			isolating(t, 1, 1, "4-7", func(f *ledger.Facts) { f.MinSharedCPUs = 12 }), nil,
			binding(4, isolation(require)), "4-7", why.None, 0,
		},
		"require, promises to LS pods do not bound them": {
			isolating(t, 1, 1, "4-7"),
			[]ledger.Entry{{UID: "a", Class: qos.LS, Role: qos.SharedPool, NUMAIDs: []int{0}, MilliCPU: 12000}},
			binding(4, isolation(require)), "4-7", why.None, 0,
		},
		"require whole cores: both threads must be isolated": {
			isolating(t, 1, 2, "3-5,12-13"), nil,
			binding(4, isolation(require), required(place.WantFullPCPUs)), "4-5,12-13", why.None, 0,
		},
		"require whole cores: too few of them": {
			isolating(t, 1, 2, "3-5,12"), nil,
			binding(4, isolation(require), required(place.WantFullPCPUs)), "", why.InsufficientIsolatedCPU, 2,
		},
		"require whole cores: half a core": {
			isolating(t, 1, 2, "4-7"), nil, binding(3, isolation(require), required(place.WantFullPCPUs)), "",
			why.SMTAlignment, 0,
		},
		"require one thread of each core": {
			isolating(t, 1, 2, "4,7,12"), nil,
			binding(2, isolation(require), required(place.WantSpreadByPCPUs)), "4,7", why.None, 0,
		},
		"require, isolated threads of cores that are not isolated as a whole": {
			isolating(t, 1, 2, "0,2,4"), nil, binding(2, isolation(require)), "0,2", why.None, 0,
		},
		"require on one NUMA node": {
			isolating(t, 2, 1, "6-8,10-11"), nil,
			binding(3, isolation(require), policy(hint.SingleNUMANode)), "8,10-11", why.None, 0,
		},
		"require on one NUMA node: none has enough": {
			isolating(t, 2, 1, "6-9"), nil, binding(3, isolation(require), policy(hint.SingleNUMANode)), "",
			why.TopologyPolicy, 2,
		},
		"prefer on one NUMA node: other CPUs": {
			isolating(t, 2, 1, "6-9"), nil, binding(3, isolation(prefer), policy(hint.SingleNUMANode)), "0-2",
			why.None, 0,
		},
		"require, restricted: as many NUMA nodes as isolated CPUs need on an empty machine": {
			isolating(t, 2, 1, "6-9"), nil, binding(4, isolation(require), policy(hint.Restricted)), "6-9",
			why.None, 0,
		},
		"require, restricted: not more NUMA nodes": {
			isolating(t, 2, 1, "6-10"),
			[]ledger.Entry{holds("a", qos.Exclusive, "10")},
			binding(3, isolation(require), policy(hint.Restricted)), "", why.TopologyPolicy, 2,
		},
		"require with memory of the same NUMA node": {
			isolating(t, 2, 1, "6-7,14-15", func(f *ledger.Facts) {
				f.Amounts = []align.Amount{
					{NUMAID: 0, Resource: why.Memory, N: 1}, {NUMAID: 1, Resource: why.Memory, N: 9},
				}
			}), nil, binding(2, isolation(require), policy(hint.SingleNUMANode), func(r *place.Request) {
				r.Needs = []align.Need{{Resource: why.Memory, N: 5}}
			}), "14-15", why.None, 0,
		},
		"a pod that binds on this node alone": {
			isolating(t, 1, 1, "4-7", func(f *ledger.Facts) { f.Bind = ledger.FullPCPUsOnly }), nil,
			func() *place.Request {
				bound, r := binding(2, isolation(prefer)), sharing(2000, isolation(prefer))
				r.OnPolicyNodes = bound
				return r
			}(), "4-5", why.None, 0,
		},
		"no tick: before others, and after whole cores": {
			isolating(t, 1, 2, "", func(f *ledger.Facts) { f.NoTick = cpuset.MustParse("5-6,13-14") }),
			[]ledger.Entry{holds("a", qos.Exclusive, "5")},
			binding(2), "6,14", why.None, 0,
		},
		"no tick: first of the isolated ones": {
			isolating(t, 1, 1, "4-7", func(f *ledger.Facts) { f.NoTick = cpuset.MustParse("6-9") }), nil,
			binding(3, isolation(require)), "4,6-7", why.None, 0,
		},
		"no tick: the NUMA node that has such CPUs, of equal ones": {
			isolating(t, 2, 1, "", func(f *ledger.Facts) { f.NoTick = cpuset.MustParse("12-13") }), nil, binding(2),
			"12-13", why.None, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := ledger.New(c.facts, c.entries...)
			offer, reason := place.Try(account.View(), c.request)
			if reason.Code != c.code || offer.Entry.CPUList != c.cpus || c.free != 0 && reason.Free != c.free {
				t.Fatalf("got CPUs %q, %v with %d free; want %q, %v with %d", offer.Entry.CPUList, reason.Code,
					reason.Free, c.cpus, c.code, c.free)
			}
			if fits := place.Fits(account.View(), c.request); fits != reason {
				t.Errorf("Fits says %+v, Try says %+v", fits, reason)
			}
			before := account.View().SharedPool()
			if !reason.OK() {
				return
			}
			if err := account.Commit(offer); err != nil {
				t.Fatal(err)
			}
			v := account.View()
			be, pool := v.BEPool(), v.SharedPool()
			if be.Overlaps(&c.facts.Isolated) || pool != before.Minus(offer.CPUs) {
				t.Errorf("then the BE pool is %s and the LS pool %s, before it was %s", be, pool, before)
			}
		})
	}
}

// TestAFollowedKubeletMustHappenToGiveIsolatedCPUs: the kubelet chooses the lowest CPUs, and does not know isolcpus.
func TestAFollowedKubeletMustHappenToGiveIsolatedCPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		isolated string
		wish     place.Isolation
		want     why.Code
	}{
		"require, it gives isolated ones": {"1,9", place.RequireIsolated, why.None},
		"require, it gives one other":     {"1-8", place.RequireIsolated, why.InsufficientIsolatedCPU},
		"prefer":                          {"4-5", place.PreferIsolated, why.None},
	} {
		f := guardedFacts(t, 2, ledger.Follow, hint.None)
		f.Isolated = cpuset.MustParse(c.isolated)
		r := pinnedRequest("new", 2, 1)
		r.Class, r.Role, r.CPUs, r.Isolated = qos.LSR, qos.ExclusiveWithBE, 2, c.wish
		offer, reason := place.Try(ledger.New(f).View(), r)
		if reason.Code != c.want {
			t.Errorf("%s: got %+v of %+v, want %v", name, reason, offer.Entry.Guest, c.want)
		}
	}
}

// TestANodeThatMeetsThePreferenceRanksFirst: one that has no isolated CPUs left breaks it.
func TestANodeThatMeetsThePreferenceRanksFirst(t *testing.T) {
	t.Parallel()
	f := isolating(t, 1, 1, "4-7")
	r := binding(2, isolation(place.PreferIsolated))
	met := place.Score(ledger.New(f).View(), r, place.Usage{}, cpualloc.MostAllocated)
	full := ledger.New(f, holds("a", qos.Exclusive, "4-6")).View()
	if broken := place.Score(full, r, place.Usage{}, cpualloc.MostAllocated); met < 50 || broken != 0 {
		t.Errorf("the node that meets the preference has %d points, the other one %d", met, broken)
	}
}

// TestAReservationKeepsIsolatedCPUsForItsPods: a pod within it gets them if it asks for isolated CPUs as well.
func TestAReservationKeepsIsolatedCPUsForItsPods(t *testing.T) {
	t.Parallel()
	reserve := holds("r", qos.Exclusive, "4-5")
	reserve.Reserves = true
	account := ledger.New(isolating(t, 1, 1, "4-7"), reserve)
	r := binding(2, isolation(place.RequireIsolated))
	if offer, reason := place.Try(account.View(), r); !reason.OK() || offer.Entry.CPUList != "6-7" {
		t.Errorf("a pod outside got %q, %+v; want 6-7", offer.Entry.CPUList, reason)
	}
	inside := account.View().Inside("r")
	offer, reason := place.Try(inside, r)
	if !reason.OK() || offer.Entry.CPUList != "4-5" {
		t.Errorf("a pod inside got %q, %+v; want 4-5", offer.Entry.CPUList, reason)
	}
	if _, reason := place.Try(inside, binding(2)); reason.Code != why.InsufficientExclusiveCPU {
		t.Errorf("a pod inside that asks for no isolated CPU: %+v", reason)
	}
	offer.Entry.Within, offer.Version = "r", account.View().Version()
	if err := account.Commit(offer); err != nil {
		t.Error(err)
	}
}
