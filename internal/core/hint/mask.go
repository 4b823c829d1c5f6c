package hint

import "math/bits"

// MaxNodes is the number of NUMA nodes up to which masks exist.
const MaxNodes = 64

// Mask is a set of NUMA nodes: bit i is the node with dense index i.
type Mask uint64

// All returns the mask of nodes 0…n-1; n ≤ MaxNodes.
func All(n int) Mask {
	if n >= MaxNodes {
		return ^Mask(0)
	}
	return 1<<n - 1
}

// Len counts the nodes.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether node i is in m.
func (m Mask) Has(i int) bool { return m>>i&1 != 0 }

// Within reports whether every node of m is in o.
func (m Mask) Within(o Mask) bool { return m&^o == 0 }
