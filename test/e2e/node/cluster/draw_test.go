package fabricated

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// combination is a machine, the policies of its kubelet, and pods.
type combination struct {
	name     string
	follow   bool
	shape    string // in words
	settings string // of the kubelet, as behind the "@" of a machine spec
	machine  machine.Description
	// waves of pods: the next one comes when the last has settled and every other pod of it was deleted.
	waves [][]wish
}

func (c combination) mode() string {
	if c.follow {
		return "follow"
	}
	return "own"
}

// drawer draws from one seed.
type drawer struct {
	*rand.Rand
	unit int // CPUs in which a kubelet with full-pcpus-only gives them out
}

func newDrawer(seed, stream uint64) drawer { return drawer{rand.New(rand.NewPCG(seed, stream)), 1} }

func (d drawer) chance(percent int) bool { return d.IntN(100) < percent }

func (d drawer) between(first, last int) int { return first + d.IntN(last-first+1) }

func pick[T any](d drawer, choices ...T) T { return choices[d.IntN(len(choices))] }

// usualSeed is that of a run that names none: a change is judged by itself.
const usualSeed = 20261120

// drawCombination draws number i of a run. memoryKiB is what the NUMA nodes must add up to.
func drawCombination(seed uint64, i int, follow bool, memoryKiB int64) (combination, error) {
	stream := uint64(i)
	if follow {
		stream |= 1 << 32
	}
	d := newDrawer(seed, stream)
	c := combination{follow: follow}
	c.name = fmt.Sprintf("%s-%02d", c.mode(), i)
	for range 1000 { // a kubelet does not start with every mix of settings
		var parts topo.Spec
		parts, c.shape = d.parts(memoryKiB)
		c.settings = d.settings(parts, follow)
		var err error
		c.machine, err = machine.Of(c.name, "AMD EPYC 7513 32-Core Processor", parts, c.settings)
		if err == nil && hasRoom(c.machine) {
			if c.machine.Kubelet.CPU.Options["full-pcpus-only"] == "true" {
				d.unit = threadsOf(c.machine)
			}
			c.waves = d.pods(c.machine, follow)
			return c, nil
		}
	}
	return c, fmt.Errorf("seed %d, combination %s: no settings were found with which a kubelet starts", seed, c.name)
}

// hasRoom reports whether reserved CPUs and as many for the shared pool leave most of the machine to pods.
func hasRoom(m machine.Description) bool {
	reserved, err := fold.Parse(m.Kubelet.CPU.Reserved)
	return err == nil && 4*len(reserved) <= len(m.Spec().CPUs)
}

func threadsOf(m machine.Description) int {
	cores := map[int]bool{}
	for _, c := range m.Spec().CPUs {
		cores[c.Core] = true
	}
	return len(m.Spec().CPUs) / len(cores)
}

// parts draws a machine with 8 to 48 CPUs and one to four NUMA nodes.
func (d drawer) parts(memoryKiB int64) (topo.Spec, string) {
	nodes := pick(d, 1, 2, 2, 2, 3, 4, 4)
	sockets := map[int][]int{1: {1}, 2: {1, 2, 2}, 3: {1, 3}, 4: {1, 2, 2, 4}}[nodes]
	perSocket := nodes / pick(d, sockets...)
	threads := pick(d, 1, 2, 2, 2)
	cores := d.between(2, 6)
	if nodes == 1 {
		cores = d.between(4, 12)
	}
	for nodes*cores*threads < 8 {
		cores++
	}
	adjacent := threads > 1 && d.chance(40)
	l3PerNode := pick(d, 1, 1, 2)
	parts := topo.Spec{Arch: "amd64"}
	total := nodes * cores
	for thread := range threads {
		for core := range total {
			node := core / cores
			id := thread*total + core
			if adjacent {
				id = core*threads + thread
			}
			parts.CPUs = append(parts.CPUs, topo.CPUSpec{
				ID: id, Core: core, L3: node*l3PerNode + core%cores*l3PerNode/cores,
				Socket: node / perSocket, NUMA: node,
			})
		}
	}
	memory := d.share(memoryKiB, nodes)
	for n := range nodes {
		row := topo.NUMASpec{ID: n, MemoryBytes: memory[n] << 10}
		for o := range nodes {
			switch {
			case n == o:
				row.Distances = append(row.Distances, 10)
			case n/perSocket == o/perSocket:
				row.Distances = append(row.Distances, 12)
			default:
				row.Distances = append(row.Distances, 32)
			}
		}
		parts.NUMA = append(parts.NUMA, row)
	}
	numbering := "offset"
	if adjacent {
		numbering = "adjacent"
	}
	return parts, fmt.Sprintf("%d×%d×%d×%d %s", nodes/perSocket, perSocket, cores, threads, numbering)
}

// share divides an amount, evenly or not; no part is less than half of an even share.
func (d drawer) share(amount int64, parts int) []int64 {
	shares := make([]int64, parts)
	left := amount
	for i := range shares {
		shares[i] = amount / int64(parts)
		if i == parts-1 {
			shares[i] = left
		} else if d.chance(40) {
			shares[i] -= shares[i] * int64(d.between(5, 50)) / 100
		}
		left -= shares[i]
	}
	return shares
}

// settings draws a kubelet's.
func (d drawer) settings(parts topo.Spec, follow bool) string {
	var words []string
	static := follow || d.chance(60)
	if static {
		words = append(words, "static", "reserved="+d.reserved(parts))
		if d.chance(35) {
			words = append(words, "full-pcpus-only")
		}
		if d.chance(60) {
			words = append(words, pick(d, "distribute-cpus-across-numa", "align-by-socket",
				"distribute-cpus-across-cores",
				"prefer-align-cpus-by-uncorecache"))
		}
		if d.chance(20) {
			words = append(words, "strict-cpu-reservation")
		}
	} else {
		words = append(words, "none")
	}
	if d.chance(50) {
		words = append(words, "memory-static")
	}
	if policy := pick(d, "", "", "best-effort", "restricted", "restricted", "single-numa-node",
		"single-numa-node"); policy != "" {
		words = append(words, policy)
		if d.chance(40) {
			words = append(words, "pod-scope")
		}
		if d.chance(20) {
			words = append(words, "prefer-closest-numa-nodes")
		}
	}
	if follow {
		words = append(words, "follow")
	}
	return strings.Join(words, ",")
}

// reserved draws the kubelet's reserved CPUs: a thread, whole cores, or cores of several NUMA nodes.
func (d drawer) reserved(parts topo.Spec) string {
	core := func(c int) []int {
		var ids []int
		for _, cpu := range parts.CPUs {
			if cpu.Core == c {
				ids = append(ids, cpu.ID)
			}
		}
		return ids
	}
	last := parts.CPUs[len(parts.CPUs)-1].Core
	switch d.IntN(5) {
	case 0:
		return "0"
	case 1:
		return cpuset.FormatIDs(sorted(core(0), core(last)))
	case 2:
		return cpuset.FormatIDs(sorted(core(0), core(1)))
	case 3:
		return cpuset.FormatIDs(core(d.IntN(last + 1)))
	}
	return cpuset.FormatIDs(core(0))
}
