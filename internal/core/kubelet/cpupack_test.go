package kubelet

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func TestTake(t *testing.T) {
	t.Parallel()
	l3 := grid.Machine{Sockets: 1, Nodes: 1, Cores: 8, Threads: 2, CoresL3: 4, Adjacent: true}
	two := grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}
	eight := grid.Machine{Sockets: 2, Nodes: 4, Cores: 8, Threads: 1}
	uneven := grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 1}.Spec()
	uneven.CPUs[7].Offline = true
	small := grid.Machine{Sockets: 2, Nodes: 1, Cores: 6, Threads: 1}.Spec()   // 6 CPUs and 2
	unequal := grid.Machine{Sockets: 4, Nodes: 1, Cores: 8, Threads: 1}.Spec() // 4 CPUs, 8, 2 and 2
	for i := range unequal.CPUs {
		if i < len(small.CPUs) {
			small.CPUs[i].Offline = i >= 8
		}
		unequal.CPUs[i].Offline = 4 <= i && i < 8 || 18 <= i && i < 24 || 26 <= i
	}
	moved := grid.Machine{Sockets: 1, Nodes: 1, Cores: 3, Threads: 2}.Spec()
	moved.CPUs[0].Offline, moved.CPUs[3].Offline = true, true // the first threads of core 0 and the second of core 1
	tests := map[string]struct {
		spec  topo.Spec
		cpu   CPU
		minor int // 0 = 36
		busy  string
		n     int
		want  string
		fault cpuFault
	}{
		"a whole socket goes before cores of another": {spec: two.Spec(), busy: "0", n: 8, want: "4-7,12-15"},
		"cores come from the fullest socket":          {spec: two.Spec(), busy: "4,12", n: 4, want: "5-6,13-14"},
		"an odd thread comes from a half-used core":   {spec: two.Spec(), busy: "2", n: 1, want: "10"},
		"an odd request breaks one core":              {spec: two.Spec(), n: 3, want: "0-1,8"},
		"spread takes the lowest CPUs of a socket": {
			spec: two.Spec(), cpu: CPU{DistributeAcrossCores: true}, busy: "0", n: 3, want: "1-3",
		},
		"more than is free": {spec: two.Spec(), busy: "0-15", n: 1, fault: cpuShort},
		"nothing":           {spec: two.Spec(), n: 0, want: ""},
		// Threads per core are one on average, so a core of two with one free thread is a whole one.
		"a hybrid machine gives a reserved thread away": {spec: hybrid(2, 4), busy: "0", n: 2, want: "0-1"},
		"a hybrid machine gives single threads":         {spec: hybrid(2, 4), busy: "0", n: 1, want: "4"},
		"a socket with an offline CPU is whole, a complete one is not": {
			spec: uneven, n: 3, want: "4-6",
		},
		"a core is named after its lowest online CPU": {spec: moved, n: 1, want: "1"},
		"a half-used low core blocks a group that has whole cores": {
			spec: l3.Spec(), cpu: CPU{AlignL3: true}, busy: "1,9,15", n: 4, want: "2-5",
		},
		"the remainder remains in one group": {
			spec: l3.Spec(), cpu: CPU{AlignL3: true}, busy: "0-3", n: 6, want: "8-13",
		},
		"an odd remainder leaves the last thread": {
			spec: l3.Spec(), cpu: CPU{AlignL3: true}, busy: "0-3", n: 5, want: "8-12",
		},
		"1.33 looks for one core less": {
			spec: l3.Spec(), cpu: CPU{AlignL3: true}, minor: 33, busy: "0-3", n: 5, want: "4-7,8",
		},
		"a whole group, then the remainder in the fullest": {
			spec: l3.Spec(), cpu: CPU{AlignL3: true}, busy: "0-1", n: 12, want: "2-5,8-15",
		},
		"the cache of a whole node is not a group": {
			spec: grid.Machine{Sockets: 1, Nodes: 2, Cores: 4, Threads: 1, CoresL3: 4}.Spec(), cpu: CPU{AlignL3: true},
			busy: "0,4-5", n: 3, want: "1-3",
		},
		// Both of its nodes list the group 4-7: it is taken once and counted twice.
		"an L3 group on two nodes counts twice": {
			spec: grid.Machine{Sockets: 1, Nodes: 2, Cores: 6, Threads: 1, CoresL3: 4}.Spec(), cpu: CPU{AlignL3: true},
			busy: "0,11", n: 9,
			want: "1,4-7",
		},
		"shares are equal": {
			spec: eight.Spec(), cpu: CPU{DistributeAcrossNUMA: true}, n: 12, want: "0-5,8-13",
		},
		"the winner shows the last combination with its first three nodes": {
			spec: eight.Spec(), cpu: CPU{DistributeAcrossNUMA: true}, busy: "0", n: 32, want: "8-31,56-63",
		},
		"so does a winner of six": {
			spec: eight.Spec(), cpu: CPU{DistributeAcrossNUMA: true}, busy: "0", n: 48, want: "8-47,56-63",
		},
		"a request that is not a multiple of a core is packed": {
			spec: two.Spec(), cpu: CPU{DistributeAcrossNUMA: true, FullPCPUsOnly: true}, n: 9, want: "0-3,4,8-11",
		},
		"distributing single threads of four nodes never ends": {
			spec:  grid.Machine{Sockets: 2, Nodes: 2, Cores: 8, Threads: 2}.Spec(),
			cpu:   CPU{DistributeAcrossNUMA: true, FullPCPUsOnly: true},
			busy:  "0,8,16,24",
			n:     54,
			fault: cpuHangs,
		},
		"1.37 with align-by-socket keeps to a socket": {
			spec: grid.Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 1}.Spec(), minor: 37,
			cpu: CPU{DistributeAcrossNUMA: true, AlignBySocket: true}, busy: "0-1", n: 6, want: "8-10,12-14",
		},
		"1.36 with align-by-socket looks at balance alone": {
			spec: grid.Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 1}.Spec(),
			cpu:  CPU{DistributeAcrossNUMA: true, AlignBySocket: true}, busy: "0-1", n: 6, want: "4-6,8-10",
		},
		"more than an average NUMA node has come from two, though one has them": {
			spec: small, cpu: CPU{DistributeAcrossNUMA: true}, n: 5, want: "0-2,6-7",
		},
		"a NUMA node without free CPUs does not count as one of two": {
			spec: unequal, minor: 37, cpu: CPU{DistributeAcrossNUMA: true, AlignBySocket: true}, busy: "0-3", n: 6,
			want: "8-11,16-17",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := grid.Build(t, tt.spec)
			minor := tt.minor
			if minor == 0 {
				minor = 36
			}
			c := Config{Model: minorModel(minor), CPU: tt.cpu}
			busy := cpuset.MustParse(tt.busy)
			got, fault := newCPUPolicy(m, c).take(m.Online().Minus(busy), tt.n)
			if got != cpuset.MustParse(tt.want) || fault != tt.fault {
				t.Errorf("%d CPUs with %q busy: got %s, fault %d; want %s, fault %d", tt.n, tt.busy, got, fault,
					tt.want, tt.fault)
			}
		})
	}
}

