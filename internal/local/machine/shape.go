package machine

import "github.com/tenon-project/tenon/internal/core/topo"

const gib = int64(1) << 30

// shape is a regular machine: sockets × NUMA nodes × cores × threads, as Linux numbers them.
type shape struct {
	sockets, numaPerSocket, coresPerNUMA, threads int
	// coresPerL3 divides the cores of a NUMA node into L3 groups; 0 = one L3 per socket.
	coresPerL3 int
	// efficiencyCores are further cores of the only NUMA node, without SMT.
	efficiencyCores int
	memoryBytes     int64 // per NUMA node
	hugepages       map[int64]int64
	// SLIT distances to other NUMA nodes of the same socket and to those of another socket.
	sameSocket, otherSocket int
}

func (s shape) cores() int { return s.sockets * s.numaPerSocket * s.coresPerNUMA }
func (s shape) nodes() int { return s.sockets * s.numaPerSocket }

// spec numbers the CPUs. Servers: the first threads of all cores, then the second ones (core c has CPUs c and c +
// cores). Hybrid machines: performance cores with adjacent siblings (0,1), (2,3)…, then the efficiency cores.
func (s shape) spec(arch string) topo.Spec {
	spec := topo.Spec{Arch: arch}
	hybrid := s.efficiencyCores > 0
	for thread := range s.threads {
		for core := range s.cores() {
			node := core / s.coresPerNUMA
			c := topo.CPUSpec{
				ID: thread*s.cores() + core, Core: core, L3: s.l3(core),
				Socket: node / s.numaPerSocket, NUMA: node,
			}
			if hybrid {
				c.ID, c.Kind = core*s.threads+thread, topo.Performance
			}
			spec.CPUs = append(spec.CPUs, c)
		}
	}
	for e := range s.efficiencyCores {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: s.cores()*s.threads + e, Core: s.cores() + e, Kind: topo.Efficiency,
		})
	}
	for n := range s.nodes() {
		row := topo.NUMASpec{ID: n, MemoryBytes: s.memoryBytes, Hugepages: s.hugepages}
		for o := range s.nodes() {
			row.Distances = append(row.Distances, s.distance(n, o))
		}
		spec.NUMA = append(spec.NUMA, row)
	}
	return spec
}

func (s shape) l3(core int) int {
	if s.coresPerL3 == 0 {
		return core / (s.coresPerNUMA * s.numaPerSocket)
	}
	return core / s.coresPerL3
}

func (s shape) distance(a, b int) int {
	switch {
	case a == b:
		return 10
	case a/s.numaPerSocket == b/s.numaPerSocket:
		return s.sameSocket
	}
	return s.otherSocket
}
