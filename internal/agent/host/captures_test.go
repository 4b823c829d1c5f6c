package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// figures are what a machine counts.
type figures struct {
	Arch                        string
	CPUs, Online, Efficiency    int
	Cores, Threads, Sockets, L3 int
	NUMA, CPUNodes, Farthest    int
	MemoryGiB                   int64
	Notes                       []string
}

func figuresOf(r host.Reading) figures {
	m := r.Machine
	online := m.Online()
	f := figures{
		Arch: m.Arch(), CPUs: m.NumCPUs(), Online: online.Len(), Cores: m.NumCores(), Threads: m.ThreadsPerCore(),
		Sockets: m.NumSockets(), L3: m.NumL3(), NUMA: m.NumNUMA(), CPUNodes: len(m.CPUNodes()), Notes: r.Notes,
	}
	for c := range m.NumCPUs() {
		if m.KindOf(topo.CPU(c)) == topo.Efficiency {
			f.Efficiency++
		}
	}
	for n := range m.NumNUMA() {
		f.MemoryGiB += m.MemoryBytes(topo.NUMA(n)) >> 30
		f.Farthest = max(f.Farthest, m.Distance(0, topo.NUMA(n)))
	}
	return f
}

var captured = map[string]figures{
	"128arm-2pa2n8cluster4co": {
		Arch: "arm64", CPUs: 128, Online: 128, Cores: 128, Threads: 1, Sockets: 2, L3: 4, NUMA: 4, CPUNodes: 4,
		Farthest: 33, MemoryGiB: 499,
	},
	// Offline CPUs have no topology folder: each counts as a core of its own, on a cache of its socket's.
	"16em64t-4s2c2t-offlines": {
		Arch: "amd64", CPUs: 16, Online: 12, Cores: 11, Threads: 2, Sockets: 4, L3: 5, NUMA: 1, CPUNodes: 1,
		Farthest: 10, MemoryGiB: 15,
	},
	"20em64t-hybrid-1p6c2t+2ca4co1t": {
		Arch: "amd64", CPUs: 20, Online: 20, Efficiency: 8, Cores: 14, Threads: 2, Sockets: 1, L3: 1,
		NUMA: 1, CPUNodes: 1, Farthest: 10, MemoryGiB: 30,
	},
	"256ppc-8n8s4t": {
		Arch: "ppc64le", CPUs: 256, Online: 256, Cores: 64, Threads: 4, Sockets: 64, L3: 64, NUMA: 8, CPUNodes: 8,
		Farthest: 40, MemoryGiB: 489,
		Notes: []string{"256 CPUs without a package id: the groups of core siblings count as sockets"},
	},
	"32em64t-2n8c+dax+nvme+mic+dimms": {
		Arch: "amd64", CPUs: 16, Online: 16, Cores: 16, Threads: 1, Sockets: 2, L3: 2, NUMA: 2,
		CPUNodes: 2, Farthest: 21, MemoryGiB: 31,
	},
	"32intel64-2p8co2t+8ve": {
		Arch: "amd64", CPUs: 32, Online: 32, Cores: 16, Threads: 2, Sockets: 2, L3: 2, NUMA: 2, CPUNodes: 2,
		Farthest: 21, MemoryGiB: 92,
	},
	"40intel64-4n10c+pci-conflicts": {
		Arch: "amd64", CPUs: 40, Online: 40, Cores: 40, Threads: 1, Sockets: 4, L3: 4, NUMA: 4,
		CPUNodes: 4, Farthest: 20, MemoryGiB: 511,
	},
	"48amd64-4pa2n6c-sparse": {
		Arch: "amd64", CPUs: 48, Online: 48, Cores: 48, Threads: 1, Sockets: 4, L3: 8, NUMA: 8, CPUNodes: 8,
		Farthest: 22, MemoryGiB: 95,
	},
	"64amd64-4s2n4ca2co": {
		Arch: "amd64", CPUs: 64, Online: 64, Cores: 32, Threads: 2, Sockets: 4, L3: 8, NUMA: 8, CPUNodes: 8,
		Farthest: 22, MemoryGiB: 118,
	},
	"96em64t-4no4pa3ca2co": {
		Arch: "amd64", CPUs: 96, Online: 96, Cores: 96, Threads: 1, Sockets: 16, L3: 16, NUMA: 4, CPUNodes: 4,
		Farthest: 26, MemoryGiB: 503,
	},
	"memorysidecaches": {
		Arch: "amd64", CPUs: 80, Online: 80, Cores: 40, Threads: 2, Sockets: 2, L3: 2, NUMA: 4, CPUNodes: 4,
		Farthest: 21, MemoryGiB: 1486,
	},
	// Six of the eight NUMA nodes are the memory of GPUs.
	"nvidiagpunumanodes": {
		Arch: "ppc64le", CPUs: 32, Online: 32, Cores: 8, Threads: 4, Sockets: 2, L3: 4, NUMA: 8, CPUNodes: 2,
		Farthest: 80, MemoryGiB: 340,
	},
	"offline-cpu0-node0": {
		Arch: "amd64", CPUs: 24, Online: 17, Cores: 24, Threads: 1, Sockets: 2, L3: 4, NUMA: 2, CPUNodes: 2,
		Farthest: 20, MemoryGiB: 125,
		Notes: []string{
			"sys/devices/system/node/node1/distance has 2 distances for 1 NUMA node: 10 and 20 are assumed",
			"12 CPUs without a NUMA node that has a folder: node 0 is assumed",
		},
	},
}

func TestEveryCapturedMachineReadsAsWhatItIs(t *testing.T) {
	t.Parallel()
	archives := testkit.Captures(t)
	if len(archives) != len(captured) {
		t.Errorf("found %d captured machines, want %d", len(archives), len(captured))
	}
	for _, archive := range archives {
		name := testkit.CaptureName(archive)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := testkit.Dir(t)
			testkit.Check(t, machine.Unpack(archive, dir))
			r, err := host.Read(host.Root{Dir: dir}, "")
			testkit.Check(t, err)
			if diff := cmp.Diff(captured[name], figuresOf(r)); diff != "" {
				t.Errorf("figures of the machine (-want +got):\n%s", diff)
			}
			compareWithLscpu(t, name, dir, r.Machine)
		})
	}
}
