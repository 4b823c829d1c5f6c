package annotation

import (
	"cmp"

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
	return word(text, ModeOwn, ModeFollow, ModeBlind)
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

// ParseKubelet reads a Kubelet. Policies and the scope that are absent get the kubelet's defaults.
func ParseKubelet(text string) (Kubelet, []Warning, error) {
	return readAmounts(text, func(r *reader, k *Kubelet) {
		plainBools(k.CPU.Options)
		plainBools(k.Topology.Options)
		for _, f := range []struct {
			name    string
			value   *string
			allowed []string // the first one is the default
		}{
			{"cpu.policy", &k.CPU.Policy, []string{KubeletPolicyNone, KubeletPolicyStatic}},
			{"memory.policy", &k.Memory.Policy, []string{KubeletMemoryNone, KubeletMemoryStatic}},
			{"topology.policy", &k.Topology.Policy, []string{
				KubeletTopologyNone, KubeletTopologyBestEffort, KubeletTopologyRestricted, KubeletTopologySingleNUMA,
			}},
			{"topology.scope", &k.Topology.Scope, []string{TopologyScopeContainer, TopologyScopePod}},
		} {
			*f.value = cmp.Or(*f.value, f.allowed[0])
			r.word(f.name, f.value, f.allowed)
		}
		for _, id := range sorted(k.Memory.Reserved) {
			r.atLeastZero("memory.reserved", int64(id))
			r.amounts("memory.reserved", k.Memory.Reserved[id])
		}
	})
}
