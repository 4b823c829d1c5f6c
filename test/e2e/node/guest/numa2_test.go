//go:build e2e_guest

package guest

import (
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// two is a machine of two sockets, a NUMA node each.
var two = vm.Shape{
	Name: "numa2", Sockets: 2, Dies: 1, Cores: 4, Threads: 2, MemoryMiB: 1536, Distance: [][]int{{10, 21}, {21, 10}},
}

func TestTwoNodes(t *testing.T) {
	g := begin(t, two)
	check(t, two, "cpuset partitions are only as true as what is read back", func(t *testing.T) { partitionsAreOnlyAsTrueAsReadBack(t, g) })
}
