package annotation

import corev1 "k8s.io/api/core/v1"

// RawAllocatableKey is an annotation of a Node that holds RawAllocatable.
const RawAllocatableKey = "node.koordinator.sh/raw-allocatable"

// RawAllocatable is what a Node could allocate before a program amplified it, for the resources that are amplified.
type RawAllocatable corev1.ResourceList

// String returns the canonical JSON.
func (a RawAllocatable) String() string { return encode(a) }

// ParseRawAllocatable reads RawAllocatable.
func ParseRawAllocatable(text string) (RawAllocatable, []Warning, error) {
	return readAmounts(text, func(r *reader, a *RawAllocatable) {
		for _, name := range sorted(*a) {
			q := (*a)[name]
			r.atLeastZero(string(name), int64(q.Sign()))
		}
	})
}
