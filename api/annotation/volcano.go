package annotation

import "fmt"

// VolcanoTopologyPolicy is a pod's annotation with one of the kubelet's policies, written by users and by Volcano's job
// controller (seed 004).
const VolcanoTopologyPolicy = "volcano.sh/numa-topology-policy"

// ParseVolcanoTopologyPolicy reads none, best-effort, restricted or single-numa-node; none is TopologyNone.
func ParseVolcanoTopologyPolicy(text string) (NUMATopologyPolicy, []Warning, error) {
	policy, warnings, err := word(text, KubeletTopologyNone, KubeletTopologyBestEffort, KubeletTopologyRestricted,
		KubeletTopologySingleNUMA)
	if err != nil {
		return "", nil, err
	}
	if len(warnings) > 0 {
		warnings[0].Text = fmt.Sprintf("%q is read as %q", text, policy)
	}
	if policy == KubeletTopologyNone {
		return TopologyNone, warnings, nil
	}
	policy, _, _ = match(policy, nil, topologyAliases())
	return policy, warnings, nil
}
