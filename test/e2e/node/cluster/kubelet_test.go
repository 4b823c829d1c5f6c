//go:build linux && e2e_cluster

package fabricated

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// evictionMemory is evictionHard.memory.available: with systemReserved it must be what reservedMemory comes to.
const evictionMemory = 100 << 20

// kubeletConfig is the configuration of a node's kubelet, with the settings under test.
func (n *node) kubeletConfig() *kubelet.KubeletConfiguration {
	k := n.machine.Kubelet
	c := n.w.KubeletConfig(n.group, filepath.Join(n.w.data.PKI(), "ca.crt"))
	c.CPUManagerPolicy = k.CPU.Policy
	c.CPUManagerPolicyOptions = k.CPU.Options
	c.CPUManagerReconcilePeriod = metav1.Duration{Duration: reconcilePeriod}
	c.ReservedSystemCPUs = k.CPU.Reserved
	c.MemoryManagerPolicy = k.Memory.Policy
	c.TopologyManagerPolicy = k.Topology.Policy
	c.TopologyManagerScope = k.Topology.Scope
	c.TopologyManagerPolicyOptions = k.Topology.Options
	c.FeatureGates = k.Gates
	c.VolumePluginDir = filepath.Join(n.dir, "volume-plugins")
	c.StaticPodPath = n.staticPods()
	reserved := int64(0)
	for id, limits := range k.Memory.Reserved {
		reserved += limits.Memory().Value()
		c.ReservedMemory = append(c.ReservedMemory, kubelet.MemoryReservation{NumaNode: id, Limits: limits})
	}
	if reserved > 0 {
		c.SystemReserved = map[string]string{"memory": strconv.FormatInt(reserved-evictionMemory, 10)}
	}
	return c
}

// reconcilePeriod is how often a static kubelet looks at the CPUs of shared containers; the default is 10 s.
const reconcilePeriod = time.Second

// kubeletDir is the kubelet's root directory: where the agent looks for its records.
func (n *node) kubeletDir() string { return n.root.Path("var", "lib", "kubelet") }

func (n *node) staticPods() string { return filepath.Join(n.dir, "static-pods") }

// startKubelet starts the real kubelet.
func (n *node) startKubelet(t testing.TB) {
	t.Helper()
	n.kubelet = n.w.Kubelet(stage.KubeletOptions{
		Node: n.name, Dir: n.kubeletDir(), Kubeconfig: n.w.credential("kubelet", n.name), Config: n.config,
	})
}

// compareSettings compares what the agent reads of the kubelet with the configuration that the kubelet was started
// with.
func (n *node) compareSettings(t testing.TB) []string {
	t.Helper()
	obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	testkit.Check(t, err)
	got, err := n.ask.Config(t.Context(), obj)
	if err != nil {
		return []string{err.Error()}
	}
	want := kubeletapi.Config{
		Kubelet: n.machine.Kubelet, CgroupRoot: n.group,
		CgroupDriver:    host.Cgroupfs,
		RuntimeEndpoint: n.config.ContainerRuntimeEndpoint,
	}
	want.Kubelet.Version = ""           // the Node reports it
	if n.config.SystemReserved != nil { // to which the kubelet itself adds the number of its reserved CPUs
		reserved := n.cpus(n.machine.Kubelet.CPU.Reserved)
		want.ReservedMilliCPU = int64(reserved.Len()) * 1000
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		return []string{"settings read from /configz (-written +read):\n" + diff}
	}
	return nil
}
