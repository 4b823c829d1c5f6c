package ledger_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// cases is how many random histories each property meets, unless -rapid.checks says otherwise.
const cases = 1_000

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(cases)); err != nil {
		panic(err)
	}
	m.Run()
}

func lse(uid, cpus string) ledger.Entry {
	return ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Class: qos.LSE, Role: qos.Exclusive, CPUList: cpus}
}

func lsr(uid, cpus string) ledger.Entry {
	return ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: cpus}
}

func confined(uid string, milli int64, numa ...int) ledger.Entry {
	return ledger.Entry{
		UID: uid, Namespace: "ns", Name: uid, Class: qos.LS, Role: qos.SharedPool, NUMAIDs: numa,
		MilliCPU: milli,
	}
}

func pin(uid, cpus string) tenancy.Grant {
	return tenancy.Grant{UID: uid, Namespace: "ns", Name: uid, CPUs: cpuset.MustParse(cpus)}
}

// taking is a guest to which a static kubelet gives some CPUs.
func taking(cpus int) *tenancy.Guest { return &tenancy.Guest{Pod: guaranteed("g", cpus, 0, 0)} }

// count makes a static kubelet one whose behaviour is not known.
func count(tb interface{ Fatalf(string, ...any) }, f *ledger.Facts) {
	if f.Machine == nil || !f.Model.Config.CPU.Static {
		return
	}
	f.Model.Node, f.Model.Fault = kubelet.NewNode(f.Machine, kubelet.Counting(f.Model.Config.CPU), kubelet.Inventory{})
	if !f.Model.Fault.OK() {
		tb.Fatalf("the kubelet of the test is refused: %+v", f.Model.Fault)
	}
}

// freeOfKubelet is the largest number of CPUs that a kubelet still gives to a pod; -1 when it gives none to any.
func freeOfKubelet(v *ledger.View) int {
	fits := func(n int) bool { return v.Admits(guaranteed("new", n, 0, 0)).OK() }
	n := v.Machine().NumCPUs() + 1
	if fits(n) {
		return -1
	}
	for !fits(n) {
		n--
	}
	return n
}

func TestPools(t *testing.T) {
	t.Parallel()
	static := func(options func(*ledger.Facts)) func(*ledger.Facts) {
		return func(f *ledger.Facts) {
			f.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0,16")}
			f.MinSharedCPUs = -1
			if options != nil {
				options(f)
			}
		}
	}
	tests := map[string]struct {
		facts                   func(*ledger.Facts)
		entries                 []ledger.Entry
		shared, be, allocatable string
		kstatic                 string
		floor, kubeletFree      int
	}{
		"the worked example": {
			facts:   static(func(f *ledger.Facts) { f.Given = []tenancy.Grant{pin("k", "3,19")} }),
			entries: []ledger.Entry{lse("e", "1,17"), lsr("r", "2,18")},
			shared:  "0,4-16,20-31", be: "0,2,4-16,18,20-31", allocatable: "4-15,20-31", kstatic: "3,19",
			floor: 2, kubeletFree: 28,
		},
		"a strict kubelet reservation leaves both pools": {
			facts:  static(func(f *ledger.Facts) { f.Model.Config.CPU.StrictReservation = true }),
			shared: "1-15,17-31", be: "1-15,17-31", allocatable: "1-15,17-31", floor: 2, kubeletFree: 30,
		},
		"a reservation counts for nothing while the kubelet is not static": {
			facts: func(f *ledger.Facts) {
				f.Model.Config.CPU = kubelet.CPU{Reserved: cpuset.MustParse("0,16")}
				f.MinSharedCPUs = -1
			},
			shared: "0-31", be: "0-31", allocatable: "0-31", floor: 2, kubeletFree: -1,
		},
		"a pin of a pod that Tenon decides about is not KSTATIC": {
			facts:   static(func(f *ledger.Facts) { f.Given = []tenancy.Grant{pin("ls", "3,19"), pin("g", "4,20")} }),
			entries: []ledger.Entry{{UID: "ls", Class: qos.LS}, {UID: "g", Role: qos.KubeletPinned, Guest: taking(2)}},
			shared:  "0-3,5-19,21-31", be: "0-3,5-19,21-31", allocatable: "1-3,5-15,17-19,21-31", kstatic: "4,20",
			floor: 2, kubeletFree: 26,
		},
		"a pod of class LSR that another scheduler bound keeps what the kubelet pinned": {
			facts:   static(func(f *ledger.Facts) { f.Given = []tenancy.Grant{pin("r", "3,19")} }),
			entries: []ledger.Entry{{UID: "r", Class: qos.LSR, Role: qos.ExclusiveWithBE, Guest: taking(2)}},
			shared:  "0-2,4-18,20-31", be: "0-2,4-18,20-31", allocatable: "1-2,4-15,17-18,20-31", kstatic: "3,19",
			floor: 2, kubeletFree: 28,
		},
		"what the kubelet pinned for a pod with CPUs of ours is not KSTATIC": {
			facts:   static(func(f *ledger.Facts) { f.Given = []tenancy.Grant{pin("r", "3,19")} }),
			entries: []ledger.Entry{lsr("r", "2,18")},
			shared:  "0-1,3-17,19-31", be: "0-31", allocatable: "1,3-15,17,19-31", floor: 2, kubeletFree: 28,
		},
		"the kubelet counts a pod before it has pinned it": {
			facts:   static(nil),
			entries: []ledger.Entry{{UID: "g", Guest: taking(4)}},
			shared:  "0-31", be: "0-31", allocatable: "1-15,17-31", floor: 2, kubeletFree: 26,
		},
		"with full-pcpus-only a broken core is nothing to the kubelet": {
			facts: static(func(f *ledger.Facts) {
				f.Model.Config.CPU.FullPCPUsOnly = true
				f.Model.Config.CPU.Reserved = cpuset.MustParse("0")
				f.Given = []tenancy.Grant{pin("old", "5")}
			}),
			shared: "0-4,6-31", be: "0-4,6-31", allocatable: "1-4,6-31", kstatic: "5", floor: 1, kubeletFree: 28,
		},
		"isolated CPUs leave every pool": {
			facts: func(f *ledger.Facts) {
				f.Isolated, f.MinSharedCPUs = cpuset.MustParse("4-7,20-23"), 5
			},
			entries: []ledger.Entry{lse("e", "1,17"), lsr("r", "4,20")},
			shared:  "0,2-3,8-16,18-19,24-31", be: "0,2-3,8-16,18-19,24-31", allocatable: "0,2-3,8-16,18-19,24-31",
			floor: 5, kubeletFree: -1,
		},
		"node reservation and system CPUs leave every pool": {
			facts: func(f *ledger.Facts) {
				f.NodeReserved, f.System, f.MinSharedCPUs = cpuset.MustParse("0-1"), cpuset.MustParse("16"), 5
			},
			shared: "2-15,17-31", be: "2-15,17-31", allocatable: "2-15,17-31", floor: 5, kubeletFree: -1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ledger.Facts{Machine: worked(t)}
			test.facts(&f)
			count(t, &f)
			v := ledger.New(f, test.entries...).View()
			got := map[string]any{
				"shared": v.SharedPool().String(), "be": v.BEPool().String(), "allocatable": v.Allocatable().String(),
				"kstatic": v.KubeletStatic().String(), "floor": v.Floor(), "kubelet free": freeOfKubelet(v),
			}
			want := map[string]any{
				"shared": test.shared, "be": test.be, "allocatable": test.allocatable, "kstatic": test.kstatic,
				"floor": test.floor, "kubelet free": test.kubeletFree,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
		})
	}
}

