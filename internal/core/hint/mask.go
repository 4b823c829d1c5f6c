package hint

import (
	"math/bits"
	"strconv"
	"strings"
)

// MaxNodes is the number of NUMA nodes up to which masks exist.
const MaxNodes = 64

// Mask is a set of NUMA nodes: bit i is the node with dense index i.
type Mask uint64

// All returns the mask of nodes 0…n-1: none below 1, all 64 from MaxNodes on.
func All(n int) Mask {
	switch {
	case n <= 0:
		return 0
	case n >= MaxNodes:
		return ^Mask(0)
	}
	return 1<<n - 1
}

// Len counts the nodes.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether node i is in m; no index outside 0…63 is.
func (m Mask) Has(i int) bool { return uint(i) < MaxNodes && m>>i&1 != 0 }

// Within reports whether every node of m is in o.
func (m Mask) Within(o Mask) bool { return m&^o == 0 }

// First returns the lowest node, MaxNodes if m is empty.
func (m Mask) First() int { return bits.TrailingZeros64(uint64(m)) }

// String lists the nodes: "{0,2}", "{}" for none.
func (m Mask) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for rest := m; rest != 0; rest &= rest - 1 {
		if rest != m {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(rest.First()))
	}
	b.WriteByte('}')
	return b.String()
}
