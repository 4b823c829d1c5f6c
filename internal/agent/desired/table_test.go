package desired_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// example is the machine of the worked examples: NUMA node i is CPUs 4i…4i+3 and their siblings, 16 ids further.
func example(tb testing.TB) *topo.Machine {
	tb.Helper()
	m := grid.Worked()
	m.NodeBytes = 1 << 30
	return m.Build(tb)
}

func entry(uid string, class qos.Class, role qos.Role, cpus string) ledger.Entry {
	return ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Class: class, Role: role, CPUList: cpus}
}

// node is the worked example: reserved 0,16 · LSE 1,17 · LSR 2,18 · pinned by the kubelet 3,19.
func node(tb testing.TB, more ...ledger.Entry) *ledger.View {
	tb.Helper()
	facts := ledger.Facts{
		Machine: example(tb), MinSharedCPUs: -1,
		Model: kubelet.Facts{Config: kubelet.Config{
			CPU: kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0,16")},
		}},
		Given: []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("3,19")}},
	}
	return ledger.New(facts, append(more,
		entry("lse", qos.LSE, qos.Exclusive, "1,17"), entry("lsr", qos.LSR, qos.ExclusiveWithBE, "2,18"),
		entry("pinned", qos.None, qos.SharedPool, ""))...).View()
}

func leafOf(e ledger.Entry) desired.Pod {
	return desired.Pod{
		Entry: e, Cgroup: "kubepods/pod" + e.UID,
		Leaves: []desired.Leaf{{Path: "kubepods/pod" + e.UID + "/c", Container: "c"}},
	}
}

// withBatch is a BE pod whose one container uses batch resources.
func withBatch(b convert.Batch) desired.Pod {
	p := leafOf(entry("p", qos.BE, qos.BEPool, ""))
	p.Batch, p.WholeBatch = map[string]convert.Batch{"c": b}, b
	return p
}

// brief is a Row without what a case does not need to repeat.
type brief struct {
	File, Value string
	Pod         bool // of the pod's own group
	Cause       desired.Cause
	AtCreation  bool
}

