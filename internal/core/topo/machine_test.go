package topo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func build(tb testing.TB, spec topo.Spec) *topo.Machine {
	tb.Helper()
	m, err := topo.New(spec)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return m
}

// sparse is a machine with holes everywhere: CPU ids 4–7 and 12–15, sockets 1 and 3, NUMA nodes 2 and 9 with CPUs and 5
// without, core ids that repeat on each socket, one CPU offline.
func sparse() topo.Spec {
	var spec topo.Spec
	for _, half := range []struct{ first, socket, numa int }{{12, 3, 9}, {4, 1, 2}} {
		for i := range 4 {
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{
				ID: half.first + i, Core: i % 2, L3: -1,
				Socket: half.socket, NUMA: half.numa,
			})
		}
	}
	spec.CPUs[3].Offline = true // CPU 15
	spec.NUMA = []topo.NUMASpec{
		{ID: 9, MemoryBytes: 9 << 30, Distances: []int{10, 17, 28}},
		{ID: 5, MemoryBytes: 5 << 30, Distances: []int{17, 11, 29}, Hugepages: map[int64]int64{2 << 20: 7}},
		{ID: 2, MemoryBytes: 2 << 30, Distances: []int{28, 29, 12}},
	}
	return spec
}

func TestMachineWithSparseIDs(t *testing.T) {
	t.Parallel()
	m := build(t, sparse())
	ids := func(cpus []topo.CPU) []int {
		var out []int
		for _, c := range cpus {
			out = append(out, m.CPUID(c))
		}
		return out
	}
	type shape struct {
		CPUs, Cores, NUMA, Sockets, L3, Threads int
		Online, LowNode, HighNode, MemoryNode   string
		FirstCore, LastCore                     []int
		CPUNodes                                []topo.NUMA
		NUMAIDs, SocketIDs, Memory, CoreOnline  []int
		Distances                               [3][3]int
		Huge                                    map[int64]int64
	}
	got := shape{
		CPUs: m.NumCPUs(), Cores: m.NumCores(), NUMA: m.NumNUMA(), Sockets: m.NumSockets(), L3: m.NumL3(),
		Threads: m.ThreadsPerCore(), Online: m.FormatList(m.Online()),
		LowNode: m.FormatList(m.NUMACPUs(0)), HighNode: m.FormatList(m.NUMACPUs(2)),
		MemoryNode: m.FormatList(m.NUMACPUs(1)),
		FirstCore:  ids(m.CoreCPUs(0)), LastCore: ids(m.CoreCPUs(3)), CPUNodes: m.CPUNodes(), Huge: m.Hugepages(1),
	}
	for c := range m.NumCores() {
		got.CoreOnline = append(got.CoreOnline, m.CoreOnline(topo.Core(c)))
	}
	for n := range m.NumNUMA() {
		got.NUMAIDs = append(got.NUMAIDs, m.NUMAID(topo.NUMA(n)))
		got.Memory = append(got.Memory, int(m.MemoryBytes(topo.NUMA(n))>>30))
		for o := range m.NumNUMA() {
			got.Distances[n][o] = m.Distance(topo.NUMA(n), topo.NUMA(o))
		}
	}
	for s := range m.NumSockets() {
		got.SocketIDs = append(got.SocketIDs, m.SocketID(topo.Socket(s)))
	}
	want := shape{
		CPUs: 8, Cores: 4, NUMA: 3, Sockets: 2, L3: 2, Threads: 2,
		Online: "4-7,12-14", LowNode: "4-7", HighNode: "12-15", MemoryNode: "",
		FirstCore: []int{4, 6}, LastCore: []int{13, 15}, CPUNodes: []topo.NUMA{0, 2},
		NUMAIDs: []int{2, 5, 9}, SocketIDs: []int{1, 3}, Memory: []int{2, 5, 9}, CoreOnline: []int{2, 2, 2, 1},
		Distances: [3][3]int{{12, 29, 28}, {29, 11, 17}, {28, 17, 10}}, Huge: map[int64]int64{2 << 20: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
}

func TestWhereACPUStands(t *testing.T) {
	t.Parallel()
	spec := sparse()
	for i := range spec.CPUs {
		spec.CPUs[i].Kind = topo.Performance
		if spec.CPUs[i].Core == 1 {
			spec.CPUs[i].Kind = topo.Efficiency
		}
	}
	m := build(t, spec)
	c, ok := m.CPUByID(13)
	if !ok {
		t.Fatal("CPU 13 is not known")
	}
	core := m.CoreOf(c)
	got := []int{
		int(c), int(core), int(m.L3Of(c)), int(m.SocketOf(c)), int(m.NUMAOf(c)), m.CoreID(c),
		int(m.CoreSocket(core)), int(m.CoreL3(core)), int(m.NUMASocket(2)),
	}
	if want := []int{5, 3, 1, 1, 2, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("CPU 13 is at %v, want %v", got, want)
	}
	if m.KindOf(c).String() != "efficiency" {
		t.Errorf("CPU 13 is of kind %v, want efficiency", m.KindOf(c))
	}
	if cores := m.NUMACores(2); !slices.Equal(cores, []topo.Core{2, 3}) {
		t.Errorf("cores of NUMA node 9: %v, want 2 and 3", cores)
	}
	for _, unknown := range []bool{has(m.CPUByID(0)), has(m.NUMAByID(0)), has(m.SocketByID(2))} {
		if unknown {
			t.Error("an id that the machine does not have is known")
		}
	}
	if n, ok := m.NUMAByID(9); !ok || n != 2 {
		t.Errorf("NUMA node 9 is %d %v, want 2", n, ok)
	}
	if s, ok := m.SocketByID(3); !ok || s != 1 {
		t.Errorf("socket 3 is %d %v, want 1", s, ok)
	}
}

func has[T any](_ T, ok bool) bool { return ok }

func TestHybridMachineHasCoresOfTwoSizes(t *testing.T) {
	t.Parallel()
	m := build(t, topo.Spec{CPUs: []topo.CPUSpec{
		{ID: 0, Core: 0, Kind: topo.Performance},
		{ID: 1, Core: 0, Kind: topo.Performance},
		{ID: 2, Core: 4, Kind: topo.Efficiency},
		{ID: 3, Core: 5, Kind: topo.Efficiency},
	}})
	if m.ThreadsPerCore() != 2 || len(m.CoreCPUs(0)) != 2 || len(m.CoreCPUs(1)) != 1 {
		t.Errorf("threads per core %d, core sizes %d and %d; want 2, 2 and 1", m.ThreadsPerCore(), len(m.CoreCPUs(0)),
			len(m.CoreCPUs(1)))
	}
	if m.KindOf(0) != topo.Performance || m.KindOf(3) != topo.Efficiency {
		t.Errorf("kinds %v and %v, want performance and efficiency", m.KindOf(0), m.KindOf(3))
	}
}

func TestUnknownCachesAreOnePerSocketAndNUMANode(t *testing.T) {
	t.Parallel()
	var spec topo.Spec // NUMA id 256 on socket 0 and 0 on socket 1 must not be taken for one cache
	for i, at := range []struct{ socket, numa int }{{0, 256}, {0, 256}, {1, 0}, {1, 3}} {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: i, L3: -1, Socket: at.socket, NUMA: at.numa})
	}
	m := build(t, spec)
	if m.NumL3() != 3 || m.L3Of(0) != m.L3Of(1) {
		t.Errorf("%d caches, want 3", m.NumL3())
	}
}

