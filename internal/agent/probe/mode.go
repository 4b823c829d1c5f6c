package probe

import (
	"cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// Switches are the two flags that seed 000 gives an agent.
type Switches struct {
	// QueryKubelet is off under --disable-query-kubelet-config.
	QueryKubelet bool
	// CPUSetAllocator is the feature gate of that name.
	CPUSetAllocator bool
}

// Writes reports whether an agent in a mode writes cpusets.
func (s Switches) Writes(m annotation.Mode) bool {
	return m == annotation.ModeOwn && s.CPUSetAllocator
}

// Valid refuses an agent that would write cpusets without knowing what the kubelet writes.
func (s Switches) Valid() bool { return s.QueryKubelet || !s.CPUSetAllocator }

// ModeOf decides the mode from the switches, whether the kubelet's CPU manager is static, and the Node's label
// topology-mode, which is the admin's wish. conflict is a wish that cannot be met; the answer is then what holds.
func ModeOf(s Switches, static bool, wish string) (mode annotation.Mode, conflict string) {
	switch {
	case !s.QueryKubelet:
		return answer(annotation.ModeBlind, wish, "the agent does not query the kubelet")
	case !static && wish == annotation.ModeFollow:
		return annotation.ModeOwn, "label " + annotation.TopologyMode +
			"=Follow cannot be met: the kubelet's CPU manager policy is none, there is nothing to follow"
	case static && (!s.CPUSetAllocator || wish == annotation.ModeFollow):
		return answer(annotation.ModeFollow, wish, "the agent's feature gate CPUSetAllocator is off")
	case !s.CPUSetAllocator:
		return annotation.ModeOwn,
			"no component enforces CPU sets: the kubelet's CPU manager policy is none, and the agent's feature gate " +
				"CPUSetAllocator is off"
	}
	return answer(annotation.ModeOwn, wish, "")
}

// answer is a mode, and why it is not the wished one; "" where it is.
func answer(mode annotation.Mode, wish, because string) (_ annotation.Mode, conflict string) {
	if wish == "" || wish == mode {
		return mode, ""
	}
	text := "label " + annotation.TopologyMode + "=" + wish + " cannot be met, the mode is " + mode
	if because != "" {
		return mode, text + ": " + because
	}
	return mode, text + ": want Own or Follow"
}

// DeviceModeOf returns whose choice of a node's devices holds, by the agent's configuration, "" for none, and the mode
// so far. A node whose kubelet gave devices out becomes Tenon's when no pod has them any more: until then it moves.
func DeviceModeOf(wish, now annotation.DeviceMode, held bool) annotation.DeviceMode {
	switch {
	case wish == "":
		return now
	case wish == annotation.DeviceOwn && now != annotation.DeviceOwn && held:
		return annotation.DeviceMoving
	}
	return wish
}

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
