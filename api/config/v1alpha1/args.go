package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion is what arguments may call their version. Their kind is the name of their type; both may be left out.
const APIVersion = "kubescheduler.config.k8s.io/v1"

// NodeNUMAResourceArgs are the arguments of the plugin NodeNUMAResource.
//
// +kubebuilder:object:root=true
type NodeNUMAResourceArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultCPUBindPolicy applies to pods without a bind policy: FullPCPUs (default) or SpreadByPCPUs.
	DefaultCPUBindPolicy string `json:"defaultCPUBindPolicy,omitempty"`
	// DefaultCPUExclusivePolicy applies to pods without an exclusive policy: None (default), PCPULevel or
	// NUMANodeLevel.
	DefaultCPUExclusivePolicy string `json:"defaultCPUExclusivePolicy,omitempty"`
	// ScoringStrategy ranks nodes. Default: LeastAllocated over cpu and memory.
	ScoringStrategy *ScoringStrategy `json:"scoringStrategy,omitempty"`
	// NUMAScoringStrategy ranks the NUMA nodes of a node without its own strategy. Default: LeastAllocated.
	NUMAScoringStrategy *ScoringStrategy `json:"numaScoringStrategy,omitempty"`

	// DefaultNUMATopologyPolicy is the NUMA topology policy of nodes without a policy in the label numa-topology-policy
	// or in a kubelet's NodeResourceTopology: None (default), BestEffort, Restricted or SingleNUMANode. An explicit
	// None of the node wins. It applies to pods that Tenon places; it does not change any kubelet.
	DefaultNUMATopologyPolicy string `json:"defaultNUMATopologyPolicy,omitempty"`
	// MinSharedCPUs is the number of CPUs that exclusive allocations leave to the CPU shared pool of every node, 0 or
	// more. Default: the CPUs that the kubelet reserves, else one core.
	MinSharedCPUs *int32 `json:"minSharedCPUs,omitempty"`
	// BindAllPodsOnPolicyNodes gives every pod with a CPU request exclusive CPUs, shared only with BE pods, on nodes
	// with the label cpu-bind-policy FullPCPUsOnly or SpreadByPCPUs, and refuses it there if the request is not a whole
	// number. BE and SYSTEM pods do not change. Default: only LSE and LSR pods.
	BindAllPodsOnPolicyNodes bool `json:"bindAllPodsOnPolicyNodes,omitempty"`
	// FilterLSROnDegradedNodes also keeps LSR pods off nodes whose containers may start without the agent (condition
	// tenon.sh/EnforcementDegraded). Default: only LSE pods.
	FilterLSROnDegradedNodes bool `json:"filterLSROnDegradedNodes,omitempty"`
	// FollowAssumedKubelets determines the placement of pods whose CPUs the kubelet chooses (mode Follow) on nodes
	// whose kubelet the model does not support: a newer or older release, an unknown option or feature gate (condition
	// tenon.sh/KubeletAssumed). RankLast (default) predicts with the newest model and ranks such nodes last, Refuse
	// keeps the pods off them, Trust treats them like all others.
	FollowAssumedKubelets string `json:"followAssumedKubelets,omitempty"`
	// VolcanoScore scores nodes for pods with the annotation volcano.sh/numa-topology-policy as Volcano does: 100 on
	// the fewest NUMA nodes down to 0 on the most among the nodes that fit, times the plugin's weight in the profile.
	// Default: such pods are scored like all others.
	VolcanoScore bool `json:"volcanoScore,omitempty"`
	// VolcanoStrictPolicyMatch keeps pods with the annotation volcano.sh/numa-topology-policy off nodes whose kubelet
	// has another topology policy, as Volcano does. Default: their placement must satisfy their policy, whatever the
	// node's is.
	VolcanoStrictPolicyMatch bool `json:"volcanoStrictPolicyMatch,omitempty"`
}

// Values of FollowAssumedKubelets.
const (
	FollowRefuse   = "Refuse"
	FollowRankLast = "RankLast"
	FollowTrust    = "Trust"
)

// Types of scoring strategy.
const (
	LeastAllocated = "LeastAllocated"
	MostAllocated  = "MostAllocated"
)

// ScoringStrategy prefers the emptiest or the fullest.
type ScoringStrategy struct {
	// Type is LeastAllocated or MostAllocated.
	Type string `json:"type,omitempty"`
	// Resources that count, cpu and memory with equal weights. Default: both with weight 1.
	Resources []ResourceWeight `json:"resources,omitempty"`
}

// ResourceWeight is a resource with its weight, 1 to 100.
type ResourceWeight struct {
	Name   corev1.ResourceName `json:"name"`
	Weight int64               `json:"weight,omitempty"`
}

// Default returns the arguments that hold without configuration.
func Default() NodeNUMAResourceArgs {
	var a NodeNUMAResourceArgs
	a.SetDefaults()
	return a
}

// SetDefaults fills what is not said.
func (a *NodeNUMAResourceArgs) SetDefaults() {
	a.DefaultCPUBindPolicy = cmp.Or(a.DefaultCPUBindPolicy, "FullPCPUs")
	a.DefaultCPUExclusivePolicy = cmp.Or(a.DefaultCPUExclusivePolicy, "None")
	a.DefaultNUMATopologyPolicy = cmp.Or(a.DefaultNUMATopologyPolicy, "None")
	a.FollowAssumedKubelets = cmp.Or(a.FollowAssumedKubelets, FollowRankLast)
	a.ScoringStrategy = withDefaults(a.ScoringStrategy)
	a.NUMAScoringStrategy = withDefaults(a.NUMAScoringStrategy)
}

func withDefaults(s *ScoringStrategy) *ScoringStrategy {
	if s == nil {
		s = &ScoringStrategy{}
	}
	s.Type = cmp.Or(s.Type, LeastAllocated)
	if len(s.Resources) == 0 {
		s.Resources = []ResourceWeight{{Name: corev1.ResourceCPU, Weight: 1}, {Name: corev1.ResourceMemory, Weight: 1}}
	}
	for i := range s.Resources {
		s.Resources[i].Weight = cmp.Or(s.Resources[i].Weight, 1)
	}
	return s
}
