package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
)

// Model is the behaviour that differs between kubelet minors. Make it with ModelOf.
type Model struct {
	// Minor is the release that the model follows, 33 to 37.
	Minor int
	// Beyond tells that the kubelet is newer than the newest model.
	Beyond bool
}

// ModelOf chooses the model by status.nodeInfo.kubeletVersion ("v1.36.3"); false for a version that cannot be read or is
// below 1.33, of which only capacities are checked.
func ModelOf(version string) (Model, bool) { panic("not built") }

// Config is what the kubelet of a node is told. CPUs are dense indices of the node's machine.
type Config struct {
	Model    Model
	CPU      CPU
	Memory   Memory
	Topology Topology
}

// CPU are the settings of the CPU manager.
type CPU struct {
	Static                bool
	FullPCPUsOnly         bool
	DistributeAcrossNUMA  bool
	DistributeAcrossCores bool
	AlignBySocket         bool
	StrictReservation     bool
	AlignL3               bool
	// Reserved are the CPUs of reservedSystemCPUs, or those that kubeReserved and systemReserved come to.
	Reserved cpuset.Set
}

// Memory are the settings of the memory manager.
type Memory struct {
	Static bool
}

// Topology are the settings of the Topology Manager.
type Topology struct {
	Policy hint.Policy
	// PodScope: one merge for the whole pod; else one for each container.
	PodScope bool
	// PreferClosest is prefer-closest-numa-nodes.
	PreferClosest bool
	// MaxNodes is max-allowable-numa-nodes; 0 = 8.
	MaxNodes int
}
