package machine

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// presetsJSON has the machines that have a name. It is part of the program.
//
//go:embed presets.json
var presetsJSON []byte

// Presets returns the machines that have a name, in the order in which they are listed to people.
func Presets() []Description { return slices.Clone(presets()) }

var presets = sync.OnceValue(func() (all []Description) {
	var list []struct {
		Name, Summary string
		Arch, Model   string // of the CPUs
		Shape         shape
		Board         board
	}
	d := json.NewDecoder(bytes.NewReader(presetsJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		panic(fmt.Sprintf("machine: presets.json: %v", err))
	}
	for _, p := range list {
		all = append(all, Description{
			Name: p.Name, Summary: p.Summary, arch: p.Arch, model: p.Model, shape: p.Shape, board: p.Board,
		})
	}
	return all
})

const gib = int64(1) << 30

// shape is a regular machine: sockets × NUMA nodes × cores × threads, as Linux numbers them. Fields are those of
// presets.json.
type shape struct {
	Sockets, NUMAPerSocket, CoresPerNUMA, Threads int
	// CoresPerL3 divides the cores of a NUMA node into L3 groups; 0 = one L3 per socket.
	CoresPerL3 int
	// EfficiencyCores are further cores of the only NUMA node, without SMT.
	EfficiencyCores int
	MemoryGiB       int64           // per NUMA node
	Hugepages       map[int64]int64 // per NUMA node, by the size of a page in bytes
	// SameSocket and OtherSocket are SLIT distances to other NUMA nodes of the same socket and of another one.
	SameSocket, OtherSocket int
}

func (s shape) cores() int { return s.Sockets * s.NUMAPerSocket * s.CoresPerNUMA }
func (s shape) nodes() int { return s.Sockets * s.NUMAPerSocket }

// spec numbers the CPUs. Servers: the first threads of all cores, then the second ones (core c has CPUs c and c +
// cores). Hybrid machines: performance cores with adjacent siblings (0,1), (2,3)…, then the efficiency cores.
func (s shape) spec(arch string) topo.Spec {
	spec := topo.Spec{Arch: arch}
	hybrid := s.EfficiencyCores > 0
	for thread := range s.Threads {
		for core := range s.cores() {
			node := core / s.CoresPerNUMA
			c := topo.CPUSpec{
				ID: thread*s.cores() + core, Core: core, L3: s.l3(core),
				Socket: node / s.NUMAPerSocket, NUMA: node,
			}
			if hybrid {
				c.ID, c.Kind = core*s.Threads+thread, topo.Performance
			}
			spec.CPUs = append(spec.CPUs, c)
		}
	}
	for e := range s.EfficiencyCores {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: s.cores()*s.Threads + e, Core: s.cores() + e, Kind: topo.Efficiency,
		})
	}
	for n := range s.nodes() {
		row := topo.NUMASpec{ID: n, MemoryBytes: s.MemoryGiB * gib, Hugepages: s.Hugepages}
		for o := range s.nodes() {
			row.Distances = append(row.Distances, s.distance(n, o))
		}
		spec.NUMA = append(spec.NUMA, row)
	}
	return spec
}

func (s shape) l3(core int) int {
	if s.CoresPerL3 == 0 {
		return core / (s.CoresPerNUMA * s.NUMAPerSocket)
	}
	return core / s.CoresPerL3
}

func (s shape) distance(a, b int) int {
	switch {
	case a == b:
		return 10
	case a/s.NUMAPerSocket == b/s.NUMAPerSocket:
		return s.SameSocket
	}
	return s.OtherSocket
}
