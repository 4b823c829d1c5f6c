package annotation

import (
	corev1 "k8s.io/api/core/v1"
)

// Mode says whose CPU assignments hold on a node (TopologyMode).
type Mode = string

// Modes.
const (
	// ModeOwn: Tenon's scheduler chooses CPUs, the agent writes cpusets.
	ModeOwn Mode = "Own"
	// ModeFollow: the kubelet's managers choose; the scheduler predicts what.
	ModeFollow Mode = "Follow"
	// ModeBlind: the kubelet is not asked; only the topology is known.
	ModeBlind Mode = "Blind"
)

// ParseMode reads a Mode; "" is ModeOwn.
func ParseMode(text string) (Mode, []Warning, error) {
	if text == "" {
		return ModeOwn, nil, nil
	}
	allowed := []string{ModeOwn, ModeFollow, ModeBlind}
	mode, exact, ok := match(text, allowed, nil)
	if !ok {
		return "", nil, &Error{Value: text, Allowed: allowed, Text: Unsupported(text, allowed...)}
	}
	if !exact {
		return mode, []Warning{{Text: spelling(text, mode)}}, nil
	}
	return mode, nil, nil
}

// Policies of the kubelet's memory manager.
const (
	KubeletMemoryNone   = "None"
	KubeletMemoryStatic = "Static"
)

// Kubelet is how the kubelet of a node handles CPUs, memory and topology (KubeletKey): what /configz says, in short.
type Kubelet struct {
	// Version is the kubelet's own, as v1.36.3.
	Version  string          `json:"version,omitempty"`
	CPU      KubeletCPU      `json:"cpu"`
	Memory   KubeletMemory   `json:"memory"`
	Topology KubeletTopology `json:"topology"`
	// Gates are the feature gates that are set, by name.
	Gates map[string]bool `json:"gates,omitempty"`
}

// KubeletCPU is the CPU manager.
type KubeletCPU struct {
	// Policy is none or static; "" is none.
	Policy  string            `json:"policy"`
	Options map[string]string `json:"options,omitempty"`
	// Reserved are the CPUs that it allocates to no container, in Linux list format.
	Reserved string `json:"reserved,omitempty"`
}

// KubeletMemory is the memory manager.
type KubeletMemory struct {
	// Policy is None or Static; "" is None.
	Policy string `json:"policy"`
	// Reserved is what no pod gets, by the kernel's id of the NUMA node.
	Reserved map[int32]corev1.ResourceList `json:"reserved,omitempty"`
}

// KubeletTopology is the topology manager.
type KubeletTopology struct {
	// Policy is none, best-effort, restricted or single-numa-node; "" is none.
	Policy string `json:"policy"`
	// Scope is container or pod; "" is container.
	Scope   string            `json:"scope,omitempty"`
	Options map[string]string `json:"options,omitempty"`
}

// String returns the canonical JSON.
func (k Kubelet) String() string { return encode(k) }

// ParseKubelet reads a Kubelet. Policies and the scope that are absent get the kubelet's defaults.
func ParseKubelet(text string) (Kubelet, []Warning, error) {
	var in struct {
		Version string     `json:"version"`
		CPU     KubeletCPU `json:"cpu"`
		Memory  struct {
			Policy   string            `json:"policy"`
			Reserved map[int32]amounts `json:"reserved"`
		} `json:"memory"`
		Topology KubeletTopology `json:"topology"`
		Gates    map[string]bool `json:"gates"`
	}
	warnings, err := decode(text, &in)
	if err != nil {
		return Kubelet{}, nil, err
	}
	k := Kubelet{
		Version: in.Version, CPU: in.CPU, Memory: KubeletMemory{Policy: in.Memory.Policy}, Topology: in.Topology,
		Gates: in.Gates,
	}
	plainBools(k.CPU.Options)
	plainBools(k.Topology.Options)
	for _, f := range []struct {
		outer, inner, otherwise string
		value                   *string
		allowed                 []string
	}{
		{"cpu", "policy", KubeletPolicyNone, &k.CPU.Policy, []string{KubeletPolicyNone, KubeletPolicyStatic}},
		{"memory", "policy", KubeletMemoryNone, &k.Memory.Policy, []string{KubeletMemoryNone, KubeletMemoryStatic}},
		{
			"topology", "policy", KubeletTopologyNone, &k.Topology.Policy,
			[]string{
				KubeletTopologyNone, KubeletTopologyBestEffort, KubeletTopologyRestricted,
				KubeletTopologySingleNUMA,
			},
		},
		{
			"topology", "scope", TopologyScopeContainer, &k.Topology.Scope,
			[]string{TopologyScopeContainer, TopologyScopePod},
		},
	} {
		if *f.value == "" {
			*f.value = f.otherwise
			continue
		}
		canonical, exact, ok := match(*f.value, f.allowed, nil)
		if !ok {
			return Kubelet{}, nil, &Error{
				Offset: valueOffset(text, f.outer), Field: f.outer + "." + f.inner, Value: *f.value, Allowed: f.allowed,
				Text: Unsupported(*f.value, f.allowed...),
			}
		}
		if !exact {
			warnings = append(warnings, Warning{Field: f.outer + "." + f.inner, Text: spelling(*f.value, canonical)})
		}
		*f.value = canonical
	}
	v := values{text: text, outer: "memory"}
	for _, id := range sorted(in.Memory.Reserved) {
		list := in.Memory.Reserved[id]
		v.atLeastZero("reserved", int64(id))
		v.amounts("reserved", list)
		if k.Memory.Reserved == nil {
			k.Memory.Reserved = map[int32]corev1.ResourceList{}
		}
		k.Memory.Reserved[id] = list.list()
	}
	if v.err != nil {
		return Kubelet{}, nil, v.err
	}
	return k, warnings, nil
}