func TestReservedCPUs(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}.Build(t)
	tests := map[string]struct {
		cpu   CPU
		milli int64
		want  string
		ok    bool
	}{
		"a fraction is a CPU":   {milli: 1200, want: "0,8", ok: true},
		"the lowest core first": {milli: 2000, want: "0,8", ok: true},
		"with shares of every node": {
			cpu: CPU{DistributeAcrossNUMA: true}, milli: 12000,
			want: "0-2,4-6,8-10,12-14", ok: true,
		},
		"spread over cores": {
			cpu: CPU{DistributeAcrossCores: true}, milli: 2000, want: "0-1",
			ok: true,
		},
		"all CPUs":                           {milli: 16000, want: "0-15", ok: true},
		"the static policy refuses nothing":  {milli: 0},
		"the static policy refuses too much": {milli: 16001},
		"the static policy refuses debts":    {milli: -5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := ReservedCPUs(m, Config{Model: minorModel(36), CPU: tt.cpu}, tt.milli)
			if got != cpuset.MustParse(tt.want) || ok != tt.ok {
				t.Errorf("%d milli-CPU: got %s, %v; want %s, %v", tt.milli, got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestLargeMachines asks machines that no kubelet under a topology policy runs on: every answer must come, and soon.
func TestLargeMachines(t *testing.T) {
	t.Parallel()
	spread := []CPU{
		{DistributeAcrossNUMA: true},
		{DistributeAcrossNUMA: true, FullPCPUsOnly: true, AlignBySocket: true},
	}
	packed := []CPU{{}, {AlignL3: true}, {DistributeAcrossCores: true}}
	for _, tt := range []struct {
		frame grid.Machine
		cpus  []CPU
	}{
		{grid.Machine{Sockets: 64, Nodes: 1, Cores: 4, Threads: 4}, packed},
		{grid.Machine{Sockets: 8, Nodes: 8, Cores: 4, Threads: 2}, slices.Concat(packed, spread)},
		{grid.Machine{Sockets: 1, Nodes: 200, Cores: 2, Threads: 2}, slices.Concat(packed, spread[:1])},
		{grid.Machine{Sockets: 4, Nodes: 2, Cores: 64, Threads: 2}, slices.Concat(packed, spread)},
		{grid.Machine{Sockets: 1, Nodes: 1, Cores: 1, Threads: 1024}, slices.Concat(packed, spread)},
		{grid.Machine{Sockets: 1, Nodes: 1, Cores: 1, Threads: 1}, slices.Concat(packed, spread)},
	} {
		m := tt.frame.Build(t)
		for _, cpu := range tt.cpus {
			p := newCPUPolicy(m, Config{Model: minorModel(37), CPU: cpu})
			from := m.Online()
			if from.Len() > 1 {
				from.Remove(0)
			}
			n := (from.Len() + 1) / 2
			switch set, fault := p.take(from, n); {
			case fault == cpuOK:
				if set.Len() != n || !set.SubsetOf(&from) {
					t.Errorf("%+v, %+v: %d of %s are %s", tt.frame, cpu, n, from, set)
				}
			case fault != cpuHangs || !cpu.DistributeAcrossNUMA:
				t.Errorf("%+v, %+v: %d of %s: fault %d", tt.frame, cpu, n, from, fault)
			}
		}
	}
}
