package annotation

// CPUBindPolicy is how a pod's CPUs are laid over physical cores.
type CPUBindPolicy = string

// CPU bind policies. Default and "" leave the choice to the scheduler's configuration.
const (
	BindDefault          CPUBindPolicy = "Default"
	BindFullPCPUs        CPUBindPolicy = "FullPCPUs"
	BindSpreadByPCPUs    CPUBindPolicy = "SpreadByPCPUs"
	BindConstrainedBurst CPUBindPolicy = "ConstrainedBurst"
)

// CPUExclusivePolicy selects the pods with which a pod does not want to share cores or NUMA nodes.
type CPUExclusivePolicy = string

// CPU exclusive policies; "" leaves the choice to the scheduler's configuration.
const (
	ExclusiveNone          CPUExclusivePolicy = "None"
	ExclusivePCPULevel     CPUExclusivePolicy = "PCPULevel"
	ExclusiveNUMANodeLevel CPUExclusivePolicy = "NUMANodeLevel"
)

// ResourceSpec is what a pod wishes of its CPUs (ResourceSpecKey).
type ResourceSpec struct {
	// RequiredCPUBindPolicy must hold, or the pod does not fit. ConstrainedBurst cannot be required.
	RequiredCPUBindPolicy CPUBindPolicy `json:"requiredCPUBindPolicy,omitempty"`
	// PreferredCPUBindPolicy holds as far as possible. A required policy beats it.
	PreferredCPUBindPolicy CPUBindPolicy `json:"preferredCPUBindPolicy,omitempty"`
	// PreferredCPUExclusivePolicy never makes a pod unschedulable.
	PreferredCPUExclusivePolicy CPUExclusivePolicy `json:"preferredCPUExclusivePolicy,omitempty"`
}

// String returns the canonical JSON.
func (s ResourceSpec) String() string { return encode(s) }

// ParseResourceSpec reads a ResourceSpec. An exclusive policy of Default is read as "".
func ParseResourceSpec(text string) (ResourceSpec, []Warning, error) {
	var s ResourceSpec
	warnings, err := decode(text, &s)
	if err != nil {
		return ResourceSpec{}, nil, err
	}
	bind := []string{BindDefault, BindFullPCPUs, BindSpreadByPCPUs, BindConstrainedBurst}
	bindAliases := []alias{{"PCPUOnly", BindFullPCPUs}}
	more, err := canonicalize(text,
		field{"requiredCPUBindPolicy", &s.RequiredCPUBindPolicy, bind, bindAliases},
		field{"preferredCPUBindPolicy", &s.PreferredCPUBindPolicy, bind, bindAliases},
		field{
			"preferredCPUExclusivePolicy", &s.PreferredCPUExclusivePolicy,
			[]string{ExclusiveNone, ExclusivePCPULevel, ExclusiveNUMANodeLevel},
			[]alias{{"Default", ""}, {"PCPU", ExclusivePCPULevel}},
		},
	)
	if err != nil {
		return ResourceSpec{}, nil, err
	}
	if s.RequiredCPUBindPolicy == BindConstrainedBurst {
		return ResourceSpec{}, nil, &Error{
			Offset: valueOffset(text, "requiredCPUBindPolicy"),
			Field:  "requiredCPUBindPolicy", Text: "ConstrainedBurst can only be preferred",
		}
	}
	return s, append(warnings, more...), nil
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

// String returns the canonical JSON.
func (s NUMATopologySpec) String() string { return encode(s) }

// ParseNUMATopologySpec reads a NUMATopologySpec. A policy of None, in any spelling, is read as "".
func ParseNUMATopologySpec(text string) (NUMATopologySpec, []Warning, error) {
	var s NUMATopologySpec
	warnings, err := decode(text, &s)
	if err != nil {
		return NUMATopologySpec{}, nil, err
	}
	more, err := canonicalize(text,
		field{
			"numaTopologyPolicy", &s.NUMATopologyPolicy,
			[]string{TopologyBestEffort, TopologyRestricted, TopologySingleNUMANode},
			append(topologyAliases(), alias{"None", ""}, alias{"none", ""}),
		},
		field{"singleNUMANodeExclusive", &s.SingleNUMANodeExclusive, []string{"Preferred", "Required"}, nil},
	)
	if err != nil {
		return NUMATopologySpec{}, nil, err
	}
	return s, append(warnings, more...), nil
}

// topologyAliases are the kubelet's spellings.
func topologyAliases() []alias {
	return []alias{
		{"best-effort", TopologyBestEffort},
		{"restricted", TopologyRestricted},
		{"single-numa-node", TopologySingleNUMANode},
	}
}
