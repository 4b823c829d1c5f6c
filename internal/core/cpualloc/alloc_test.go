package cpualloc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

const (
	full   = cpualloc.FullPCPUs
	spread = cpualloc.SpreadByPCPUs
	most   = cpualloc.MostAllocated
	least  = cpualloc.LeastAllocated
	evenly = cpualloc.DistributeEvenly
	pcpu   = cpualloc.PCPULevel
	numa   = cpualloc.NUMANodeLevel
)

func TestAllocate(t *testing.T) {
	t.Parallel()
	hybrid := topo.Spec{ // two P cores of two threads, four E cores
		CPUs: []topo.CPUSpec{
			{ID: 0, Core: 0, Kind: topo.Performance},
			{ID: 1, Core: 0, Kind: topo.Performance},
			{ID: 2, Core: 1, Kind: topo.Performance},
			{ID: 3, Core: 1, Kind: topo.Performance},
			{ID: 4, Core: 2, Kind: topo.Efficiency},
			{ID: 5, Core: 3, Kind: topo.Efficiency},
			{ID: 6, Core: 4, Kind: topo.Efficiency},
			{ID: 7, Core: 5, Kind: topo.Efficiency},
		},
	}
	cpuless := seed000.spec() // memory nodes 1 and 5 between the others: nodes 0, 2, 4, 6 have CPUs
	for i := range cpuless.CPUs {
		cpuless.CPUs[i].NUMA *= 2
	}
	cpuless.NUMA = []topo.NUMASpec{{ID: 1, MemoryBytes: 1 << 30}, {ID: 5, MemoryBytes: 1 << 30}}
	halfOffline := seed000.spec() // the second threads of cores 0 and 1 are offline
	halfOffline.CPUs[16].Offline = true
	halfOffline.CPUs[17].Offline = true
	distances := shape{sockets: 1, nodes: 4, cores: 2, threads: 1}.spec()
	distances.NUMA = []topo.NUMASpec{
		{ID: 0, Distances: []int{10, 40, 40, 40}},
		{ID: 1, Distances: []int{40, 10, 30, 20}},
		{ID: 2, Distances: []int{40, 30, 10, 30}},
		{ID: 3, Distances: []int{40, 20, 30, 10}},
	}
	tests := map[string]struct {
		spec       *topo.Spec // nil = seed000
		taken      string
		pcpu, numa string // CPUs of holders; they are taken too
		noTick     string
		req        cpualloc.Request
		want       string
		stage      int // 0 = 1
	}{
		// The worked examples of the reference.
		"FullPCPUs takes two whole cores of one NUMA node": {
			req: cpualloc.Request{Count: 4, Bind: full}, want: "0-1,16-17",
		},
		"SpreadByPCPUs takes four cores of one NUMA node": {
			req: cpualloc.Request{Count: 4, Bind: spread}, want: "0-3",
		},
		"SpreadByPCPUs takes second threads before a second NUMA node": {
			req: cpualloc.Request{Count: 8, Bind: spread}, want: "0-3,16-19",
		},
		"the thread of a core without a tick comes before the other": {
			noTick: "17", req: cpualloc.Request{Count: 1, Bind: full}, want: "17",
		},
		"and the other follows it": {
			noTick: "17", req: cpualloc.Request{Count: 2, Bind: full}, want: "1,17",
		},
		"MostAllocated takes the NUMA node with the fewest free CPUs": {
			taken: "0-1,16-17", req: cpualloc.Request{Count: 4, Bind: full}, want: "2-3,18-19",
		},
		"LeastAllocated takes the NUMA node with the most free CPUs": {
			taken: "0-1,16-17", req: cpualloc.Request{Count: 4, Bind: full, Strategy: least}, want: "4-5,20-21",
		},
		"a request above one NUMA node remains on one socket": {
			req: cpualloc.Request{Count: 12, Bind: full}, want: "0-5,16-21",
		},
		"DistributeEvenly splits 12 CPUs into 6 and 6": {
			req: cpualloc.Request{Count: 12, Bind: full, Strategy: evenly}, want: "0-2,4-6,16-18,20-22",
		},
		"DistributeEvenly gives the odd core to the lower node": {
			req: cpualloc.Request{Count: 10, Bind: full, Strategy: evenly}, want: "0-2,4-5,16-18,20-21",
		},
		"preferred FullPCPUs with a remainder opens one core": {
			req: cpualloc.Request{Count: 3, Bind: full}, want: "0-1,16",
		},
		"NUMANodeLevel without an empty NUMA node avoids the held cores": {
			numa: "0,4,8,12", req: cpualloc.Request{Count: 2, Bind: spread, Exclusive: numa}, want: "1-2", stage: 2,
		},
		"preferred FullPCPUs prefers one NUMA node over whole cores": {
			taken: "0-3,5-7,21-23,9-11,25-27,12-15,28-31", req: cpualloc.Request{Count: 4, Bind: full}, want: "16-19",
		},
		"required FullPCPUs crosses NUMA nodes for whole cores": {
			taken: "0-3,5-7,21-23,9-11,25-27,12-15,28-31", req: cpualloc.Request{Count: 4, Bind: full, Required: true},
			want: "4,8,20,24",
		},
		"eight CPUs over the eight cores of one NUMA node": {
			spec: ptr(shape{1, 1, 8, 2, 0}.spec()), req: cpualloc.Request{Count: 8, Bind: spread}, want: "0-7",
		},
		"DistributeEvenly keeps one NUMA node when one fits": {
			req: cpualloc.Request{Count: 8, Bind: full, Strategy: evenly}, want: "0-3,16-19",
		},
		"DistributeEvenly packs when the count is not a multiple of a core": {
			req: cpualloc.Request{Count: 9, Bind: full, Strategy: evenly}, want: "0-4,16-19",
		},
		"DistributeEvenly packs when no even split exists": {
			taken: "1-3,17-19,8-15,24-31", req: cpualloc.Request{Count: 10, Bind: full, Strategy: evenly},
			want: "0,4-7,16,20-23",
		},
		"DistributeEvenly does not count NUMA nodes without a share": {
			spec: ptr(shape{1, 6, 4, 1, 0}.spec()), taken: "5-23",
			req: cpualloc.Request{Count: 5, Bind: spread, Strategy: evenly}, want: "0-4",
		},
		"DistributeEvenly on all four NUMA nodes": {
			req: cpualloc.Request{Count: 28, Bind: spread, Strategy: evenly}, want: "0-18,20-22,24-26,28-30",
		},
		"PCPULevel avoids the cores of holders": {
			pcpu: "0", req: cpualloc.Request{Count: 1, Bind: spread, Exclusive: pcpu}, want: "1",
		},
		"PCPULevel yields to one NUMA node": {
			pcpu: "0,4,8,12", req: cpualloc.Request{Count: 7, Bind: full, Exclusive: pcpu}, want: "1-3,16-19", stage: 3,
		},
		"without an exclusive policy holders do not matter": {
			pcpu: "0", req: cpualloc.Request{Count: 1, Bind: spread}, want: "1",
		},
		"NUMANodeLevel takes a NUMA node without holder": {
			numa: "0", req: cpualloc.Request{Count: 2, Bind: full, Exclusive: numa}, want: "4,20",
		},
		"NUMANodeLevel falls back past PCPULevel holders, too": {
			pcpu: "1", numa: "0,4,8,12", req: cpualloc.Request{Count: 2, Bind: spread, Exclusive: numa}, want: "2-3",
			stage: 2,
		},
		"the stage ranks below whole cores": {
			pcpu: "0", taken: "2-3,18-19,4-15,20-31", req: cpualloc.Request{Count: 2, Bind: full, Exclusive: pcpu},
			want: "1,17",
		},
		"the mask confines the answer": {
			req: cpualloc.Request{Count: 4, Bind: full, Nodes: 1 << 2}, want: "8-9,24-25",
		},
		"the node set counts NUMA nodes without CPUs too": {
			spec: &cpuless, req: cpualloc.Request{Count: 4, Bind: full, Nodes: 1 << 3}, want: "8-9,24-25",
		},
		"SingleNUMANode under DistributeEvenly": {
			taken: "0", req: cpualloc.Request{Count: 8, Bind: spread, Strategy: evenly, SingleNUMANode: true},
			want: "4-7,20-23",
		},
		"the sum of distances decides between NUMA nodes of one socket": {
			spec: &distances, req: cpualloc.Request{Count: 4, Bind: spread}, want: "2-3,6-7",
		},
		"a broken core is taken before a whole one is opened": {
			taken: "19", req: cpualloc.Request{Count: 3, Bind: full}, want: "0,3,16",
		},
		"several NUMA nodes are filled from the fewest free CPUs": {
			taken: "4,20", req: cpualloc.Request{Count: 12, Bind: full}, want: "0-2,5-7,16-18,21-23",
		},
		"LeastAllocated fills from the most free CPUs": {
			taken: "4,20", req: cpualloc.Request{Count: 12, Bind: full, Strategy: least, Nodes: 3},
			want: "0-3,5-6,16-19,21-22",
		},
		"PreferL3 keeps a remainder in the group in use": {
			spec: ptr(shape{1, 1, 4, 2, 2}.spec()), taken: "6",
			req: cpualloc.Request{Count: 3, Bind: full, PreferL3: true}, want: "0-1,4",
		},
		"else a remainder takes the broken core elsewhere": {
			spec: ptr(shape{1, 1, 4, 2, 2}.spec()), taken: "6", req: cpualloc.Request{Count: 3, Bind: full},
			want: "0,2,4",
		},
		"whole cores come from as few L3 groups as possible": {
			spec: ptr(
				shape{1, 1, 6, 1, 3}.spec(),
			), taken: "0", req: cpualloc.Request{Count: 3, Bind: full}, want: "3-5",
		},
		"a core whose second thread is offline is whole": {
			spec: &halfOffline, taken: "2-3,18-19",
			req: cpualloc.Request{Count: 2, Bind: full, Required: true, Nodes: 1}, want: "0-1",
		},
		"required FullPCPUs on hybrid cores takes both kinds": {
			spec: &hybrid, taken: "0", req: cpualloc.Request{Count: 6, Bind: full, Required: true}, want: "2-7",
		},
		"preferred FullPCPUs on hybrid cores ends with an E core": {
			spec: &hybrid, req: cpualloc.Request{Count: 3, Bind: full}, want: "0-1,4",
		},
		"SpreadByPCPUs on hybrid cores takes one thread of each": {
			spec: &hybrid, req: cpualloc.Request{Count: 6, Bind: spread, Required: true}, want: "0,2,4-7",
		},
		"SpreadByPCPUs takes cores with most free threads first": {
			taken: "16", req: cpualloc.Request{Count: 3, Bind: spread, Nodes: 1}, want: "1-3",
		},
		"of equal NUMA nodes the one with a broken core gives a single CPU": {
			taken: "2-3,18-19,5-7,23,8-15,24-31", req: cpualloc.Request{Count: 1, Bind: full}, want: "21",
		},
		"fewer partial cores rank above the stage": {
			spec: ptr(shape{1, 1, 3, 4, 0}.spec()), pcpu: "9", taken: "7-8,10-11",
			req: cpualloc.Request{Count: 3, Bind: full, Exclusive: pcpu}, want: "0,3,6", stage: 3,
		},
		"a core that will be opened comes from the same L3 group": {
			spec: ptr(shape{1, 1, 4, 2, 2}.spec()), taken: "0,4", req: cpualloc.Request{Count: 3, Bind: full},
			want: "2-3,6",
		},
		"of NUMA nodes with as many free CPUs the one with a whole core gives one thread of it": {
			spec: ptr(shape{1, 2, 2, 2, 0}.spec()), taken: "4-5,3,7", req: cpualloc.Request{Count: 1, Bind: spread},
			want: "2",
		},
		"single free threads of cores count as much as several": {
			spec: ptr(shape{1, 2, 3, 4, 0}.spec()), taken: "18,7,13,19,8,14,20,15,21,16,22,11,17,23",
			req: cpualloc.Request{Count: 3, Bind: spread}, want: "0-2",
		},
		"no CPUs asked, none given": {
			req: cpualloc.Request{}, want: "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := seed000.spec()
			if tt.spec != nil {
				spec = *tt.spec
			}
			m := grid.Build(t, spec)
			s := cpualloc.State{
				Machine: m, PCPUHeld: cpuset.MustParse(tt.pcpu), NUMAHeld: cpuset.MustParse(tt.numa),
				NoTick: cpuset.MustParse(tt.noTick),
			}
			s.Free = m.Online().Minus(cpuset.MustParse(tt.taken)).Minus(s.PCPUHeld).Minus(s.NUMAHeld)
			got, reason := cpualloc.Allocate(s, tt.req)
			if !reason.OK() {
				t.Fatalf("Allocate(%+v) = %+v, want %s", tt.req, reason, tt.want)
			}
			if got.CPUs.String() != tt.want || got.Stage != max(tt.stage, 1) {
				t.Errorf("Allocate(%+v) = %s stage %d, want %s stage %d", tt.req, got.CPUs, got.Stage, tt.want,
					max(tt.stage, 1))
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestAllocateRefuses(t *testing.T) {
	t.Parallel()
	amount := func(code why.Code, unit why.Unit, asked, free int64) why.Reason {
		return why.Reason{Code: code, Resource: why.CPU, Unit: unit, Asked: asked, Free: free}
	}
	at := func(r why.Reason, node int32) why.Reason {
		r.Where = why.Where{Scope: why.NUMA, Index: node}
		return r
	}
	tests := map[string]struct {
		grid  *shape
		taken string
		req   cpualloc.Request
		want  why.Reason
	}{
		"more CPUs than are free": {
			taken: "0-3", req: cpualloc.Request{Count: 29},
			want: amount(why.InsufficientExclusiveCPU, why.CPUs, 29, 28),
		},
		"required FullPCPUs and an odd count": {
			req:  cpualloc.Request{Count: 3, Bind: full, Required: true},
			want: why.Reason{Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: 3, Extra: 2},
		},
		"required FullPCPUs with too few whole cores": {
			taken: "0-12", req: cpualloc.Request{Count: 8, Bind: full, Required: true},
			want: amount(why.InsufficientExclusiveCPU, why.CPUs, 8, 6),
		},
		"required SpreadByPCPUs with too few cores": {
			req:  cpualloc.Request{Count: 17, Bind: spread, Required: true},
			want: amount(why.InsufficientExclusiveCPU, why.Cores, 17, 16),
		},
		"SingleNUMANode where several nodes would do": {
			taken: "0", req: cpualloc.Request{Count: 9, SingleNUMANode: true},
			want: at(amount(why.TopologyPolicy, why.CPUs, 9, 8), 1),
		},
		"SingleNUMANode where the whole machine is too small": {
			taken: "0", req: cpualloc.Request{Count: 32, SingleNUMANode: true},
			want: at(amount(why.InsufficientExclusiveCPU, why.CPUs, 32, 8), 1),
		},
		"a mask that is too small": {
			req: cpualloc.Request{Count: 12, Nodes: 1}, want: amount(why.TopologyPolicy, why.CPUs, 12, 8),
		},
		"a mask that names no NUMA node of the machine": {
			req:  cpualloc.Request{Count: 1, Nodes: 1 << 9, SingleNUMANode: true},
			want: amount(why.TopologyPolicy, why.CPUs, 1, 0),
		},
		"more than 64 NUMA nodes with CPUs": {
			grid: &shape{1, 65, 1, 1, 0}, req: cpualloc.Request{Count: 1},
			want: why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: 65},
		},
		"more than 8 CPUs on a core": {
			grid: &shape{1, 1, 1, 9, 0}, req: cpualloc.Request{Count: 1},
			want: why.Reason{Code: why.InvalidTopology, Resource: why.CPU, Extra: 9},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := seed000
			if tt.grid != nil {
				g = *tt.grid
			}
			m := g.machine(t)
			s := cpualloc.State{Machine: m, Free: m.Online().Minus(cpuset.MustParse(tt.taken))}
			got, reason := cpualloc.Allocate(s, tt.req)
			if diff := cmp.Diff(tt.want, reason); diff != "" {
				t.Errorf("Allocate(%+v) reason (-want +got):\n%s", tt.req, diff)
			}
			if !got.CPUs.IsEmpty() {
				t.Errorf("Allocate(%+v) refused and gave %s", tt.req, got.CPUs)
			}
			counts := cpualloc.CountNodes(nil, m, &s.Free)
			if diff := cmp.Diff(tt.want, cpualloc.Feasible(counts, m, tt.req)); diff != "" {
				t.Errorf("Feasible(%+v) (-want +got):\n%s", tt.req, diff)
			}
		})
	}
}
