package annotation

import "fmt"

// VolcanoTopologyPolicy is a pod's annotation with one of the kubelet's policies, written by users and by Volcano's job
// controller (seed 004).
const VolcanoTopologyPolicy = "volcano.sh/numa-topology-policy"

// ParseVolcanoTopologyPolicy reads none, best-effort, restricted or single-numa-node; none is TopologyNone.
func ParseVolcanoTopologyPolicy(text string) (NUMATopologyPolicy, []Warning, error) {
	allowed := []string{
		KubeletTopologyNone, KubeletTopologyBestEffort, KubeletTopologyRestricted,
		KubeletTopologySingleNUMA,
	}
	word, exact, ok := match(text, allowed, nil)
	if !ok {
		return "", nil, &Error{Value: text, Allowed: allowed, Text: Unsupported(text, allowed...)}
	}
	var warnings []Warning
	if !exact {
		warnings = []Warning{{Text: fmt.Sprintf("%q is read as %q", text, word)}}
	}
	if word == KubeletTopologyNone {
		return TopologyNone, warnings, nil
	}
	policy, _, _ := match(word, nil, topologyAliases())
	return policy, warnings, nil
}
