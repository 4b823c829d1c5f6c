// Package v1alpha1 is the configuration of Tenon's parts: here the arguments of its scheduler plugins, as they are
// written in the pluginConfig of a KubeSchedulerConfiguration.
//
// Configuration is strict: an unknown or repeated field, a wrong type or an unknown value keeps the process from
// starting, with a text that names the field.
//
// +kubebuilder:object:generate=true
package v1alpha1
