package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Configuration files of components of Tenon. Each field has the default and the meaning of the flag of its name
// (nriSocket of --nri-socket), which wins over it.
const (
	ComponentAPIVersion      = "config.tenon.sh/v1alpha1"
	AgentConfigurationKind   = "AgentConfiguration"
	ManagerConfigurationKind = "ManagerConfiguration"
)

// AgentConfiguration is the file that tenon-agent run reads with --config. What differs from node to node (node name,
// root, addresses, kubeconfig, log level) has flags alone.
type AgentConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	AllowDegradedEnforcement  bool            `json:"allowDegradedEnforcement,omitempty"`
	AllowUnallocatedLSR       bool            `json:"allowUnallocatedLSR,omitempty"`
	CgroupRoot                string          `json:"cgroupRoot,omitempty"`
	DeviceExempt              []string        `json:"deviceExempt,omitempty"`
	DeviceMode                string          `json:"deviceMode,omitempty"`
	DisableQueryKubeletConfig bool            `json:"disableQueryKubeletConfig,omitempty"`
	FeatureGates              map[string]bool `json:"featureGates,omitempty"`
	HookSocket                string          `json:"hookSocket,omitempty"`
	Kubelet                   string          `json:"kubelet,omitempty"`
	NRISocket                 string          `json:"nriSocket,omitempty"`
	PodResourcesSocket        string          `json:"podResourcesSocket,omitempty"`
	PublishNumatopology       bool            `json:"publishNumatopology,omitempty"`
	// Resync is 1s or more.
	Resync metav1.Duration `json:"resync,omitempty"`
}

// ManagerConfiguration is the file that tenon-manager reads with --config. Addresses, certificates, kubeconfig, leader
// election and log level have flags alone.
type ManagerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	PublishDeviceResources bool     `json:"publishDeviceResources,omitempty"`
	RelaxResourceKeys      bool     `json:"relaxResourceKeys,omitempty"`
	RequireNRIPlugin       bool     `json:"requireNRIPlugin,omitempty"`
	SchedulerIdentities    []string `json:"schedulerIdentities,omitempty"`
	// ElasticQuotaArgs are the scheduler's; not with --elastic-quota-args, which names a file of them.
	ElasticQuotaArgs *ElasticQuotaArgs `json:"elasticQuotaArgs,omitempty"`
}
