//go:build e2e_guest

package guest

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// kernelAgrees runs the tests of level 2 in the guest: the host may only have the other dialect of cgroups.
func kernelAgrees(t *testing.T, g *vm.Guest) {
	t.Helper()
	out := script(t, g, "cd /tmp && "+vm.Programs+"/cgroup.test -test.v -own-machine")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "level 2: ") || !strings.HasSuffix(last, "cases passed on cgroup v2") {
		t.Fatalf("the last line is %q, want level 2: N cases passed on cgroup v2\n%s", last, out)
	}
	t.Log(last)
}
