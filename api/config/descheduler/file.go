package descheduler

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIVersion is that of both kinds and of the arguments of plugins.
const APIVersion = "descheduler/v1alpha2"

// Kinds of the file.
const (
	ConfigurationKind = "DeschedulerConfiguration"
	PolicyKind        = "DeschedulerPolicy"
)

// Rounds are the fields that both kinds have. A round is one run of all profiles.
type Rounds struct {
	// MaxNoOfPodsToEvictPerNode is how many pods a round may move away from a node.
	MaxNoOfPodsToEvictPerNode *int32 `json:"maxNoOfPodsToEvictPerNode,omitempty" min:"0" zero:"pausedRound"`
	// MaxNoOfPodsToEvictPerNamespace is how many pods of a namespace a round may move.
	MaxNoOfPodsToEvictPerNamespace *int32 `json:"maxNoOfPodsToEvictPerNamespace,omitempty" min:"0" zero:"pausedRound"`
	// MaxNoOfPodsToEvictTotal is how many pods a round may move.
	MaxNoOfPodsToEvictTotal *int32 `json:"maxNoOfPodsToEvictTotal,omitempty" min:"0" zero:"pausedRound"`
}

// Configuration is Koordinator's kind of the file.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	Rounds          `json:",inline"`

	// DeschedulingInterval is the time between two rounds.
	DeschedulingInterval metav1.Duration `json:"deschedulingInterval,omitempty" default:"\"2m\"" min:"1"`
	// DryRun decides everything and writes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// NodeSelector selects the nodes whose pods may be moved. Default: all nodes.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Profiles run one after the other in each round.
	Profiles []ConfigurationProfile `json:"profiles,omitempty"`

	// LeaderElection is set by flags.
	LeaderElection *runtime.RawExtension `json:"leaderElection,omitempty" unused:"flagsElect"`
	// ClientConnection is set by flags.
	ClientConnection *runtime.RawExtension `json:"clientConnection,omitempty" unused:"flagsConnect"`
	// HealthzBindAddress is set by a flag.
	HealthzBindAddress *string `json:"healthzBindAddress,omitempty" unused:"flagsServe"`
	// MetricsBindAddress is set by a flag.
	MetricsBindAddress *string `json:"metricsBindAddress,omitempty" unused:"flagsServe"`
	// EnableProfiling is not needed.
	EnableProfiling *bool `json:"enableProfiling,omitempty" unused:"noProfiles"`
	// EnableContentionProfiling is not needed.
	EnableContentionProfiling *bool `json:"enableContentionProfiling,omitempty" unused:"noProfiles"`
}

// ConfigurationProfile is a profile in Koordinator's kind.
type ConfigurationProfile struct {
	// Name of the profile; different from those of the others.
	Name string `json:"name,omitempty"`
	// NodeSelector selects, of the nodes whose pods may be moved, those of the profile. Default: all.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// PluginConfig has the arguments of plugins.
	PluginConfig []PluginConfig `json:"pluginConfig,omitempty"`
	// Plugins that run.
	Plugins struct {
		Deschedule NamedPlugins `json:"deschedule,omitempty"`
		Balance    NamedPlugins `json:"balance,omitempty"`
		Evict      NamedPlugins `json:"evict,omitempty"`
		Filter     NamedPlugins `json:"filter,omitempty"`
	} `json:"plugins,omitempty"`
}

// PluginConfig has the arguments of one plugin.
type PluginConfig struct {
	// Name of the plugin.
	Name string `json:"name"`
	// Args are of the kind NAMEArgs.
	Args *runtime.RawExtension `json:"args,omitempty"`
}

// NamedPlugins are the plugins of an extension point in Koordinator's kind.
type NamedPlugins struct {
	Enabled  []NamedPlugin `json:"enabled,omitempty"`
	Disabled []NamedPlugin `json:"disabled,omitempty"`
}

// NamedPlugin names a plugin.
type NamedPlugin struct {
	Name string `json:"name"`
}

// Policy is the Kubernetes descheduler's kind of the file.
type Policy struct {
	metav1.TypeMeta `json:",inline"`
	Rounds          `json:",inline"`

	// NodeSelector selects the nodes whose pods may be moved, such as zone=a. Default: all nodes.
	NodeSelector string `json:"nodeSelector,omitempty" labels:"true"`
	// GracePeriodSeconds is the time that moved pods have to end. Default: the pod's own.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty" min:"0"`
	// Profiles run one after the other in each round.
	Profiles []PolicyProfile `json:"profiles,omitempty"`

	// EvictionFailureEventNotification is not needed.
	EvictionFailureEventNotification *bool `json:"evictionFailureEventNotification,omitempty" unused:"jobsSay"`
	// MetricsProviders are where use would come from.
	MetricsProviders []MetricsProvider `json:"metricsProviders,omitempty" unused:"requests"`
	// MetricsCollector is what MetricsProviders replaced.
	MetricsCollector *runtime.RawExtension `json:"metricsCollector,omitempty" unused:"collector"`
}

// MetricsProvider is where use would come from.
type MetricsProvider struct {
	// Source of the metrics.
	Source string `json:"source,omitempty" allowed:"KubernetesMetrics"`
	// Prometheus is the address of a server.
	Prometheus *runtime.RawExtension `json:"prometheus,omitempty" refused:"noPrometheus"`
}

// PolicyProfile is a profile in the Kubernetes descheduler's kind.
type PolicyProfile struct {
	// Name of the profile; different from those of the others.
	Name string `json:"name,omitempty"`
	// PluginConfig has the arguments of plugins.
	PluginConfig []PluginConfig `json:"pluginConfig,omitempty"`
	// Plugins that run.
	Plugins struct {
		PreSort           PluginNames `json:"presort,omitempty"`
		Sort              PluginNames `json:"sort,omitempty"`
		Deschedule        PluginNames `json:"deschedule,omitempty"`
		Balance           PluginNames `json:"balance,omitempty"`
		Filter            PluginNames `json:"filter,omitempty"`
		PreEvictionFilter PluginNames `json:"preevictionfilter,omitempty"`
	} `json:"plugins,omitempty"`
}

// PluginNames are the plugins of an extension point in the Kubernetes descheduler's kind.
type PluginNames struct {
	Enabled  []string `json:"enabled,omitempty"`
	Disabled []string `json:"disabled,omitempty"`
}
