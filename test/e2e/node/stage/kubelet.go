//go:build linux

package stage

import (
	"encoding/json"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// KubeletOptions are what a kubelet is started with; all are needed.
type KubeletOptions struct {
	Node string
	// Dir is the kubelet's root directory, Kubeconfig the file of its credential.
	Dir, Kubeconfig string
	Config          *kubelet.KubeletConfiguration
}

// KubeletConfig returns settings for a kubelet on a stage, whose pods are in a group. It trusts clients whose
// certificates an authority has signed.
func (s *Stage) KubeletConfig(group, authority string) *kubelet.KubeletConfiguration {
	yes, no, zero, full := true, false, int32(0), int32(100)
	return &kubelet.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: kubelet.SchemeGroupVersion.String(),
			Kind:       "KubeletConfiguration",
		},
		FailCgroupV1:             &no,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               group,
		ContainerRuntimeEndpoint: "unix://" + s.Socket(),
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%",
			"imagefs.available": "1%",
		},
		ImageGCHighThresholdPercent: &full,
		OOMScoreAdj:                 &zero, // -999 needs a right that containers of a build machine lack
		MaxOpenFiles:                20000,
		FailSwapOn:                  &no,
		PodLogsDir:                  s.Path("pods"),
		SyncFrequency:               metav1.Duration{Duration: 10 * time.Second},
		FileCheckFrequency:          metav1.Duration{Duration: time.Second},
		NodeStatusUpdateFrequency:   metav1.Duration{Duration: 5 * time.Second},
		RegistryPullQPS:             &zero,
		EventRecordQPS:              &zero,
		Authentication: kubelet.KubeletAuthentication{
			Anonymous: kubelet.KubeletAnonymousAuthentication{Enabled: &no},
			Webhook:   kubelet.KubeletWebhookAuthentication{Enabled: &yes},
			X509:      kubelet.KubeletX509Authentication{ClientCAFile: authority},
		},
		Authorization: kubelet.KubeletAuthorization{Mode: kubelet.KubeletAuthorizationModeWebhook},
	}
}

// Kubelet starts the real kubelet at NodeAddress; Needs.Tools must have named it. The certificate that it serves is
// pki/kubelet.crt of its folder; it makes one where there is none.
func (s *Stage) Kubelet(o KubeletOptions) *Process {
	s.t.Helper()
	text, err := json.Marshal(o.Config)
	must(s.t, err)
	return s.Run(Command{
		Name: "kubelet-" + o.Node, Path: Tool("kubelet"),
		Args: []string{
			"--config=" + s.Write(o.Node+"-kubelet.json", string(text)),
			"--root-dir=" + o.Dir, "--cert-dir=" + filepath.Join(o.Dir, "pki"),
			"--hostname-override=" + o.Node, "--node-ip=" + NodeAddress, "--kubeconfig=" + o.Kubeconfig, "--v=2",
		},
	})
}
