//go:build e2e_guest

package guest

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// underSystemd is machine two with systemd as its first process, and the systemd cgroup driver.
var underSystemd = func() vm.Shape {
	s := two
	s.Name, s.Systemd = "systemd", true
	return s
}()

// TestUnderSystemd: slices and scopes belong to systemd, which writes to them again when it reads its units.
func TestUnderSystemd(t *testing.T) {
	for _, transport := range []struct {
		name    string
		prepare func(*testing.T, *node)
		agent   []string
	}{
		{name: "nri", prepare: func(*testing.T, *node) {}},
		{name: "proxy", prepare: installProxy, agent: []string{"--nri-socket="}},
		{name: "reconciler", prepare: withoutNRI, agent: []string{"--nri-socket=", "--allow-degraded-enforcement"}},
	} {
		t.Run(transport.name, func(t *testing.T) {
			shape := underSystemd
			shape.Name += "-" + transport.name
			n := &node{
				Node: Node{
					Name: shape.Name, Shape: shape, Guest: begin(t, underSystemd),
					Kubelet: KubeletPolicy{CPUManager: "none", Reserved: "0"},
				},
				plane: found.plane, agent: append(transport.agent, "--resync=2s"),
			}
			transport.prepare(t, n)
			joinAs(t, n)
			r := startResidents(t, n)
			check(t, shape, "pods are in slices and scopes of systemd", func(t *testing.T) { inScopes(t, n, r) })
			check(t, shape, "systemctl daemon-reload takes no pod its CPUs", func(t *testing.T) { reloads(t, n, r) })
			check(t, shape, "a pod that starts after daemon-reload has its CPUs, and the others theirs",
				func(t *testing.T) { undisturbed(t, n, r, "after-reload", func() error { return n.reload(t) }) })
		})
	}
}

func (n *node) reload(t *testing.T) error {
	t.Helper()
	_, err := n.Guest.Run(t.Context(), "systemctl daemon-reload")
	return err
}

func inScopes(t *testing.T, n *node, r *residents) {
	t.Helper()
	groups := n.look(t)
	for _, p := range r.pods() {
		own, _ := Containers(groups, p.UID)
		for _, g := range own {
			if !strings.HasPrefix(g.Path, "/kubepods.slice/") || !strings.HasSuffix(g.Path, ".scope") {
				t.Errorf("pod %s runs in %s, want a scope below kubepods.slice", p.Name, g.Path)
			}
		}
	}
}

// reloads makes systemd read its units several times while all groups are watched.
func reloads(t *testing.T, n *node, r *residents) {
	t.Helper()
	const times = 5
	before := lives(n.look(t), r.pods())
	n.watch(t)
	for range times {
		testkit.Check(t, n.reload(t))
		n.holds(t, r.sets(t, n))
	}
	w := n.watched(t)
	for _, problem := range w.Problems {
		t.Error(problem)
	}
	if w.Owners < 2 || w.Rounds < times {
		t.Errorf("%d looks saw %d owners of CPUs: too few to mean anything", w.Rounds, w.Owners)
	}
	same(t, before, lives(n.look(t), r.pods()))
	t.Logf("%d reloads, %d looks", times, w.Rounds)
}