func TestCachesKeepTheKernelsIDsOrNone(t *testing.T) {
	t.Parallel()
	m := build(t, topo.Spec{CPUs: []topo.CPUSpec{
		{ID: 0, Core: 0, L3: 7},
		{ID: 1, Core: 1, L3: 2},
		{ID: 2, Core: 2, L3: -1},
		{ID: 3, Core: 3, L3: 7},
	}})
	var got []int
	for c := range topo.CPU(4) {
		got = append(got, m.L3ID(m.L3Of(c)))
	}
	if want := []int{7, 2, -1, 7}; !slices.Equal(got, want) || m.NumL3() != 3 {
		t.Errorf("ids %v of %d groups, want %v of 3", got, m.NumL3(), want)
	}
	other := m.Spec()
	other.CPUs[1].L3 = 3
	if o := build(t, other); o.Equal(m) {
		t.Error("machines whose caches have other ids are equal")
	}
}

func TestDistancesThatTheMachineDoesNotSay(t *testing.T) {
	t.Parallel()
	m := build(t, topo.Spec{
		CPUs: []topo.CPUSpec{{ID: 0, NUMA: 0}, {ID: 1, Core: 1, NUMA: 7}},
		NUMA: []topo.NUMASpec{{ID: 3, Distances: []int{11}}},
	})
	var got [3][3]int
	for a := range 3 {
		for b := range 3 {
			got[a][b] = m.Distance(topo.NUMA(a), topo.NUMA(b))
		}
	}
	if want := [3][3]int{{10, 20, 20}, {20, 11, 20}, {20, 20, 10}}; got != want {
		t.Errorf("distances %v, want %v", got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	one := func(change func(*topo.CPUSpec)) topo.Spec {
		c := topo.CPUSpec{ID: 1}
		change(&c)
		return topo.Spec{CPUs: []topo.CPUSpec{{ID: 0}, c}}
	}
	nodes := func(nodes ...topo.NUMASpec) topo.Spec { return topo.Spec{CPUs: []topo.CPUSpec{{ID: 0}}, NUMA: nodes} }
	many := func(n int, numa func(int) int) topo.Spec {
		var spec topo.Spec
		for i := range n {
			spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: i, NUMA: numa(i)})
		}
		return spec
	}
	tests := map[string]struct {
		spec topo.Spec
		want string
	}{
		"no CPUs": {topo.Spec{}, "machine has no CPUs"},
		"1025 CPUs": {
			many(1025, func(int) int { return 0 }), "machine has 1025 CPUs, at most 1024 are supported",
		},
		"257 NUMA nodes": {
			many(257, func(i int) int { return i }), "machine has 257 NUMA nodes, at most 256 are supported",
		},
		"a negative CPU": {one(func(c *topo.CPUSpec) { c.ID = -1 }), "CPU id -1 is negative"},
		"a CPU id that no list can name": {
			one(func(c *topo.CPUSpec) { c.ID = 65536 }), "CPU id 65536 is above the largest supported id 65535",
		},
		"a CPU twice":     {one(func(c *topo.CPUSpec) { c.ID = 0 }), "CPU id 0 is there twice"},
		"a negative core": {one(func(c *topo.CPUSpec) { c.Core = -1 }), "CPU 1 has core -1, want 0 or more"},
		"a negative socket": {
			one(func(c *topo.CPUSpec) { c.Socket = -1 }), "CPU 1 has socket -1, want 0 or more",
		},
		"a negative NUMA node": {
			one(func(c *topo.CPUSpec) { c.NUMA = -1 }), "CPU 1 has NUMA node -1, want 0 or more",
		},
		"an unknown kind": {one(func(c *topo.CPUSpec) { c.Kind = 3 }), "CPU 1 has core kind 3, want 0 to 2"},
		"a core on two NUMA nodes": {
			one(func(c *topo.CPUSpec) { c.NUMA = 1 }), "core 0 of socket 0 is on NUMA nodes 0 and 1",
		},
		"a NUMA node twice": {
			nodes(topo.NUMASpec{ID: 1}, topo.NUMASpec{ID: 1}), "NUMA node id 1 is there twice",
		},
		"a negative NUMA id": {nodes(topo.NUMASpec{ID: -2}), "NUMA node id -2 is negative"},
		"negative memory": {
			nodes(topo.NUMASpec{ID: 1, MemoryBytes: -1}), "NUMA node 1 has -1 bytes of memory, want 0 or more",
		},
		"a short distance row": {
			nodes(topo.NUMASpec{ID: 0}, topo.NUMASpec{ID: 1, Distances: []int{10}}),
			"NUMA node 1 has 1 distances, want 2",
		},
		"a negative distance": {
			nodes(topo.NUMASpec{ID: 0, Distances: []int{-1}}), "NUMA node 0 has the distances [-1], want 0 or more",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := topo.New(tt.spec)
			if m != nil || err == nil || err.Error() != tt.want {
				t.Errorf("New = %v, %v; want the error %q", m, err, tt.want)
			}
		})
	}
}