func offerOf(l *ledger.Ledger, e ledger.Entry) ledger.Offer {
	o := ledger.Offer{Entry: e, Version: l.View().Version()}
	if m := l.View().Machine(); m != nil && e.CPUList != "" {
		o.CPUs, _, _ = m.ParseList(e.CPUList)
	}
	return o
}

func TestCommit(t *testing.T) {
	t.Parallel()
	t.Run("a second offer of the same view is expired", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		first, second := offerOf(l, lse("a", "0-1")), offerOf(l, lse("b", "2-3"))
		if err := l.Commit(first); err != nil {
			t.Fatalf("first commit: %v", err)
		}
		if err := l.Commit(second); !errors.Is(err, ledger.ErrExpired) {
			t.Errorf("second commit: got %v, want ErrExpired", err)
		}
	})
	t.Run("an offer of a taken CPU is refused and changes nothing", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)}, lsr("a", "0-1"))
		before := l.View()
		if err := l.Commit(offerOf(l, lse("b", "1-2"))); !errors.Is(err, ledger.ErrTaken) {
			t.Errorf("got %v, want ErrTaken", err)
		}
		if l.View() != before {
			t.Error("the refused offer changed the account")
		}
	})
	t.Run("a pod that has an entry cannot be committed again", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)}, lsr("a", "0-1"))
		if err := l.Commit(offerOf(l, lsr("a", "2-3"))); !errors.Is(err, ledger.ErrTaken) {
			t.Errorf("got %v, want ErrTaken", err)
		}
	})
	t.Run("an entry that names other CPUs than its offer is refused", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		o := offerOf(l, lsr("a", "0-1"))
		o.CPUs = cpuset.MustParse("0-2")
		if err := l.Commit(o); !errors.Is(err, ledger.ErrTaken) {
			t.Errorf("got %v, want ErrTaken", err)
		}
	})
	t.Run("an offer computed on a what-if view cannot be committed", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)}, lsr("a", "0-1"))
		o := offerOf(l, lsr("b", "0-1"))
		o.Version = l.View().Without("a").Version()
		if err := l.Commit(o); !errors.Is(err, ledger.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
	})
}

func TestAmend(t *testing.T) {
	t.Parallel()
	guarded := func(e ledger.Entry, cpus string) ledger.Entry {
		e.Guest = &tenancy.Guest{
			Pod: guaranteed(e.UID, 2, 0, 0),
			Prediction: &tenancy.Prediction{
				Model: "1.36", Gen: 1, Held: []kubelet.Held{{Container: "c", CPUList: cpus}},
			},
		}
		return e
	}
	t.Run("another prediction is the pod's, and Revert takes it back", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		was := offerOf(l, guarded(lsr("a", ""), "0-1"))
		testkit.Check(t, l.Commit(was))
		offer := offerOf(l, guarded(lsr("a", ""), "2-3"))
		testkit.Check(t, l.Amend(was, offer))
		if e, _ := l.View().Entry("a"); !e.Equal(offer.Entry) {
			t.Errorf("entry %+v, want %+v", e, offer.Entry)
		}
		l.Revert(was)
		if _, held := l.View().Entry("a"); !held {
			t.Error("Revert of the offer that was amended takes back the present one")
		}
		l.Revert(offer)
		if _, held := l.View().Entry("a"); held {
			t.Error("Revert of the present offer leaves its entry")
		}
	})
	t.Run("an offer of other CPUs is refused and changes nothing", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		was := offerOf(l, guarded(lsr("a", "0-1"), "0-1"))
		testkit.Check(t, l.Commit(was))
		before := l.View()
		if err := l.Amend(was, offerOf(l, guarded(lsr("a", "2-3"), "0-1"))); !errors.Is(err, ledger.ErrTaken) ||
			l.View() != before {
			t.Errorf("got %v, want ErrTaken and the account as it was", err)
		}
	})
}

