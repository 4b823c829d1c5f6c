package probe

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/host"
)

func policyOf(k host.Kubelet) string { return cmp.Or(k.CPUPolicy, annotation.KubeletPolicyNone) }

// policyWord is the kubelet's topology policy and scope as one value of topologyPolicies.
func policyWord(k host.Kubelet) string {
	level := "ContainerLevel"
	if k.TopologyScope == annotation.TopologyScopePod {
		level = "PodLevel"
	}
	switch k.TopologyPolicy {
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
func attributes(k host.Kubelet) v1alpha2.AttributeList {
	policy := cmp.Or(k.TopologyPolicy, annotation.KubeletTopologyNone)
	list := v1alpha2.AttributeList{
		{Name: annotation.AttributeTopologyPolicy, Value: policy},
		{Name: annotation.AttributeTopologyScope, Value: cmp.Or(k.TopologyScope, annotation.TopologyScopeContainer)},
	}
	if policy != annotation.KubeletTopologyNone {
		most := cmp.Or(k.TopologyOptions[annotation.OptionMaxNUMANodes], defaultMaxNUMANodes)
		list = append(list, v1alpha2.AttributeInfo{Name: annotation.AttributeMaxNUMANodes, Value: most})
	}
	return list
}

// settings are the annotation kubelet. The version is the Node's where the settings do not say.
func settings(in Input) annotation.Kubelet {
	k := in.Kubelet
	version := k.Version
	if version == "" && in.Node != nil {
		version = in.Node.Status.NodeInfo.KubeletVersion
	}
	return annotation.Kubelet{
		Version: version,
		CPU:     annotation.KubeletCPU{Policy: policyOf(k), Options: k.CPUOptions, Reserved: k.ReservedCPUs},
		Memory: annotation.KubeletMemory{
			Policy:   cmp.Or(k.MemoryPolicy, annotation.KubeletMemoryNone),
			Reserved: reservedMemory(k),
		},
		Topology: annotation.KubeletTopology{
			Policy:  cmp.Or(k.TopologyPolicy, annotation.KubeletTopologyNone),
			Scope:   cmp.Or(k.TopologyScope, annotation.TopologyScopeContainer),
			Options: k.TopologyOptions,
		},
		Gates: k.Gates,
	}
}

func reservedMemory(k host.Kubelet) map[int32]corev1.ResourceList {
	if len(k.ReservedMemory) == 0 {
		return nil
	}
	reserved := map[int32]corev1.ResourceList{}
	for id, types := range k.ReservedMemory {
		list := corev1.ResourceList{}
		for kind, bytes := range types {
			list[corev1.ResourceName(kind)] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
		reserved[int32(id)] = list
	}
	return reserved
}
