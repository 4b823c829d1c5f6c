//go:build linux && e2e_cluster

package fabricated

import (
	"encoding/json"
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
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// evictionMemory is evictionHard.memory.available: with systemReserved it must be what reservedMemory comes to.
const evictionMemory = 100 << 20

// kubeletConfig is the configuration of a node's kubelet, with the settings under test.
func (n *node) kubeletConfig() *kubelet.KubeletConfiguration {
	k := n.machine.Kubelet
	no, zero, full := false, int32(0), int32(100)
	c := &kubelet.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: kubelet.SchemeGroupVersion.String(),
			Kind:       "KubeletConfiguration",
		},
		FailCgroupV1:             &no,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               n.group,
		ContainerRuntimeEndpoint: "unix://" + n.w.Socket(),

		CPUManagerPolicy:             k.CPU.Policy,
		CPUManagerPolicyOptions:      k.CPU.Options,
		CPUManagerReconcilePeriod:    metav1.Duration{Duration: reconcilePeriod},
		ReservedSystemCPUs:           k.CPU.Reserved,
		MemoryManagerPolicy:          k.Memory.Policy,
		TopologyManagerPolicy:        k.Topology.Policy,
		TopologyManagerScope:         k.Topology.Scope,
		TopologyManagerPolicyOptions: k.Topology.Options,
		FeatureGates:                 k.Gates,

		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%",
			"imagefs.available": "1%",
		},
		ImageGCHighThresholdPercent: &full,
		OOMScoreAdj:                 &zero, // -999 needs a right that containers of a build machine lack
		MaxOpenFiles:                20000,
		FailSwapOn:                  &no,
		PodLogsDir:                  n.w.Path("pods"),
		VolumePluginDir:             filepath.Join(n.dir, "volume-plugins"),
		StaticPodPath:               n.staticPods(),
		SyncFrequency:               metav1.Duration{Duration: 10 * time.Second},
		FileCheckFrequency:          metav1.Duration{Duration: time.Second},
		NodeStatusUpdateFrequency:   metav1.Duration{Duration: 5 * time.Second},
		RegistryPullQPS:             &zero,
		EventRecordQPS:              &zero,
		Authentication: kubelet.KubeletAuthentication{
			Anonymous: kubelet.KubeletAnonymousAuthentication{Enabled: &no},
			Webhook:   kubelet.KubeletWebhookAuthentication{Enabled: &yes},
			X509:      kubelet.KubeletX509Authentication{ClientCAFile: filepath.Join(n.w.data.PKI(), "ca.crt")},
		},
		Authorization: kubelet.KubeletAuthorization{Mode: kubelet.KubeletAuthorizationModeWebhook},
	}
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

var yes = true //nolint:gochecknoglobals // its address is taken

// reconcilePeriod is how often a static kubelet looks at the CPUs of shared containers; the default is 10 s.
const reconcilePeriod = time.Second

// kubeletDir is the kubelet's root directory: where the agent looks for its records.
func (n *node) kubeletDir() string { return n.root.Path("var", "lib", "kubelet") }

func (n *node) staticPods() string { return filepath.Join(n.dir, "static-pods") }

// startKubelet starts the real kubelet.
func (n *node) startKubelet(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(n.config)
	if err != nil {
		t.Fatal(err)
	}
	n.kubelet = n.w.Run(stage.Command{
		Name: "kubelet-" + n.name, Path: stage.Tool("kubelet"),
		Args: []string{
			"--config=" + n.w.Write(n.name+"-kubelet.json", string(text)),
			"--root-dir=" + n.kubeletDir(), "--cert-dir=" + filepath.Join(n.kubeletDir(), "pki"),
			"--hostname-override=" + n.name, "--node-ip=" + nodeAddress,
			"--kubeconfig=" + n.w.credential("kubelet", n.name),
			"--v=2",
		},
	})
}

// compareSettings compares what the agent reads of the kubelet with the configuration that the kubelet was started
// with.
func (n *node) compareSettings(t testing.TB) []string {
	t.Helper()
	obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
	check(t, err)
	got, err := n.ask(t.Context(), obj)
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