func TestRevert(t *testing.T) {
	t.Parallel()
	t.Run("after Put confirmed the pod it does nothing", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		o := offerOf(l, lse("a", "0-1"))
		testkit.Check(t, l.Commit(o))
		version := l.View().Version()
		l.Put(o.Entry)
		if got := l.View().Version(); got != version {
			t.Errorf("a confirmation that changes nothing moved the version from %d to %d", version, got)
		}
		l.Revert(o)
		if _, ok := l.View().Entry("a"); !ok {
			t.Error("Revert removed a confirmed entry")
		}
	})
	t.Run("an old offer does not take back a newer one of the same pod", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		first := offerOf(l, lse("a", "0-1"))
		testkit.Check(t, l.Commit(first))
		l.Revert(first)
		testkit.Check(t, l.Commit(offerOf(l, lse("a", "2-3"))))
		l.Revert(first)
		if got := l.View().LSE().String(); got != "2-3" {
			t.Errorf("LSE CPUs: got %q, want 2-3", got)
		}
	})
	t.Run("a reverted offer remains expired", func(t *testing.T) {
		t.Parallel()
		l := ledger.New(ledger.Facts{Machine: worked(t)})
		o := offerOf(l, lse("a", "0-1"))
		testkit.Check(t, l.Commit(o))
		l.Revert(o)
		if err := l.Commit(o); !errors.Is(err, ledger.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
	})
}

// TestPutWithChangedCPUsReplacesTheOldOnes is L9.
func TestPutWithChangedCPUsReplacesTheOldOnes(t *testing.T) {
	t.Parallel()
	l := ledger.New(ledger.Facts{Machine: worked(t)}, lse("a", "0-1"))
	l.Put(lse("a", "4-5"))
	if got := l.View().LSE().String(); got != "4-5" {
		t.Errorf("LSE CPUs: got %q, want 4-5", got)
	}
}

func TestEntriesBeforeTheTopologyAreAccountedWhenItComes(t *testing.T) {
	t.Parallel()
	l := ledger.New(ledger.Facts{})
	l.Put(lse("a", "0-1"))
	l.Put(confined("s", 2000, 1))
	if v := l.View(); v.SharedPool() != (cpuset.Set{}) || len(v.Summary().Nodes) != 0 {
		t.Errorf("a node without topology has pool %v and %d NUMA nodes", v.SharedPool(), len(v.Summary().Nodes))
	}
	l.SetFacts(ledger.Facts{Machine: worked(t)})
	v := l.View()
	if got := v.LSE().String(); got != "0-1" {
		t.Errorf("LSE CPUs: got %q, want 0-1", got)
	}
	if got := v.Summary().Nodes[1].PoolMilli; got != 6000 {
		t.Errorf("NUMA node 1 has %d milli-CPU left, want 6000", got)
	}
	l.SetFacts(ledger.Facts{})
	if e, ok := l.View().Entry("a"); !ok || e.CPUList != "0-1" {
		t.Errorf("the entry is lost with the topology: %+v", e)
	}
}

// TestProblems is L10: what the machine does not have is dropped and reported.
func TestProblems(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Nodes: 2, Cores: 4, Offline: []int{3}}.Build(t)
	f := ledger.Facts{
		Machine: m, NodeReserved: cpuset.MustParse("0"),
		Model: kubelet.Facts{Config: kubelet.Config{
			CPU: kubelet.CPU{Static: true, Reserved: cpuset.MustParse("1")},
		}},
		Given: []tenancy.Grant{pin("pinned", "6")},
	}
	v := ledger.New(f, lse("a", "0,2-4,99"), lsr("b", "4-6"), lse("c", "x"), confined("d", 1000, 1, 7),
		lse("ok", "7")).View()
	want := []ledger.Problem{
		{UID: "a", Kind: ledger.Unknown, CPUs: "99"},
		{UID: "a", Kind: ledger.Offline, CPUs: "3"},
		{UID: "a", Kind: ledger.Reserved, CPUs: "0"},
		{UID: "a", Other: "b", Kind: ledger.HeldTwice, CPUs: "4"},
		{UID: "b", Other: "pinned", Kind: ledger.HeldTwice, CPUs: "6"},
		{UID: "c", Kind: ledger.Malformed, CPUs: "x"},
		{UID: "d", Kind: ledger.UnknownNUMA, CPUs: "7"},
		{UID: "d", Kind: ledger.Overcommitted, Debt: why.Reason{
			Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU, Asked: 1000,
			Where: why.Where{Scope: why.NUMA, Index: 1},
		}},
	}
	if diff := cmp.Diff(want, v.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := v.CPUsOf("a"); got != cpuset.MustParse("0,2,4") {
		t.Errorf("pod a holds %v, want 0,2,4", got)
	}
}