func TestEveryRole(t *testing.T) {
	t.Parallel()
	constrained := entry("p", qos.LS, qos.SharedPool, "")
	constrained.NUMAIDs = []int{1, 2}
	lost := entry("p", qos.LS, qos.SharedPool, "")
	lost.NUMAIDs = []int{9}
	tests := map[string]struct {
		pod     desired.Pod
		change  func(*desired.Input)
		facts   func(*ledger.Facts)
		want    []brief
		refused why.Code
	}{
		"LSE has its CPUs and no quota": {pod: leafOf(entry("lse", qos.LSE, qos.Exclusive, "1,17")), want: []brief{
			{"cpu.max", "max", true, desired.QuotaLifted, false},
			{"cpu.max", "max", false, desired.QuotaLifted, false},
			{"cpuset.cpus", "1,17", false, desired.Allocated, false},
		}},
		"LSR has its CPUs, in v1 spelling": {
			pod:    leafOf(entry("lsr", qos.LSR, qos.ExclusiveWithBE, "2,18")),
			change: func(in *desired.Input) { in.Dialect = desired.V1 }, want: []brief{
				{"cpu.cfs_quota_us", "-1", true, desired.QuotaLifted, false},
				{"cpu.cfs_quota_us", "-1", false, desired.QuotaLifted, false},
				{"cpuset.cpus", "2,18", false, desired.Allocated, false},
			},
		},
		"LSE has isolated CPUs that it was given": {
			pod:   leafOf(entry("p", qos.LSE, qos.Exclusive, "4-5")),
			facts: func(f *ledger.Facts) { f.Isolated = cpuset.MustParse("4-7,20-23") }, want: []brief{
				{"cpu.max", "max", true, desired.QuotaLifted, false},
				{"cpu.max", "max", false, desired.QuotaLifted, false},
				{"cpuset.cpus", "4-5", false, desired.Allocated, false},
			},
		},
		"a pod without a label that its node bound has its CPUs and no quota": {pod: leafOf(entry("p", qos.None,
			qos.ExclusiveWithBE, "4,20")), want: []brief{
			{"cpu.max", "max", true, desired.QuotaLifted, false},
			{"cpu.max", "max", false, desired.QuotaLifted, false},
			{"cpuset.cpus", "4,20", false, desired.Allocated, false},
		}},
		"LSE on a node that is left has all CPUs, its limits and all memory": {
			pod: func() desired.Pod {
				p := leafOf(entry("lse", qos.LSE, qos.Exclusive, "1,17"))
				p.MilliCPU, p.MilliCPUs, p.MemoryNUMAIDs = 2500, map[string]int64{"c": 5}, []int{0}
				return p
			}(),
			change: func(in *desired.Input) { in.Kubelet = &desired.Kubelet{} }, want: []brief{
				{"cpu.max", "250000", true, desired.Reverted, false},
				{"cpu.max", "1000", false, desired.Reverted, false},
				{"cpuset.cpus", "0-31", false, desired.Reverted, false},
				{"cpuset.mems", "0-3", false, desired.Reverted, false},
			},
		},
		"LSE on a node that is left, whose kubelet is static and sets no quotas": {
			pod: func() desired.Pod {
				p := leafOf(entry("lse", qos.LSE, qos.Exclusive, "1,17"))
				p.MilliCPU = 2500
				return p
			}(),
			change: func(in *desired.Input) {
				in.Kubelet = &desired.Kubelet{Unlimited: true, CPUs: func(uid, container string) []int {
					if uid == "lse" && container == "c" {
						return []int{8, 24}
					}
					return nil
				}}
			}, want: []brief{{"cpuset.cpus", "8,24", false, desired.Reverted, false}},
		},
		"a pod without an allocation on a node that is left": {
			pod:    leafOf(entry("p", qos.LSE, qos.Exclusive, "")),
			change: func(in *desired.Input) { in.Kubelet = &desired.Kubelet{} },
			want:   []brief{{"cpuset.cpus", "0-31", false, desired.Reverted, false}},
		},
		"LSE without an allocation is refused": {
			pod:     leafOf(entry("p", qos.LSE, qos.Exclusive, "")),
			refused: why.UnallocatedExclusivePod,
		},
		"LSE whose CPUs the machine does not have is refused": {
			pod:     leafOf(entry("p", qos.LSE, qos.Exclusive, "400")),
			refused: why.UnallocatedExclusivePod,
		},
		"LSR without an allocation is refused": {pod: leafOf(entry("p", qos.LSR, qos.ExclusiveWithBE,
			"")), refused: why.UnallocatedExclusivePod},
		"LSR without an allocation shares when a flag says so": {
			pod:    leafOf(entry("p", qos.LSR, qos.ExclusiveWithBE, "")),
			change: func(in *desired.Input) { in.AllowUnallocatedLSR = true },
			want:   []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.UnallocatedShared, false}},
		},
		"LSE without an allocation never shares": {
			pod:    leafOf(entry("p", qos.LSE, qos.Exclusive, "")),
			change: func(in *desired.Input) { in.AllowUnallocatedLSR = true }, refused: why.UnallocatedExclusivePod,
		},
		"LS has the shared pool": {
			pod:  leafOf(entry("p", qos.LS, qos.SharedPool, "")),
			want: []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPool, false}},
		},
		"a pod without a label has it too": {pod: leafOf(entry("p", qos.None, qos.SharedPool,
			"")), want: []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPool, false}}},
		"LS on NUMA nodes has their part": {
			pod:  leafOf(constrained),
			want: []brief{{"cpuset.cpus", "4-11,20-27", false, desired.SharedPoolNodes, false}},
		},
		"LS on NUMA nodes without shared CPUs has the whole pool": {
			pod:  leafOf(lost),
			want: []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPoolWidened, false}},
		},
		"BE has the BE pool": {
			pod:  leafOf(entry("p", qos.BE, qos.BEPool, "")),
			want: []brief{{"cpuset.cpus", "0,2,4-16,18,20-31", false, desired.BEPool, false}},
		},
		"BE with batch resources has their weight and limits, and its pod the sum": {
			pod: withBatch(convert.Batch{
				CPU: true, Memory: true, MilliCPU: 500, LimitMilliCPU: 1500, LimitBytes: 1 << 20,
			}),
			want: []brief{
				{"cpu.max", "150000", true, desired.BatchLimit, false},
				{"cpu.weight", "20", true, desired.BatchRequest, false},
				{"memory.max", "1048576", true, desired.BatchLimit, false},
				{"cpu.max", "150000", false, desired.BatchLimit, false},
				{"cpu.weight", "20", false, desired.BatchRequest, false},
				{"cpuset.cpus", "0,2,4-16,18,20-31", false, desired.BEPool, false},
				{"memory.max", "1048576", false, desired.BatchLimit, false},
			},
		},
		"BE with batch resources in v1, where no limit is none": {
			pod:    withBatch(convert.Batch{CPU: true, Memory: true, MilliCPU: 1000}),
			change: func(in *desired.Input) { in.Dialect = desired.V1 },
			want: []brief{
				{"cpu.cfs_quota_us", "-1", true, desired.BatchLimit, false},
				{"cpu.shares", "1024", true, desired.BatchRequest, false},
				{"memory.limit_in_bytes", "-1", true, desired.BatchLimit, false},
				{"cpu.cfs_quota_us", "-1", false, desired.BatchLimit, false},
				{"cpu.shares", "1024", false, desired.BatchRequest, false},
				{"cpuset.cpus", "0,2,4-16,18,20-31", false, desired.BEPool, false},
				{"memory.limit_in_bytes", "-1", false, desired.BatchLimit, false},
			},
		},
		"amounts beyond what a kernel takes are bounded": {
			pod: withBatch(convert.Batch{CPU: true, MilliCPU: math.MaxInt64, LimitMilliCPU: math.MaxInt64}),
			want: []brief{
				{"cpu.max", "109951162777600", true, desired.BatchLimit, false},
				{"cpu.weight", "10000", true, desired.BatchRequest, false},
				{"cpu.max", "109951162777600", false, desired.BatchLimit, false},
				{"cpu.weight", "10000", false, desired.BatchRequest, false},
				{"cpuset.cpus", "0,2,4-16,18,20-31", false, desired.BEPool, false},
			},
		},
		"batch resources on a node that is left are those of BestEffort pods": {
			pod:    withBatch(convert.Batch{CPU: true, Memory: true, MilliCPU: 500, LimitMilliCPU: 9, LimitBytes: 1}),
			change: func(in *desired.Input) { in.Kubelet = &desired.Kubelet{} },
			want: []brief{
				{"cpu.max", "max", true, desired.Reverted, false},
				{"cpu.weight", "1", true, desired.Reverted, false},
				{"memory.max", "max", true, desired.Reverted, false},
				{"cpu.max", "max", false, desired.Reverted, false},
				{"cpu.weight", "1", false, desired.Reverted, false},
				{"cpuset.cpus", "0-31", false, desired.Reverted, false},
				{"memory.max", "max", false, desired.Reverted, false},
			},
		},
		"SYSTEM has the shared pool": {pod: leafOf(entry("p", qos.System, qos.SystemPool,
			"")), want: []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPool, false}}},
		"SYSTEM has the system CPUs where there are some": {
			pod:   leafOf(entry("p", qos.System, qos.SystemPool, "")),
			facts: func(f *ledger.Facts) { f.System = cpuset.MustParse("15,31") },
			want:  []brief{{"cpuset.cpus", "15,31", false, desired.SystemCPUs, false}},
		},
		"a pod that the kubelet pinned is not touched": {pod: func() desired.Pod {
			p := leafOf(entry("pinned", qos.None, qos.SharedPool, ""))
			p.Pinnable, p.MemoryNUMAIDs = true, []int{0}
			return p
		}()},
		"nor is one of class LSR that another scheduler bound, whatever the flag says": {pod: func() desired.Pod {
			p := leafOf(entry("pinned", qos.LSR, qos.ExclusiveWithBE, ""))
			p.Pinnable = true
			return p
		}(), change: func(in *desired.Input) { in.AllowUnallocatedLSR = true }},
		"memory nodes are set at creation alone": {pod: func() desired.Pod {
			p := leafOf(entry("p", qos.LS, qos.SharedPool, ""))
			p.MemoryNUMAIDs = []int{2, 1, 77}
			return p
		}(), want: []brief{
			{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPool, false},
			{"cpuset.mems", "1-2", false, desired.MemoryLocal, true},
		}},
		"memory nodes are the kubelet's when it manages memory": {
			pod: func() desired.Pod {
				p := leafOf(entry("p", qos.LS, qos.SharedPool, ""))
				p.MemoryNUMAIDs = []int{1}
				return p
			}(), change: func(in *desired.Input) { in.KubeletKeepsMemory = true },
			want: []brief{{"cpuset.cpus", "0,4-16,20-31", false, desired.SharedPool, false}},
		},
		"LS does not have isolated CPUs": {
			pod:   leafOf(entry("p", qos.LS, qos.SharedPool, "")),
			facts: func(f *ledger.Facts) { f.Isolated = cpuset.MustParse("4-7,20-23") },
			want:  []brief{{"cpuset.cpus", "0,8-16,24-31", false, desired.SharedPool, false}},
		},
		"no pod gets an empty pool": {
			pod:   leafOf(entry("p", qos.LS, qos.SharedPool, "")),
			facts: func(f *ledger.Facts) { f.NodeReserved = cpuset.MustParse("0-31") }, refused: why.SharedPoolTooSmall,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view := node(t, tt.pod.Entry)
			if tt.facts != nil {
				facts := *view.Facts()
				tt.facts(&facts)
				view = ledger.New(facts, slices.Collect(view.Entries())...).View()
			}
			in := desired.Input{View: view, Pods: []desired.Pod{tt.pod}}
			if tt.change != nil {
				tt.change(&in)
			}
			table := desired.Compute(in)
			var got []brief
			for _, r := range table.Rows {
				got = append(got, brief{r.File, r.Value, r.Path == tt.pod.Cgroup, r.Cause, r.AtCreation})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			code := why.None
			if len(table.Refused) == 1 {
				code = table.Refused[0].Reason.Code
			}
			if code != tt.refused {
				t.Errorf("refused with %v, want %v", code, tt.refused)
			}
		})
	}
}

