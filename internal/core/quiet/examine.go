package quiet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Facts is what a machine does on its CPUs besides running pods.
type Facts struct {
	// Isolated are the CPUs of the boot option isolcpus, NoTick those of nohz_full, NoCallbacks those of rcu_nocbs.
	Isolated, NoTick, NoCallbacks cpuset.Set
	// SparesManaged: the boot keeps managed interrupts off Isolated (isolcpus=managed_irq).
	SparesManaged bool
	// Balancer: irqbalance runs, which moves interrupts to any CPU that its configuration does not exclude.
	Balancer bool
	// Slow are the frequency governors in use other than performance.
	Slow []string
	// Fixed are the CPUs on which interrupts fire that the kernel does not let move.
	Fixed cpuset.Set
}

// Measure is one thing that keeps CPUs undisturbed, in the order of worth.
type Measure uint8

// Measures.
const (
	// Isolation: the kernel moves no other thread to the CPUs.
	Isolation Measure = iota
	// Tick: the kernel stops its periodic tick while one thread runs.
	Tick
	// Callbacks: RCU callbacks run elsewhere.
	Callbacks
	// Interrupts: no daemon moves interrupts to the CPUs.
	Interrupts
	// Frequency: the clock does not slow down.
	Frequency
	// Threads: no other CPU shares the cores.
	Threads
	// Managed: no interrupt fires there that cannot be moved.
	Managed
	numMeasures
)

// String returns the measure's name in JSON.
func (m Measure) String() string {
	return [...]string{"isolation", "tick", "callbacks", "interrupts", "frequency", "threads", "managed"}[m]
}

// Result is what Examine says of one measure.
type Result struct {
	Measure Measure
	// Lacking are those of the CPUs without the measure; empty where it holds.
	Lacking cpuset.Set
}

// Holds reports whether the measure holds for all CPUs.
func (r *Result) Holds() bool { return r.Lacking.IsEmpty() }

// Examine returns a Result for each measure, in the order of worth, for CPUs of a machine.
func Examine(m *topo.Machine, f *Facts, cpus cpuset.Set) []Result {
	lacking := [numMeasures]cpuset.Set{
		Isolation: cpus.Minus(f.Isolated),
		Tick:      cpus.Minus(f.NoTick),
		// The kernel offloads the callbacks of nohz_full CPUs by itself.
		Callbacks: cpus.Minus(f.NoCallbacks).Minus(f.NoTick),
		Managed:   cpus.Intersect(f.Fixed),
	}
	if f.Balancer {
		lacking[Interrupts] = cpus
	}
	if len(f.Slow) > 0 {
		lacking[Frequency] = cpus
	}
	online := m.Online()
	for c := range cpus.All() {
		if slices.ContainsFunc(m.CoreCPUs(m.CoreOf(topo.CPU(c))), func(sibling topo.CPU) bool {
			return online.Has(int(sibling)) && !cpus.Has(int(sibling))
		}) {
			lacking[Threads].Add(c)
		}
	}
	results := make([]Result, 0, len(lacking))
	for i, cpus := range lacking {
		results = append(results, Result{Measure(i), cpus})
	}
	return results
}