func TestStateListsHolders(t *testing.T) {
	t.Parallel()
	hold := func(e ledger.Entry, x cpualloc.Exclusive) ledger.Entry {
		e.Exclusive = x
		return e
	}
	entries := []ledger.Entry{
		hold(lse("a", "0,16"), cpualloc.PCPULevel), hold(lsr("b", "1,17"), cpualloc.NUMANodeLevel), lsr("c", "2,18"),
		hold(confined("d", 1500, 3), cpualloc.PCPULevel),
	}
	f := ledger.Facts{Machine: worked(t)}
	s := ledger.New(f, entries...).View().State()
	got := []string{s.Free.String(), s.PCPUHeld.String(), s.NUMAHeld.String()}
	if diff := cmp.Diff([]string{"3-15,19-31", "0,16", "1,17"}, got); diff != "" {
		t.Errorf("free, held by core and by NUMA node (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{8 - 6, 8, 8, 6}, s.Caps); diff != "" {
		t.Errorf("caps (-want +got):\n%s", diff)
	}
	f.ARM64 = true
	if s := ledger.New(f, entries...).View().State(); !s.PCPUHeld.IsEmpty() || s.NUMAHeld.IsEmpty() {
		t.Errorf("on arm64 only NUMANodeLevel exists; held %v and %v", s.PCPUHeld, s.NUMAHeld)
	}
}

func TestEntriesAreReadBack(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{Machine: worked(t)}, confined("s", 1000, 3, 1, 3), lse("a", "0-1"),
		lse("a", "2")).View()
	want := []ledger.Entry{lse("a", "2"), confined("s", 1000, 1, 3)}
	if diff := cmp.Diff(want, slices.Collect(v.Entries())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if cpus := v.CPUsOf("unknown"); !cpus.IsEmpty() {
		t.Errorf("an unknown pod holds %v", cpus)
	}
	for range v.Entries() {
		break
	}
}

func TestEqualFactsChangeNothing(t *testing.T) {
	t.Parallel()
	facts := func(pins ...tenancy.Grant) ledger.Facts { return ledger.Facts{Machine: worked(t), Given: pins} }
	l := ledger.New(facts(pin("a", "1"), pin("b", "2")))
	before := l.View()
	if l.SetFacts(facts(pin("b", "2"), pin("a", "1"))); l.View() != before {
		t.Error("equal facts in another order made a new view")
	}
	if l.SetFacts(facts(pin("a", "1"))); l.View().Version() == before.Version() ||
		l.View().KubeletStatic().String() != "1" {
		t.Errorf("changed facts: version %d, KSTATIC %v", l.View().Version(), l.View().KubeletStatic())
	}
	l = ledger.New(ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}})
	l.SetFacts(ledger.Facts{Fault: why.Reason{Code: why.InvalidTopology}})
	if l.View().Facts().Fault.Code != why.InvalidTopology {
		t.Error("another fault of the topology changed nothing")
	}
}

func TestSummaryLeavesConfinedPodsTheirShare(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		entries   []ledger.Entry
		reserved  string  // for the kubelet
		room      []int64 // of each NUMA node
		limits    []ledger.Limit
		promised  []int64
		usable    []int
		committed bool
	}{
		"no pod is confined": {
			room: []int64{8000, 8000, 8000, 8000}, promised: []int64{0, 0, 0, 0},
			usable: []int{8, 8, 8, 8},
		},
		"a pod on one NUMA node": {
			entries: []ledger.Entry{confined("a", 2500, 0)},
			room:    []int64{5500, 8000, 8000, 8000}, promised: []int64{2500, 0, 0, 0}, usable: []int{5, 8, 8, 8},
			committed: true,
		},
		"a pod on two NUMA nodes may use either": {
			entries: []ledger.Entry{confined("a", 3000, 0, 1), lsr("r", "0-3")},
			room:    []int64{4000, 8000, 8000, 8000}, limits: []ledger.Limit{{Nodes: 0b11, Group: 0b11, Milli: 9000}},
			promised: []int64{1000, 2000, 0, 0}, usable: []int{4, 8, 8, 8}, committed: true,
		},
		"a pod on two NUMA nodes beside one on one of them": {
			entries: []ledger.Entry{confined("b", 3000, 0), confined("a", 6000, 0, 1), lsr("r", "0-3")},
			room:    []int64{1000, 3000, 8000, 8000}, promised: []int64{5000, 4000, 0, 0},
			limits: []ledger.Limit{{Nodes: 0b11, Group: 0b11, Milli: 3000}}, usable: []int{1, 3, 8, 8},
			committed: true,
		},
		"a pod on two NUMA nodes leaves exactly the CPUs that the kubelet does not reserve": {
			entries: []ledger.Entry{confined("a", 3000, 0, 1)}, reserved: "0-2",
			room: []int64{8000, 8000, 8000, 8000}, limits: []ledger.Limit{{Nodes: 0b11, Group: 0b11, Milli: 13000}},
			promised: []int64{1500, 1500, 0, 0}, usable: []int{5, 8, 8, 8},
		},
		"pods that share one NUMA node": {
			entries: []ledger.Entry{confined("a", 12000, 0, 1), confined("b", 11000, 1, 2)},
			room:    []int64{1000, 1000, 1000, 8000}, promised: []int64{6000, 11500, 5500, 0},
			limits: []ledger.Limit{{Nodes: 0b111, Group: 0b111, Milli: 1000}}, usable: []int{1, 1, 1, 8},
			committed: true,
		},
		"a pool that exclusive pods emptied gives nothing": {
			entries: []ledger.Entry{confined("a", 1000, 0), lsr("r", "0-3,16-19")},
			room:    []int64{0, 8000, 8000, 8000}, promised: []int64{1000, 0, 0, 0}, usable: []int{0, 8, 8, 8},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ledger.Facts{Machine: worked(t)}
			f.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse(test.reserved)}
			s := ledger.New(f, test.entries...).View().Summary()
			var room, promised []int64
			var usable []int
			for i := range s.Nodes {
				room, promised = append(room, s.Nodes[i].PoolMilli), append(promised, s.Nodes[i].Promised)
				usable = append(usable, s.Usable[i].Free)
			}
			if diff := cmp.Diff(test.room, room); diff != "" {
				t.Errorf("room (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.limits, s.Limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.promised, promised); diff != "" {
				t.Errorf("promised (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.usable, usable); diff != "" {
				t.Errorf("usable CPUs (-want +got):\n%s", diff)
			}
			if s.Committed != test.committed {
				t.Errorf("committed: got %v, want %v", s.Committed, test.committed)
			}
		})
	}
}

