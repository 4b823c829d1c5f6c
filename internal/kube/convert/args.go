package convert

import (
	"slices"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// Args are the scheduler plugin's arguments, defaults resolved.
type Args struct {
	DefaultBind      cpualloc.Bind
	DefaultExclusive cpualloc.Exclusive
	// Strategy applies to nodes where neither a label nor the kubelet chooses one.
	Strategy cpualloc.Strategy
	Scoring  cpualloc.Strategy
	// Topology applies to nodes whose policy is set neither by a label nor by the kubelet.
	Topology hint.Policy
	// MinSharedCPUs is the floor of every node's LS pool; negative = the default.
	MinSharedCPUs int
	// BindAllPodsOnPolicyNodes binds every pod of the CPU shared pool with a CPU request on nodes with a label
	// cpu-bind-policy.
	BindAllPodsOnPolicyNodes bool
	// FilterLSROnDegradedNodes treats LSR pods as LSE pods on nodes with the condition EnforcementDegraded.
	FilterLSROnDegradedNodes bool
	// Assumed is what kubelets that the model does not know are good for in mode Follow.
	Assumed kubelet.Trust
	// Devices: requests for devices are read. Without it another plugin decides about them.
	Devices bool
	// Kinds are the kinds of devices that Device objects list, beside those that are known; nil for none.
	Kinds *device.Kinds
	// VolcanoScore ranks nodes for pods with Volcano's annotation by the number of NUMA nodes alone (seed 004).
	VolcanoScore bool
	// VolcanoStrictPolicyMatch lets such pods onto nodes with their own topology policy alone.
	VolcanoStrictPolicyMatch bool
	// Schedulers are those whose pods count; nil for all.
	Schedulers *Schedulers
}

// DefaultArgs returns what holds without configuration.
func DefaultArgs() Args { return NewArgs(v1alpha1.Default()) }

// NewArgs resolves validated arguments.
func NewArgs(a v1alpha1.NodeNUMAResourceArgs) Args {
	args := Args{MinSharedCPUs: -1}
	if a.DefaultCPUBindPolicy == annotation.BindSpreadByPCPUs {
		args.DefaultBind = cpualloc.SpreadByPCPUs
	}
	args.DefaultExclusive = exclusive(a.DefaultCPUExclusivePolicy, cpualloc.NotExclusive)
	args.Strategy, args.Scoring = cpualloc.LeastAllocated, cpualloc.LeastAllocated
	args.Topology = topologyPolicy(a.DefaultNUMATopologyPolicy)
	if a.NUMAScoringStrategy != nil && a.NUMAScoringStrategy.Type == v1alpha1.MostAllocated {
		args.Strategy = cpualloc.MostAllocated
	}
	if a.ScoringStrategy != nil && a.ScoringStrategy.Type == v1alpha1.MostAllocated {
		args.Scoring = cpualloc.MostAllocated
	}
	if a.MinSharedCPUs != nil {
		args.MinSharedCPUs = int(*a.MinSharedCPUs)
	}
	args.BindAllPodsOnPolicyNodes = a.BindAllPodsOnPolicyNodes
	args.FilterLSROnDegradedNodes = a.FilterLSROnDegradedNodes
	switch a.FollowAssumedKubelets {
	case v1alpha1.FollowRefuse:
		args.Assumed = kubelet.Distrusted
	case v1alpha1.FollowRankLast:
		args.Assumed = kubelet.Doubted
	}
	args.VolcanoScore, args.VolcanoStrictPolicyMatch = a.VolcanoScore, a.VolcanoStrictPolicyMatch
	return args
}

func exclusive(policy string, otherwise cpualloc.Exclusive) cpualloc.Exclusive {
	policies := [...]string{
		cpualloc.NotExclusive: annotation.ExclusiveNone, cpualloc.PCPULevel: annotation.ExclusivePCPULevel,
		cpualloc.NUMANodeLevel: annotation.ExclusiveNUMANodeLevel,
	}
	if i := slices.Index(policies[:], policy); i >= 0 {
		return cpualloc.Exclusive(i)
	}
	return otherwise
}
