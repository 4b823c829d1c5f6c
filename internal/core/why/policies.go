package why

import "fmt"

var policyNames = [...]string{"none", "best-effort", "restricted", "single-numa-node"}

// Policies is Extra of TopologyPolicyDiffers: the topology policies of a pod and of a node, each 0 to 3 from the
// least to the most strict.
func Policies(pod, node uint8) int64 { return int64(len(policyNames))*int64(pod) + int64(node) }

// differing is the text of a TopologyPolicyDiffers that names both policies: the English one is Volcano's.
func (r Reason) differing(lang Lang) string {
	n := int64(len(policyNames))
	if r.Extra < 0 || r.Extra >= n*n {
		return r.Code.Entry().text(lang)
	}
	pod, node := policyNames[r.Extra/n], policyNames[r.Extra%n]
	if lang == Chinese {
		return fmt.Sprintf("Pod 的拓扑策略 %s 与节点的 %s 不同", pod, node)
	}
	return fmt.Sprintf("task topology policy[%s] is different with node[%s]", pod, node)
}