// TestPoolsAreNotPromisedBeyondTheirSize is the account that let a fourth pod in: 3, 12 and 16 CPUs, of which two pods
// on two NUMA nodes each have 29898 milli-CPU.
func TestPoolsAreNotPromisedBeyondTheirSize(t *testing.T) {
	t.Parallel()
	l := ledger.New(ledger.Facts{Machine: threeNodes(t, 3, 12, 16)}, confined("a", 15854, 0, 2),
		confined("b", 14044, 0, 1))
	if got := l.View().Summary().Room(0b100); got != 31000-15854-14044 {
		t.Errorf("NUMA node 2 has room for %d milli-CPU, want %d", got, 31000-15854-14044)
	}
	err := l.Commit(ledger.Offer{Entry: confined("c", 2600, 2), Nodes: 0b100, Version: l.View().Version()})
	if !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("a commit beyond the pools: got %v, want ErrTaken", err)
	}
	err = l.Commit(ledger.Offer{Entry: lsr("r", "15-16"), CPUs: cpuset.Of(15, 16), Version: l.View().Version()})
	if !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("exclusive CPUs beyond what is left: got %v, want ErrTaken", err)
	}
	if err := l.Commit(ledger.Offer{
		Entry: confined("c", 1102, 2), Nodes: 0b100,
		Version: l.View().Version(),
	}); err != nil {
		t.Errorf("a commit of exactly the rest: %v", err)
	}
}

// threeNodes has one CPU a core, so many on each NUMA node.
func threeNodes(tb testing.TB, cpus ...int) *topo.Machine {
	tb.Helper()
	var spec topo.Spec
	for numa, n := range cpus {
		for range n {
			id := len(spec.CPUs)
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: id, Core: id, L3: -1, NUMA: numa})
		}
	}
	return grid.Build(tb, spec)
}

// TestManyConnectedNUMANodesAreNeverPromisedTooMuch has a chain of 20 NUMA nodes, with more unions than limits are kept
// for: who is given what there is room for takes nothing from others.
func TestManyConnectedNUMANodesAreNeverPromisedTooMuch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3), 20, 20).Draw(t, "pools")
		var spec topo.Spec
		for numa, n := range sizes {
			for range n {
				id := len(spec.CPUs)
				spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: id, Core: id, L3: -1, NUMA: numa})
			}
		}
		m := grid.Build(t, spec)
		var entries []ledger.Entry
		for i := range 19 {
			entries = append(entries, confined(fmt.Sprint("p", i), 1000*int64(rapid.IntRange(0, 2).Draw(t, "CPUs")), i,
				i+1))
		}
		s := ledger.New(ledger.Facts{Machine: m}, entries...).View().Summary()
		before := chainServed(sizes, entries)
		node := rapid.IntRange(0, 19).Draw(t, "NUMA node")
		room := s.Room(1 << node)
		after := chainServed(sizes, append(entries, confined("new", room/1000*1000, node)))
		if room < 0 || after != before+int(room/1000) {
			t.Fatalf("NUMA node %d has room for %d, pods get %d CPUs, %d before", node, room, after, before)
		}
	})
}

// chainServed is the most CPUs that pods on one NUMA node or on two neighbours get: from the left, each node serves
// first who can wait no longer.
func chainServed(sizes []int, entries []ledger.Entry) int {
	alone, pairs := make([]int, len(sizes)), make([]int, len(sizes)) // CPUs asked by the lowest NUMA node
	for _, e := range entries {
		if asked := int(e.MilliCPU / 1000); len(e.NUMAIDs) == 1 {
			alone[e.NUMAIDs[0]] += asked
		} else {
			pairs[e.NUMAIDs[0]] += asked
		}
	}
	served, carried := 0, 0
	for node, left := range sizes {
		must := min(alone[node]+carried, left)
		may := min(pairs[node], left-must)
		served, carried = served+must+may, pairs[node]-may
	}
	return served
}

func drawSet(t *rapid.T, m *topo.Machine, label string, most int) cpuset.Set {
	var s cpuset.Set
	for _, c := range rapid.SliceOfN(rapid.IntRange(0, m.NumCPUs()-1), 0, most).Draw(t, label) {
		s.Add(c)
	}
	return s
}

