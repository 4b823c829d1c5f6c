//go:build e2e_node

package runtime

import "testing"

// paths are the ways in which a container comes by the agent before it starts. On the closed ones no container of a
// bound pod starts without it.
var (
	paths  = []path{byNRI, byProxy, byOldNRI}
	closed = []path{byNRI, byProxy}
)

func TestAContainerStartsOnItsCPUs(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			w.wants(plain, allCPUs)

			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), onNode(exclusive, 0)))
			w.wants(bound, exclusive)
			w.never(bound, exclusive)
			w.wants(plain, shared)
			w.file(bound.Group, "cpuset.mems", "0", "cpuset.mems", "0")
			w.file(bound.Group, "cpu.shares", "1024", "cpu.weight", "100")
			w.file(bound.Group, "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
		})
	}
}
