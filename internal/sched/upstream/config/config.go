package config

import (
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

type (
	// Scheduler is the configuration of a scheduler.
	Scheduler = config.KubeSchedulerConfiguration
	// Profile is the configuration of one scheduler name.
	Profile = config.KubeSchedulerProfile
	// Plugins are the plugins of a profile, by extension point.
	Plugins = config.Plugins
	// Set is the plugins of one extension point, in their order.
	Set = config.PluginSet
	// Plugin is one of a set.
	Plugin = config.Plugin
	// Arguments are those of one plugin.
	Arguments = config.PluginConfig
)

// Enables reports whether a set enables a plugin.
func Enables(s Set, name string) bool {
	return slices.ContainsFunc(s.Enabled, func(p Plugin) bool { return p.Name == name })
}