func drawFacts(t *rapid.T, m *topo.Machine) ledger.Facts {
	f := ledger.Facts{
		Machine:       m,
		ARM64:         rapid.Bool().Draw(t, "arm64"),
		NodeReserved:  drawSet(t, m, "node reserved", 2),
		System:        drawSet(t, m, "system", 1),
		Isolated:      drawSet(t, m, "isolated", 2),
		MinSharedCPUs: rapid.IntRange(-1, 3).Draw(t, "min shared"),
		Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{
			Static: rapid.Bool().Draw(t, "static"), FullPCPUsOnly: rapid.Bool().Draw(t, "full-pcpus-only"),
			StrictReservation: rapid.Bool().Draw(t, "strict reservation"),
			Reserved:          drawSet(t, m, "kubelet reserved", 2),
		}}},
	}
	for _, uid := range rapid.SliceOfNDistinct(rapid.SampledFrom(uids), 0, 2, rapid.ID).Draw(t, "pins") {
		f.Given = append(f.Given, tenancy.Grant{UID: uid, CPUs: drawSet(t, m, "pin", 3)})
	}
	f.Amounts = drawMemory(t, 9)
	count(t, &f)
	return f
}

var uids = []string{"a", "b", "c", "d", "e", "f", "g"}

// drawEntry draws any entry, with unknown and offline ids, overlaps and NUMA nodes that are not there.
func drawEntry(t *rapid.T) ledger.Entry {
	uid := rapid.SampledFrom(uids).Draw(t, "uid")
	e := ledger.Entry{UID: uid, Namespace: "ns", Name: uid}
	if cpus := rapid.IntRange(0, 2).Draw(t, "kubelet CPUs"); cpus > 0 {
		e.Guest = &tenancy.Guest{
			Pod:     guaranteed(uid, cpus, 0, 0),
			Created: int64(rapid.IntRange(0, 1).Draw(t, "created")),
		}
	}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0, 1:
		e.Class, e.Role = qos.LSR, qos.ExclusiveWithBE
		if rapid.Bool().Draw(t, "LSE") {
			e.Class, e.Role = qos.LSE, qos.Exclusive
		}
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 50), 0, 4, rapid.ID).Draw(t, "ids")
		slices.Sort(ids)
		e.CPUList = cpuset.FormatIDs(ids)
		e.Exclusive = rapid.SampledFrom([]cpualloc.Exclusive{0, 1, 2}).Draw(t, "exclusive")
	case 2, 3:
		e.Class, e.Role = qos.LS, qos.SharedPool
		e.NUMAIDs = rapid.SliceOfN(rapid.IntRange(0, 6), 0, 3).Draw(t, "NUMA ids")
		e.MilliCPU = int64(rapid.IntRange(0, 5000).Draw(t, "milli"))
	default:
		e.Role = rapid.SampledFrom([]qos.Role{qos.BEPool, qos.KubeletPinned, qos.SystemPool}).Draw(t, "role")
		e.Class = map[qos.Role]qos.Class{qos.BEPool: qos.BE, qos.SystemPool: qos.System}[e.Role]
	}
	e.Amounts = drawMemory(t, 4)
	return e
}

// TestLiveEqualsRebuild is L6, and in check L2, L3, L4 and L7. It drives a ledger through random events, repeated and
// replayed ones too, and after each of them compares it with one that is built from the same objects at once, and with
// the model.
func TestLiveEqualsRebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		machines := []*topo.Machine{drawMachine(t), drawMachine(t), nil}
		md := model{entries: map[string]ledger.Entry{}}
		l := ledger.New(ledger.Facts{})
		var committed []ledger.Offer
		var history []ledger.Entry
		assumed := map[string]uint64{} // version of the offer by pod
		put := func(e ledger.Entry) {
			l.Put(e)
			delete(assumed, e.UID)
			md.entries[e.UID] = e
			history = append(history, e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) { put(drawEntry(t)) },
			"replay": func(t *rapid.T) {
				if len(history) > 0 {
					put(rapid.SampledFrom(history).Draw(t, "old"))
				}
			},
			"remove": func(t *rapid.T) {
				uid := rapid.SampledFrom(uids).Draw(t, "uid")
				l.Remove(uid)
				delete(assumed, uid)
				delete(md.entries, uid)
			},
			"set facts": func(t *rapid.T) {
				md.facts = ledger.Facts{}
				if m := rapid.SampledFrom(machines).Draw(t, "machine"); m != nil {
					md.facts = drawFacts(t, m)
				}
				l.SetFacts(md.facts)
			},
			"commit": func(t *rapid.T) {
				o := offerOf(l, drawEntry(t))
				before := l.View()
				if err := l.Commit(o); err != nil {
					if l.View() != before {
						t.Fatalf("a refused commit (%v) changed the account", err)
					}
					return
				}
				free := before.Allocatable().Union(before.FreeIsolated())
				if !o.CPUs.SubsetOf(&free) { // L1
					t.Fatalf("committed CPUs %v, free were %v", o.CPUs, free)
				}
				md.entries[o.Entry.UID] = o.Entry
				assumed[o.Entry.UID] = o.Version
				committed = append(committed, o)
			},
			"revert": func(t *rapid.T) {
				if len(committed) == 0 {
					return
				}
				o := rapid.SampledFrom(committed).Draw(t, "offer")
				_, had := l.View().Entry(o.Entry.UID)
				l.Revert(o)
				if _, has := l.View().Entry(o.Entry.UID); had && !has {
					if version, ok := assumed[o.Entry.UID]; !ok || version != o.Version {
						t.Fatalf("Revert removed %q, which this offer did not make", o.Entry.UID)
					}
					delete(md.entries, o.Entry.UID)
				}
			},
			"": func(t *rapid.T) { check(t, l, &md) },
		})
	})
}

