package annotation

import corev1 "k8s.io/api/core/v1"

// NodeThirdPartyAllocations is an annotation of a Node that holds ThirdPartyAllocations.
const NodeThirdPartyAllocations = "node.koordinator.sh/thirdPartyAllocations"

// ThirdPartyAllocations are what schedulers outside of Kubernetes, such as Hadoop YARN, have given away of a Node.
type ThirdPartyAllocations struct {
	Allocations []ThirdPartyAllocation `json:"allocations,omitempty"`
}

// ThirdPartyAllocation is what one of them has given away.
type ThirdPartyAllocation struct {
	Name string `json:"name,omitempty"`
	// Priority is a class of priority, such as koord-batch.
	Priority string `json:"priority,omitempty"`
	// Resources are amounts of kubernetes.io/batch-cpu and batch-memory, 0 or more. Other resources do not count.
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// String returns the canonical JSON.
func (a ThirdPartyAllocations) String() string { return encode(a) }

// ParseThirdPartyAllocations reads ThirdPartyAllocations.
func ParseThirdPartyAllocations(text string) (ThirdPartyAllocations, []Warning, error) {
	return readAmounts(text, func(r *reader, a *ThirdPartyAllocations) {
		for _, one := range a.Allocations {
			for _, name := range sorted(one.Resources) {
				if q := one.Resources[name]; q.Sign() < 0 {
					text := "resources[" + string(name) + "] must not be negative, is " + q.String()
					r.refuse("allocations", Error{Value: q.String(), Text: text})
				}
			}
		}
	})
}
