package ledger

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// NodeBind is the node label cpu-bind-policy.
type NodeBind uint8

// Node bind policies. Unset lets the kubelet's options speak, NoPolicy is the explicit label None.
const (
	Unset NodeBind = iota
	NoPolicy
	FullPCPUsOnly
	SpreadByPCPUs
)

// TopologyPolicy is a NUMA topology policy, ordered from the least to the most strict.
type TopologyPolicy uint8

// Topology policies.
const (
	NoTopology TopologyPolicy = iota
	BestEffort
	Restricted
	SingleNUMANode
)

// String returns the policy as the node label spells it; "None" for NoTopology.
func (p TopologyPolicy) String() string {
	return [...]string{"None", "BestEffort", "Restricted", "SingleNUMANode"}[p]
}

// Kubelet is what the node's kubelet does with CPUs.
type Kubelet struct {
	Static               bool // CPU manager policy static
	FullPCPUsOnly        bool
	DistributeAcrossNUMA bool
	StrictReservation    bool
	AlignL3              bool
	Reserved             cpuset.Set // RESERVED_K; empty unless Static
}

// Pin is a pod that the kubelet's static policy pinned, as the agent reports it. It counts as KSTATIC unless the
// pod's own entry says that Tenon decides about it. A pin without UID is that of the pod of its namespace and name.
type Pin struct {
	UID, Namespace, Name string
	CPUs                 cpuset.Set
}

// Facts is all that is known of a node besides its pods. The zero value is a node without topology.
type Facts struct {
	// Machine is nil while no valid topology is known; Fault then says why (TopologyMissing or InvalidTopology).
	Machine *topo.Machine
	Fault   why.Reason
	// ARM64: only FullPCPUs and NUMANodeLevel exist there (seed 000).
	ARM64   bool
	Kubelet Kubelet
	// Mode says whose CPU assignments hold; Model is the kubelet as far as its answers can be predicted.
	Mode  Mode
	Model Model
	Pins  []Pin
	// Imported: the object of another exporter replaces the report of our agent. Its age is unknown, and only the
	// kubelet gives pods CPUs there.
	Imported bool
	// Unclaimed are CPUs that the kubelet has given to pods that the node does not name.
	Unclaimed cpuset.Set
	// NodeReserved is RESERVED_N, System the system CPUs when they are exclusive.
	NodeReserved, System cpuset.Set
	Bind                 NodeBind
	// Strategy and Topology are effective: node label, else kubelet, else plugin argument.
	Strategy cpualloc.Strategy
	// StrategyByLabel: the node's own label says the strategy. Then it ranks the node among others too.
	StrategyByLabel bool
	Topology        TopologyPolicy
	// Memory is what each NUMA node has for pods (allocatable). Types that it does not name take no part in any
	// decision.
	Memory []Memory
	// MinSharedCPUs is the floor of the LS pool; negative = the default (|RESERVED_K|, else threads per core).
	MinSharedCPUs int
}

// Equal reports whether two facts say the same; the order of Pins and Memory does not matter.
func (f *Facts) Equal(o *Facts) bool {
	return f.sameMachine(o) && f.Fault == o.Fault && f.ARM64 == o.ARM64 && f.Kubelet == o.Kubelet &&
		f.NodeReserved == o.NodeReserved && f.System == o.System && f.Bind == o.Bind && f.Strategy == o.Strategy &&
		f.StrategyByLabel == o.StrategyByLabel &&
		f.Topology == o.Topology && f.MinSharedCPUs == o.MinSharedCPUs && f.Mode == o.Mode && f.Model.equal(&o.Model) &&
		f.Imported == o.Imported && f.Unclaimed == o.Unclaimed &&
		slices.Equal(sortedPins(f.Pins), sortedPins(o.Pins)) &&
		slices.Equal(normalMemory(f.Memory), normalMemory(o.Memory))
}

func (f *Facts) sameMachine(o *Facts) bool {
	if f.Machine == nil || o.Machine == nil {
		return f.Machine == o.Machine
	}
	return f.Machine.Equal(o.Machine)
}

// sortedPins returns pins by UID; pins itself where they are sorted already.
func sortedPins(pins []Pin) []Pin {
	byUID := func(a, b Pin) int { return cmp.Compare(a.UID, b.UID) }
	if !slices.IsSortedFunc(pins, byUID) {
		pins = slices.Clone(pins)
		slices.SortStableFunc(pins, byUID)
	}
	return pins
}