func TestLargestMachine(t *testing.T) {
	t.Parallel()
	var spec topo.Spec
	for i := range topo.MaxCPUs {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: i, Core: i / 2, L3: -1, Socket: i / 512, NUMA: i / 4})
	}
	m := build(t, spec)
	if m.NumCPUs() != 1024 || m.NumNUMA() != 256 || m.NumSockets() != 2 || m.NumL3() != 256 {
		t.Errorf("%d CPUs, %d NUMA nodes, %d sockets, %d caches", m.NumCPUs(), m.NumNUMA(), m.NumSockets(), m.NumL3())
	}
	if got := m.FormatList(m.All()); got != "0-1023" {
		t.Errorf("all CPUs are %s, want 0-1023", got)
	}
}

func TestNUMANodeOnTwoSocketsCountsToItsLowestCPU(t *testing.T) {
	t.Parallel()
	m := build(t, topo.Spec{CPUs: []topo.CPUSpec{{ID: 0, Socket: 1}, {ID: 1, Socket: 0}}})
	if got := m.SocketID(m.NUMASocket(0)); got != 1 {
		t.Errorf("socket of the NUMA node is %d, want 1", got)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	m := build(t, sparse())
	tests := map[string]struct {
		list, want, err string
		unknown         []int
	}{
		"ids of the machine":        {list: "5,4,12-13", want: "4-5,12-13"},
		"ids that it does not have": {list: "3-5,2000", want: "4-5", unknown: []int{3, 2000}},
		"offline CPUs are CPUs":     {list: "15", want: "15"},
		"nothing":                   {list: ""},
		"all there could be": {
			list: "0-20", want: "4-7,12-15", unknown: []int{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 20},
		},
		"no list":                        {list: "4;5", err: `cpu list item "4;5"`},
		"a range that would fill memory": {list: "0-4294967295", err: "ids must be below 65536"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, unknown, err := m.ParseList(tt.list)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("ParseList(%q) error %v, want one with %q", tt.list, err, tt.err)
				}
				return
			}
			if got := m.FormatList(set); err != nil || got != tt.want || !slices.Equal(unknown, tt.unknown) {
				t.Errorf("ParseList(%q) = %q, unknown %v, %v; want %q, %v", tt.list, got, unknown, err, tt.want,
					tt.unknown)
			}
		})
	}
	if got := m.FormatList(cpuset.Of(0, 1023)); got != "4" {
		t.Errorf("indices that the machine does not have: got %q, want only CPU 4", got)
	}
}

