package annotation

import slo "github.com/tenon-project/tenon/api/slo/v1alpha1"

// CPUBurstKey is an annotation of a Pod. Its JSON has the fields of cpuBurstStrategy in a NodeSLO that hold for the pod
// in place of the node's.
const CPUBurstKey = "koordinator.sh/cpuBurst"

// ParseCPUBurst reads a value of CPUBurstKey.
func ParseCPUBurst(text string) (slo.CPUBurstConfig, []Warning, error) {
	return read(text, func(r *reader, c *slo.CPUBurstConfig) {
		policy := string(c.Policy)
		r.word("policy", &policy, slo.CPUBurstPolicies())
		c.Policy = slo.CPUBurstPolicy(policy)
		if n := c.CPUBurstPercent; n != nil && (*n < 0 || *n > 10_000) {
			r.refuse("cpuBurstPercent", Error{Text: "must be 0…10000 percent of the CPU limit"})
		}
	})
}
