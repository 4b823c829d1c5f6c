//go:build e2e_guest

package guest

import (
	"errors"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// A runtime without NRI, behind the proxy, which is installed as the guide says.
func TestBehindTheProxy(t *testing.T) {
	g := begin(t, two)
	shape := two
	shape.Name = "proxy"
	n := &node{
		Node: Node{
			Name: shape.Name, Shape: shape, Guest: g, Kubelet: KubeletPolicy{CPUManager: "none", Reserved: "0"},
		},
		plane: found.plane, agent: []string{"--resync=2s", "--nri-socket="},
	}
	installProxy(t, n)
	joinAs(t, n)
	r := startResidents(t, n)
	proxy := vm.Programs + "/tenon-runtime-proxy"
	check(t, shape, "the kubelet talks to the proxy as it was installed", func(t *testing.T) {
		script(t, g, proxy+" check && grep -q /run/tenon/cri.sock /etc/kubernetes/kubelet.conf.d/*")
	})
	check(t, shape, "sandboxes keep off the exclusive CPUs of others", func(t *testing.T) { sandboxesKeepOff(t, n, r) })
	check(t, shape, "pods with CPUs of their own have no CFS quota, others keep theirs",
		func(t *testing.T) { quotas(t, n, r) })
	check(t, shape, "memory comes from the NUMA node of the pod's CPUs",
		func(t *testing.T) { memoryIsLocal(t, n, r.lsr) })
	check(t, shape, "while the agent is dead no pod with CPUs of its own starts, and others do",
		func(t *testing.T) { agentDies(t, n, r, "runtime proxy") })
	check(t, shape, "a restart of the proxy changes no running pod, and new ones get their CPUs", func(t *testing.T) {
		undisturbed(t, n, r, "after-proxy", func() error {
			if err := n.Kill(t.Context(), "KILL", "tenon-runtime-proxy"); err != nil {
				return err
			}
			_, err := g.Run(t.Context(), Spawn("proxy", proxy, "run"))
			return err
		})
	})
}

// withoutNRI starts containerd again with NRI off.
func withoutNRI(t *testing.T, n *node) {
	t.Helper()
	script(t, n.Guest, `set -e
mkdir -p /etc/kubernetes/kubelet.conf.d
cat >>/etc/containerd/config.toml <<'end'
  disable = true
end
sed -i '/default_validator/,/enable/d' /etc/containerd/config.toml
`)
	testkit.Check(t, errors.Join(n.Kill(t.Context(), "TERM", "containerd"), n.startContainerd(t.Context())))
}

// installProxy puts the proxy between the kubelet, which does not run yet, and a containerd without NRI.
func installProxy(t *testing.T, n *node) {
	t.Helper()
	withoutNRI(t, n)
	proxy := vm.Programs + "/tenon-runtime-proxy"
	script(t, n.Guest, Spawn("proxy", proxy, "run"))
	await(t, "the proxy", func() error {
		_, err := n.Guest.Run(t.Context(), proxy+" install")
		return err
	})
}