// TestTableHoldsItsPromises draws nodes and checks, row by row, what no table may violate.
func TestTableHoldsItsPromises(t *testing.T) {
	t.Parallel()
	m := example(t)
	rapid.Check(t, func(t *rapid.T) {
		facts := ledger.Facts{Machine: m, MinSharedCPUs: -1}
		free := m.Online()
		take := func(n int) cpuset.Set {
			var s cpuset.Set
			for range n {
				if c := free.First(); c >= 0 {
					s.Add(c)
					free.Remove(c)
				}
			}
			return s
		}
		if rapid.Bool().Draw(t, "static") {
			facts.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("31")}
			facts.Given = []tenancy.Grant{{UID: "static", CPUs: take(2)}}
		}
		var pods []desired.Pod
		var entries []ledger.Entry
		add := func(e ledger.Entry, pinnable bool) {
			p := leafOf(e)
			p.Pinnable = pinnable
			pods, entries = append(pods, p), append(entries, e)
		}
		add(entry("static", qos.None, qos.SharedPool, ""), true)
		roles := []qos.Role{qos.Exclusive, qos.ExclusiveWithBE, qos.SharedPool, qos.BEPool, qos.SystemPool}
		for i, role := range rapid.SliceOfN(rapid.SampledFrom(roles), 0, 12).Draw(t, "roles") {
			e := entry(string(rune('a'+i)), qos.None, role, "")
			switch {
			case role == qos.Exclusive:
				e.Class, e.CPUList = qos.LSE, take(rapid.IntRange(0, 4).Draw(t, "cpus")).String()
			case role == qos.ExclusiveWithBE:
				e.Class, e.CPUList = qos.LSR, take(rapid.IntRange(0, 4).Draw(t, "cpus")).String()
			case role == qos.BEPool:
				e.Class = qos.BE
			case rapid.Bool().Draw(t, "constrained") && role == qos.SharedPool:
				e.Class, e.NUMAIDs = qos.LS, []int{rapid.IntRange(0, 5).Draw(t, "numa")}
			}
			add(e, false)
		}
		view := ledger.New(facts, entries...).View()
		table := desired.Compute(desired.Input{View: view, Pods: pods})
		role := map[string]qos.Role{}
		for _, e := range entries {
			role[e.UID] = e.Role
		}
		be, shared, lse := view.BEPool(), view.SharedPool(), view.LSE()
		for _, r := range table.Rows {
			if r.Value == "" {
				t.Fatalf("%s has an empty value: it would mean all CPUs", r.Path)
			}
			if r.UID == "static" && len(facts.Given) > 0 {
				t.Fatalf("the kubelet's pod has a row: %+v", r)
			}
			if r.File != desired.CPUs {
				continue
			}
			if r.CPUs != cpuset.MustParse(r.Value) {
				t.Fatalf("%s: the set is %v, its text %s", r.Path, r.CPUs, r.Value)
			}
			switch role[r.UID] {
			case qos.BEPool:
				if r.CPUs != be || r.CPUs.Overlaps(&lse) {
					t.Fatalf("BE has %v, want the BE pool %v without %v", r.CPUs, be, lse)
				}
			case qos.SharedPool, qos.SystemPool:
				if !r.CPUs.SubsetOf(&shared) {
					t.Fatalf("%s has %v, outside of the shared pool %v", r.UID, r.CPUs, shared)
				}
			default:
				if r.CPUs != view.CPUsOf(r.UID) {
					t.Fatalf("%s has %v, its allocation is %v", r.UID, r.CPUs, view.CPUsOf(r.UID))
				}
			}
		}
		shuffled := slices.Clone(pods)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled),
			func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again := desired.Compute(desired.Input{View: view, Pods: shuffled})
		if diff := cmp.Diff(table, again, cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })); diff != "" {
			t.Fatalf("the order of the pods changed the table:\n%s", diff)
		}
	})
}