func check(t *rapid.T, l *ledger.Ledger, md *model) {
	v := l.View()
	entries := slices.Collect(maps.Values(md.entries))
	if rebuilt := ledger.New(md.facts, entries...).View(); !v.Equal(rebuilt) || !rebuilt.Equal(v) {
		t.Fatalf("live differs from rebuilt:\nlive %+v\nrebuilt %+v", v.Summary(), rebuilt.Summary())
	}
	if v.Machine() == nil {
		return
	}
	m := v.Machine()
	want := md.pools()
	got := pools{v.SharedPool(), v.BEPool(), v.Allocatable(), v.KubeletStatic(), v.LSE(), v.LSR(), v.FreeIsolated()}
	if got != want {
		t.Fatalf("pools: got %+v, want %+v", got, want)
	}
	shared, be, online := v.SharedPool(), v.BEPool(), m.Online()
	held := v.LSE().Union(v.LSR()).Union(v.KubeletStatic()).Union(v.Facts().NodeReserved.Intersect(online)).
		Union(v.Facts().System.Intersect(online))
	if k := v.Facts().Model.Config.CPU; k.Static && k.StrictReservation {
		held = held.Union(k.Reserved.Intersect(online))
	}
	if isolated := v.Facts().Isolated.Intersect(online); be.Overlaps(&isolated) || shared.Overlaps(&isolated) {
		t.Fatalf("isolated CPUs %v are in the BE pool %v or the LS pool %v", isolated, be, shared)
	}
	held = held.Union(v.Facts().Isolated.Intersect(online))
	if shared.Union(held) != online || shared.Overlaps(&held) { // L2
		t.Fatalf("LS pool %v and held %v do not divide online %v", shared, held, online)
	}
	if !shared.SubsetOf(&be) { // L3
		t.Fatalf("LS pool %v is not inside the BE pool %v", shared, be)
	}
	if exclusive := v.LSE(); be.Overlaps(&exclusive) { // L4
		t.Fatalf("BE pool %v overlaps LSE %v", be, exclusive)
	}
	checkMemory(t, v, md)
	var total ledger.NodeSummary
	rooms := md.rooms()
	for set, want := range rooms {
		if got := v.Summary().Room(topo.NodeSet(set)); got != want {
			t.Fatalf("NUMA nodes %b have room for %d, want %d: %+v", set, got, want, v.Summary())
		}
	}
	promised := int64(0)
	for _, e := range md.entries {
		if md.confinedTo(e) != 0 {
			promised += e.MilliCPU
		}
	}
	for _, n := range m.CPUNodes() { // L7
		want := md.node(n)
		want.PoolMilli, want.Promised = rooms[1<<n], v.Summary().Nodes[n].Promised
		promised -= want.Promised
		if diff := cmp.Diff(want, v.Summary().Nodes[n]); diff != "" {
			t.Fatalf("NUMA node %d (-want +got):\n%s", n, diff)
		}
		total.Free += want.Free
		total.FreeWhole += want.FreeWhole
		total.FreeCores += want.FreeCores
		total.PoolCPUs += want.PoolCPUs
		usable := v.Summary().Usable[n]
		if limit := int(want.PoolMilli / 1000); usable.Free != min(want.Free, limit) ||
			usable.FreeCores != min(want.FreeCores, limit) || usable.FreeWhole > limit {
			t.Fatalf("NUMA node %d: usable %+v of %+v", n, usable, want)
		}
	}
	s := v.Summary()
	if promised != 0 {
		t.Fatalf("%d milli-CPU are promised, the NUMA nodes say %d less", 1000*int64(s.PoolCPUs)-s.PoolMilli, promised)
	}
	if got := (ledger.NodeSummary{NodeCount: s.NodeCount, PoolCPUs: s.PoolCPUs}); got != total {
		t.Fatalf("totals: got %+v, want %+v", got, total)
	}
}

// TestCommitThenRevertIsIdentity is L5.
func TestCommitThenRevertIsIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.New(drawFacts(t, drawMachine(t)),
			rapid.SliceOfN(rapid.Custom(drawEntry), 0, 5).Draw(t, "entries")...)
		before := l.View()
		o := offerOf(l, drawEntry(t))
		if err := l.Commit(o); err != nil {
			t.Skip(err)
		}
		l.Revert(o)
		if !l.View().Equal(before) {
			t.Fatalf("got %+v, want %+v", l.View().Summary(), before.Summary())
		}
	})
}

func TestWithAndWithoutLeaveTheViewAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t, drawMachine(t))
		entries := rapid.SliceOfNDistinct(rapid.Custom(drawEntry), 0, 5,
			func(e ledger.Entry) string { return e.UID }).Draw(t, "entries")
		e := drawEntry(t)
		v := ledger.New(f, entries...).View()
		with, without := v.With(e), v.Without(e.UID)
		others := slices.DeleteFunc(slices.Clone(entries), func(o ledger.Entry) bool { return o.UID == e.UID })
		if !v.Equal(ledger.New(f, entries...).View()) {
			t.Fatal("With or Without changed the view")
		}
		if !with.Equal(ledger.New(f, append(slices.Clone(others), e)...).View()) {
			t.Fatal("With differs from a rebuilt account")
		}
		if !without.Equal(ledger.New(f, others...).View()) {
			t.Fatal("Without differs from a rebuilt account")
		}
		if _, ok := v.Entry(e.UID); ok && !v.With(e).Without(e.UID).Equal(without) {
			t.Fatal("Without after With differs from Without")
		}
	})
}

