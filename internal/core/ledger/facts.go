package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
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

// Mode says whose CPU assignments hold on a node.
type Mode uint8

// Modes.
const (
	// Own: the scheduler chooses, the agent enforces.
	Own Mode = iota
	// Follow: the kubelet chooses, the scheduler predicts what.
	Follow
	// Blind: the kubelet is not modelled; nothing is known of it.
	Blind
)

// String returns the annotation's spelling.
func (m Mode) String() string { return [...]string{"Own", "Follow", "Blind"}[m] }

// Facts is all that is known of a node besides its pods. The zero value is a node without topology.
type Facts struct {
	// Machine is nil while no valid topology is known; Fault then says why (TopologyMissing or InvalidTopology).
	Machine *topo.Machine
	Fault   why.Reason
	// ARM64: only FullPCPUs and NUMANodeLevel exist there (seed 000).
	ARM64 bool
	// Mode says whose CPU assignments hold; Model is the kubelet as far as its answers can be predicted, and what its
	// CPU manager is set to in any case.
	Mode  Mode
	Model kubelet.Facts
	// Given is what the node reports that its kubelet has given away. A pod with CPUs counts as KSTATIC unless its own
	// entry says that Tenon decides about it.
	Given []tenancy.Grant
	// Imported: the object of another exporter replaces the report of our agent. Its age is unknown, and only the
	// kubelet gives pods CPUs there.
	Imported bool
	// NodeReserved is RESERVED_N, System the system CPUs when they are exclusive.
	NodeReserved, System cpuset.Set
	Bind                 NodeBind
	// Strategy and Topology are effective: node label, else kubelet, else plugin argument.
	Strategy cpualloc.Strategy
	// StrategyByLabel: the node's own label says the strategy. Then it ranks the node among others too.
	StrategyByLabel bool
	Topology        hint.Policy
	// Amounts are what each NUMA node has for pods (allocatable), of memory and hugepages. Those that they do not
	// name take no part in any decision.
	Amounts []align.Amount
	// Devices are those that the node's Device object lists; nil without a usable one. OwnDevices: Tenon decides who
	// gets them, and not the node's kubelet.
	Devices    *device.Inventory
	OwnDevices bool
	// GPUIsolation is what keeps containers on the node to their shares of a GPU; "" for nothing.
	GPUIsolation string
	// MinSharedCPUs is the floor of the LS pool; negative = the default (|RESERVED_K|, else threads per core).
	MinSharedCPUs int
}

// Equal reports whether two facts say the same; the order of Given and Amounts does not matter.
func (f *Facts) Equal(o *Facts) bool {
	return f.Machine.Equal(o.Machine) && f.Fault == o.Fault && f.ARM64 == o.ARM64 &&
		f.NodeReserved == o.NodeReserved && f.System == o.System && f.Bind == o.Bind && f.Strategy == o.Strategy &&
		f.StrategyByLabel == o.StrategyByLabel && f.Topology == o.Topology && f.MinSharedCPUs == o.MinSharedCPUs &&
		f.Mode == o.Mode && f.Model.Equal(&o.Model) && f.Imported == o.Imported &&
		slices.EqualFunc(tenancy.SortGrants(f.Given), tenancy.SortGrants(o.Given), tenancy.Grant.Equal) &&
		f.Devices.Equal(o.Devices) && f.OwnDevices == o.OwnDevices &&
		f.GPUIsolation == o.GPUIsolation &&
		slices.Equal(align.Normal(f.Amounts), align.Normal(o.Amounts))
}
