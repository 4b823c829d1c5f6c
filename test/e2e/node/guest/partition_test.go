//go:build e2e_guest

package guest

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// The sets of a partition are taken from the group above without a word to anybody, and an overlapping sibling breaks
// the partition without an error: what is read back is the only truth. It is why the agent reads back, and why it needs
// no partitions.
func partitionsAreOnlyAsTrueAsReadBack(t *testing.T, g *vm.Guest) {
	t.Helper()
	for _, step := range []struct{ do, path, want string }{
		{
			"mkdir -p p/a p/b && echo +cpuset > p/cgroup.subtree_control && echo 0-7 > p/cpuset.cpus",
			"p/cpuset.cpus.effective", "0-7",
		},
		{"echo root > p/cpuset.cpus.partition", "p/cpuset.cpus.partition", "root"},
		{"true", "cpuset.cpus.effective", "8-15"},
		{
			"echo 2-3 > p/a/cpuset.cpus && echo isolated > p/a/cpuset.cpus.partition", "p/a/cpuset.cpus.partition",
			"isolated",
		},
		{"true", "p/cpuset.cpus.effective", "0-1,4-7"},
		{"true", "p/b/cpuset.cpus.effective", "0-1,4-7"},
		// The sibling's write is taken, and the partition is lost.
		{"echo 3-5 > p/b/cpuset.cpus", "p/a/cpuset.cpus.partition", "isolated invalid"},
		{"true", "p/cpuset.cpus.effective", "0-7"},
		{
			"echo member > p/a/cpuset.cpus.partition; echo member > p/cpuset.cpus.partition", "cpuset.cpus.effective",
			"0-15",
		},
		// A set outside of the group above is taken too, and means all of it.
		{"echo 9-10 > p/a/cpuset.cpus", "p/a/cpuset.cpus.effective", "0-7"},
		{"true", "p/a/cpuset.cpus", "9-10"},
	} {
		got := strings.TrimSpace(script(t, g, "cd /sys/fs/cgroup && { "+step.do+"; } && cat "+step.path))
		if !strings.HasPrefix(got, step.want) {
			t.Errorf("after %s: %s is %q, want %q", step.do, step.path, got, step.want)
		}
	}
	script(t, g, "cd /sys/fs/cgroup && rmdir p/a p/b p")
}