// drawSpec draws a legal description with sparse ids of everything.
func drawSpec(t *rapid.T) topo.Spec {
	spec := topo.Spec{Arch: rapid.SampledFrom([]string{"", "amd64", "arm64"}).Draw(t, "arch")}
	ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 3000), 1, 24, rapid.ID[int]).Draw(t, "ids")
	sockets := rapid.SliceOfNDistinct(rapid.IntRange(0, 40000), 3, 3, rapid.ID[int]).Draw(t, "sockets")
	nodes := rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 5, 5, rapid.ID[int]).Draw(t, "nodes")
	numaOf := map[[2]int]int{}
	for _, id := range ids {
		c := topo.CPUSpec{
			ID: id, Core: rapid.IntRange(0, 6).Draw(t, "core"), Socket: rapid.SampledFrom(sockets).Draw(t, "socket"),
			L3:      rapid.IntRange(-1, 3).Draw(t, "l3"),
			Kind:    topo.Kind(rapid.IntRange(0, 2).Draw(t, "kind")),
			Offline: rapid.Bool().Draw(t, "offline"),
		}
		key := [2]int{c.Socket, c.Core}
		if _, ok := numaOf[key]; !ok {
			numaOf[key] = rapid.SampledFrom(nodes[:4]).Draw(t, "numa")
		}
		c.NUMA = numaOf[key]
		spec.CPUs = append(spec.CPUs, c)
	}
	listed := nodes[rapid.IntRange(0, 5).Draw(t, "listed"):]
	for i, id := range listed {
		n := topo.NUMASpec{ID: id, MemoryBytes: int64(rapid.IntRange(0, 1<<40).Draw(t, "memory"))}
		if rapid.Bool().Draw(t, "has distances") {
			for j := range listed {
				n.Distances = append(n.Distances, 10+i*j)
			}
		}
		if rapid.Bool().Draw(t, "huge") {
			n.Hugepages = map[int64]int64{1 << 21: int64(i)}
		}
		spec.NUMA = append(spec.NUMA, n)
	}
	return spec
}

func TestSpecRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, err := topo.New(drawSpec(t))
		testkit.Check(t, err)
		again, err := topo.New(m.Spec())
		if err != nil {
			t.Fatalf("New(m.Spec()): %v", err)
		}
		if !m.Equal(again) {
			t.Fatalf("the machine built from its own Spec differs:\n%s", cmp.Diff(m.Spec(), again.Spec()))
		}
		if diff := cmp.Diff(m.Spec(), again.Spec()); diff != "" {
			t.Fatalf("Spec (-first +second):\n%s", diff)
		}
	})
}

func TestOrderOfTheDescriptionIsIrrelevant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		m, err := topo.New(spec)
		testkit.Check(t, err)
		spec.CPUs = rapid.Permutation(spec.CPUs).Draw(t, "shuffled")
		again, err := topo.New(spec)
		testkit.Check(t, err)
		if !m.Equal(again) {
			t.Fatal("the order of CPUs made another machine")
		}
	})
}

// TestEverythingPartitionsTheCPUs checks that cores, NUMA nodes and lists agree with each other.
func TestEverythingPartitionsTheCPUs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, err := topo.New(drawSpec(t))
		testkit.Check(t, err)
		var byCore, byNode cpuset.Set
		most := 0
		for c := range m.NumCores() {
			core := topo.Core(c)
			most = max(most, len(m.CoreCPUs(core)))
			for _, cpu := range m.CoreCPUs(core) {
				if byCore.Has(int(cpu)) || m.CoreOf(cpu) != core || m.NUMAOf(cpu) != m.NUMAOf(m.CoreCPUs(core)[0]) {
					t.Fatalf("CPU %d is not on core %d alone", cpu, core)
				}
				byCore.Add(int(cpu))
			}
		}
		for n := range m.NumNUMA() {
			cpus := m.NUMACPUs(topo.NUMA(n))
			if byNode.Overlaps(&cpus) || cpus.IsEmpty() == slices.Contains(m.CPUNodes(), topo.NUMA(n)) {
				t.Fatalf("NUMA node %d has the CPUs %s, nodes with CPUs are %v", n, cpus, m.CPUNodes())
			}
			byNode = byNode.Union(cpus)
		}
		if byCore != m.All() || byNode != m.All() || most != m.ThreadsPerCore() {
			t.Fatalf("cores hold %s, NUMA nodes %s, the machine %s", byCore, byNode, m.All())
		}
		last := -1
		for c := range m.NumCPUs() {
			id := m.CPUID(topo.CPU(c))
			if back, ok := m.CPUByID(id); !ok || int(back) != c || id <= last {
				t.Fatalf("CPU %d has id %d, the one before %d, and is found as %d", c, id, last, back)
			}
			last = id
		}
		if set, unknown, err := m.ParseList(m.FormatList(m.Online())); err != nil || unknown != nil ||
			set != m.Online() {
			t.Fatalf("online %s became %s, %v, %v", m.Online(), set, unknown, err)
		}
	})
}

func TestTheDescriptionIsNotKept(t *testing.T) {
	t.Parallel()
	spec := sparse()
	m := build(t, spec)
	spec.NUMA[1].Hugepages[2<<20] = 8
	spec.NUMA[0].Distances[0] = 99
	m.Spec().NUMA[1].Hugepages[2<<20] = 9
	if got := m.Hugepages(1)[2<<20]; got != 7 || m.Distance(2, 2) != 10 {
		t.Errorf("hugepages %d and distance %d changed with the description", got, m.Distance(2, 2))
	}
}
