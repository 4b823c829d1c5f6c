package runtimeproxy

// APIVersion and Kind are those of the file.
const (
	APIVersion = "config.tenon.sh/v1alpha1"
	Kind       = "RuntimeProxyConfiguration"
)

// Configuration is the file that tenon-runtime-proxy reads with --config. Each field has the default and the meaning of
// the flag of its name, which wins over it. The log level has a flag alone.
type Configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// HooksDir is the folder of hook servers' registrations. Default: /etc/runtime/hookserver.d.
	HooksDir string `json:"hooksDir,omitempty"`
	// ImageEndpoint is the unix socket of the image service. Default: that of the runtime.
	ImageEndpoint string `json:"imageEndpoint,omitempty"`
	// Listen is the unix socket that the kubelet connects to. Default: /run/tenon/cri.sock; in front of CRI-O
	// /run/tenon/run/crio/crio.sock.
	Listen string `json:"listen,omitempty"`
	// Runtime is the unix socket of the container runtime. Default: unix:///run/containerd/containerd.sock.
	Runtime string `json:"runtime,omitempty"`
}
