package annotation

// CPU bind policies: how a pod's CPUs are laid over physical cores. Default and "" leave the choice to the scheduler's
// configuration.
const (
	BindDefault          = "Default"
	BindFullPCPUs        = "FullPCPUs"
	BindSpreadByPCPUs    = "SpreadByPCPUs"
	BindConstrainedBurst = "ConstrainedBurst"
)

// CPU exclusive policies select the pods with which a pod does not want to share cores or NUMA nodes; "" leaves the
// choice to the scheduler's configuration.
const (
	ExclusiveNone          = "None"
	ExclusivePCPULevel     = "PCPULevel"
	ExclusiveNUMANodeLevel = "NUMANodeLevel"
)

// ResourceSpec is what a pod wishes of its CPUs (ResourceSpecKey).
type ResourceSpec struct {
	// RequiredCPUBindPolicy must hold, or the pod does not fit. ConstrainedBurst cannot be required.
	RequiredCPUBindPolicy string `json:"requiredCPUBindPolicy,omitempty"`
	// PreferredCPUBindPolicy holds as far as possible. A required policy beats it.
	PreferredCPUBindPolicy string `json:"preferredCPUBindPolicy,omitempty"`
	// PreferredCPUExclusivePolicy never makes a pod unschedulable.
	PreferredCPUExclusivePolicy string `json:"preferredCPUExclusivePolicy,omitempty"`
}

// ParseResourceSpec reads a ResourceSpec. An exclusive policy of Default is read as "".
func ParseResourceSpec(text string) (ResourceSpec, []Warning, error) {
	return read(text, func(r *reader, s *ResourceSpec) {
		bind := []string{BindDefault, BindFullPCPUs, BindSpreadByPCPUs, BindConstrainedBurst}
		old := alias{"PCPUOnly", BindFullPCPUs}
		r.word("requiredCPUBindPolicy", &s.RequiredCPUBindPolicy, bind, old)
		r.word("preferredCPUBindPolicy", &s.PreferredCPUBindPolicy, bind, old)
		r.word("preferredCPUExclusivePolicy", &s.PreferredCPUExclusivePolicy,
			[]string{ExclusiveNone, ExclusivePCPULevel, ExclusiveNUMANodeLevel},
			alias{"Default", ""}, alias{"PCPU", ExclusivePCPULevel})
		if s.RequiredCPUBindPolicy == BindConstrainedBurst {
			r.refuse("requiredCPUBindPolicy", Error{Text: "ConstrainedBurst can only be preferred"})
		}
	})
}

// Values of IsolationKey.
const (
	IsolationPrefer  = "prefer"
	IsolationRequire = "require"
	IsolationAvoid   = "avoid"
)

// ParseIsolation reads a value of IsolationKey.
func ParseIsolation(text string) (string, []Warning, error) {
	return word(text, IsolationPrefer, IsolationRequire, IsolationAvoid)
}

// NUMATopologyPolicy is how a pod's resources must be aligned to NUMA nodes.
type NUMATopologyPolicy = string

// NUMA topology policies. On a pod "" leaves the choice to the node; on a node None is an explicit choice.
const (
	TopologyNone           NUMATopologyPolicy = "None"
	TopologyBestEffort     NUMATopologyPolicy = "BestEffort"
	TopologyRestricted     NUMATopologyPolicy = "Restricted"
	TopologySingleNUMANode NUMATopologyPolicy = "SingleNUMANode"
)

// NUMATopologySpec is a pod's own topology policy (NUMATopologySpecKey). It may tighten the node's, never loosen it.
type NUMATopologySpec struct {
	NUMATopologyPolicy NUMATopologyPolicy `json:"numaTopologyPolicy,omitempty"`
	// SingleNUMANodeExclusive is Preferred or Required; "" is Required when the pod sets a policy. A pod of one NUMA
	// node then shares it with no pod that spans several, and the reverse.
	SingleNUMANodeExclusive string `json:"singleNUMANodeExclusive,omitempty"`
}

// ParseNUMATopologySpec reads a NUMATopologySpec. A policy of None, in any spelling, is read as "".
func ParseNUMATopologySpec(text string) (NUMATopologySpec, []Warning, error) {
	return read(text, func(r *reader, s *NUMATopologySpec) {
		r.word("numaTopologyPolicy", &s.NUMATopologyPolicy,
			[]string{TopologyBestEffort, TopologyRestricted, TopologySingleNUMANode},
			append(topologyAliases(), alias{"None", ""}, alias{"none", ""})...)
		r.word("singleNUMANodeExclusive", &s.SingleNUMANodeExclusive, []string{"Preferred", "Required"})
	})
}

// topologyAliases are the kubelet's spellings.
func topologyAliases() []alias {
	return []alias{
		{"best-effort", TopologyBestEffort},
		{"restricted", TopologyRestricted},
		{"single-numa-node", TopologySingleNUMANode},
	}
}