// TestClaimsEndWithTheLastPodThatUsesThem: pods leave and come back in any order, and the account is always one of the
// pods that are there and of the claims that these use.
func TestClaimsEndWithTheLastPodThatUsesThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pods := []string{"p0", "p1", "p2", "p3"}
		users := rapid.SliceOfN(rapid.SliceOfDistinct(rapid.SampledFrom(pods), rapid.ID), 1, 4).Draw(t, "users")
		there := map[string]bool{}
		account := func() *ledger.View {
			var entries []ledger.Entry
			for i, uid := range pods {
				if there[uid] && i > 0 { // one has nothing of its own
					entries = append(entries, ledger.Entry{UID: uid, Unallocated: true})
				}
			}
			for i, all := range users {
				e := ledger.Entry{UID: ledger.OfClaim + fmt.Sprint(i)}
				e.Users = slices.DeleteFunc(slices.Clone(all), func(uid string) bool { return !there[uid] })
				if len(e.Users) > 0 || len(all) == 0 { // a claim that no pod uses waits for one
					entries = append(entries, e)
				}
			}
			return ledger.New(ledger.Facts{}, entries...).View()
		}
		for _, uid := range pods {
			there[uid] = true
		}
		whole := account()
		v := whole
		for range 12 {
			uid := rapid.SampledFrom(pods).Draw(t, "pod")
			if there[uid] = !there[uid]; there[uid] {
				v = v.Return(uid, whole)
			} else {
				v = v.Leave(uid)
			}
			if want := account(); !v.Equal(want) {
				t.Fatalf("after %s: %v, want %v", uid, slices.Collect(v.Entries()), slices.Collect(want.Entries()))
			}
		}
		again := v
		for _, uid := range pods {
			if there[uid] {
				again = again.Return(uid, whole)
			}
		}
		if !again.Equal(v) {
			t.Fatalf("pods that have not left come back: %v, want %v", slices.Collect(again.Entries()),
				slices.Collect(v.Entries()))
		}
		if v.Leave("other") != v || v.Return("other", whole) != v {
			t.Fatal("a pod that has nothing changes the account")
		}
	})
}

func TestUpdateAllocatesAConstantNumberOfTimes(t *testing.T) {
	l := full(t, 250)
	few := testing.AllocsPerRun(100, func() { l.Put(lsr("pod-0007", "7,135")); l.Put(lsr("pod-0007", "8,136")) })
	if few > 30 {
		t.Errorf("two updates allocate %v times, want at most 30", few)
	}
}

// full returns an account of 256 CPUs on 8 NUMA nodes with n pods, one of two CPUs each while CPUs last.
func full(tb testing.TB, n int) *ledger.Ledger {
	tb.Helper()
	m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2}.Build(tb)
	var entries []ledger.Entry
	for i := range n {
		uid := fmt.Sprintf("pod-%04d", i)
		if i < 120 {
			entries = append(entries, lsr(uid, fmt.Sprintf("%d,%d", i, i+128)))
		} else {
			entries = append(entries, confined(uid, 10, i%8))
		}
	}
	return ledger.New(ledger.Facts{Machine: m}, entries...)
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{10, 50, 250} {
		b.Run(fmt.Sprintf("cpus=256/pods=%d", n), func(b *testing.B) {
			l := full(b, n)
			entries := [2]ledger.Entry{lsr("pod-0007", "7,135"), lsr("pod-0007", "127,255")}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				l.Put(entries[i&1])
				i++
			}
		})
	}
}

func BenchmarkRebuild(b *testing.B) {
	v := full(b, 250).View()
	entries := slices.Collect(v.Entries())
	b.ReportAllocs()
	for b.Loop() {
		ledger.New(*v.Facts(), entries...)
	}
}

// TestViewsMayBeReadWhileTheLedgerChanges shows its worth under -race.
func TestViewsMayBeReadWhileTheLedgerChanges(t *testing.T) {
	t.Parallel()
	l := full(t, 50)
	var current atomic.Pointer[ledger.View]
	current.Store(l.View())
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				v := current.Load()
				shared, exclusive := v.SharedPool(), v.LSR()
				if shared.Overlaps(&exclusive) || v.Summary().PoolCPUs != shared.Len() ||
					v.State().Free != v.Allocatable() {
					t.Error("a view contradicts itself")
					return
				}
				v.Without("pod-0001").Equal(v)
				v.Problems()
			}
		})
	}
	for i := range 200 {
		l.Put(lsr("pod-0007", fmt.Sprintf("%d", 127+i%2)))
		current.Store(l.View())
	}
	close(done)
	readers.Wait()
}

// BenchmarkCluster reports what the accounts of a cluster's nodes weigh: equal machines share one topology.
func BenchmarkCluster(b *testing.B) {
	const nodes = 5000
	m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2}.Build(b)
	var ledgers []*ledger.Ledger
	for b.Loop() {
		var before, after runtime.MemStats
		ledgers = make([]*ledger.Ledger, nodes)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range ledgers {
			ledgers[i] = ledger.New(ledger.Facts{Machine: m}, lse("a", "0-3"), lsr("b", "4-7"), confined("c", 1000, 3))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/nodes, "B/node")
	}
	runtime.KeepAlive(ledgers)
}
