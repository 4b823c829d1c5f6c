package probe

import (
	"cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

func policyOf(k annotation.Kubelet) string { return cmp.Or(k.CPU.Policy, annotation.KubeletPolicyNone) }

// policyWord is the kubelet's topology policy and scope as one value of topologyPolicies.
func policyWord(k annotation.Kubelet) string {
	level := "ContainerLevel"
	if k.Topology.Scope == annotation.TopologyScopePod {
		level = "PodLevel"
	}
	switch k.Topology.Policy {
	case annotation.KubeletTopologyBestEffort:
		return "BestEffort" + level
	case annotation.KubeletTopologyRestricted:
		return "Restricted" + level
	case annotation.KubeletTopologySingleNUMA:
		return "SingleNUMANode" + level
	}
	return "None"
}

// defaultMaxNUMANodes is what the kubelet takes for max-allowable-numa-nodes where nothing is said.
const defaultMaxNUMANodes = "8"

// attributes are those that every reader of the object knows. A kubelet with the policy none does not read options.
func attributes(k annotation.Kubelet) v1alpha2.AttributeList {
	policy := cmp.Or(k.Topology.Policy, annotation.KubeletTopologyNone)
	list := v1alpha2.AttributeList{
		{Name: annotation.AttributeTopologyPolicy, Value: policy},
		{Name: annotation.AttributeTopologyScope, Value: cmp.Or(k.Topology.Scope, annotation.TopologyScopeContainer)},
	}
	if policy != annotation.KubeletTopologyNone {
		most := cmp.Or(k.Topology.Options[annotation.OptionMaxNUMANodes], defaultMaxNUMANodes)
		list = append(list, v1alpha2.AttributeInfo{Name: annotation.AttributeMaxNUMANodes, Value: most})
	}
	return list
}

// settings are the annotation kubelet. The version is the Node's where the settings do not say.
func settings(in Input) annotation.Kubelet {
	k := in.Kubelet
	if k.Version == "" && in.Node != nil {
		k.Version = in.Node.Status.NodeInfo.KubeletVersion
	}
	k.CPU.Policy = policyOf(k)
	k.Memory.Policy = cmp.Or(k.Memory.Policy, annotation.KubeletMemoryNone)
	k.Topology.Policy = cmp.Or(k.Topology.Policy, annotation.KubeletTopologyNone)
	k.Topology.Scope = cmp.Or(k.Topology.Scope, annotation.TopologyScopeContainer)
	return k
}
