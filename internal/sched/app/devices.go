package app

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// deviceGroup is the domain of names that DeviceShare alone counts.
const deviceGroup = "koordinator.sh"

// vendorNames are the names of whole GPUs that DeviceShare counts, on nodes without a Device object as
// NodeResourcesFit would. NodeResourcesFit knows no prefixes, so it goes on counting MIG devices: a node offers those
// that its status lists.
func vendorNames() []string { return []string{device.NVIDIAGPU, device.AMDGPU, device.DCUGPU} }

// leaveDevices makes NodeResourcesFit of a profile with DeviceShare leave devices to it: one GPU has many names, and
// only DeviceShare knows that they mean the same.
// It changes the default profile only. A file's profile is checked by checkDevices.
func leaveDevices(p *config.KubeSchedulerProfile) {
	if !enables(&p.Plugins.MultiPoint, placement.DeviceShare) {
		return
	}
	if args := fitArgs(p.PluginConfig); args != nil {
		args.IgnoredResourceGroups = union(args.IgnoredResourceGroups, deviceGroup)
		args.IgnoredResources = union(args.IgnoredResources, vendorNames()...)
	}
}

// checkDevices refuses a profile in which both count devices. It takes the plugins of each extension point, and the
// complete arguments.
func checkDevices(plugins *config.Plugins, complete []config.PluginConfig) error {
	args := fitArgs(complete)
	if args == nil || !enables(&plugins.Filter, placement.DeviceShare) ||
		!enables(&plugins.Filter, names.NodeResourcesFit) {
		return nil
	}
	groups := union(args.IgnoredResourceGroups, deviceGroup)
	resources := slices.Clone(args.IgnoredResources)
	for _, name := range vendorNames() {
		if group, _, _ := strings.Cut(name, "/"); !slices.Contains(groups, group) {
			resources = union(resources, name)
		}
	}
	if len(groups) == len(args.IgnoredResourceGroups) && len(resources) == len(args.IgnoredResources) {
		return nil
	}
	return fmt.Errorf("plugins DeviceShare and NodeResourcesFit would both count devices, which have many names and "+
		"one account: add to pluginConfig of the profile\n- name: %s\n  args:\n    ignoredResourceGroups: [%s]\n    "+
		"ignoredResources: [%s]", names.NodeResourcesFit, strings.Join(groups, ", "), strings.Join(resources, ", "))
}

// fitArgs returns the arguments of NodeResourcesFit; nil if there are none.
func fitArgs(all []config.PluginConfig) *config.NodeResourcesFitArgs {
	for _, c := range all {
		if args, ok := c.Args.(*config.NodeResourcesFitArgs); ok {
			return args
		}
	}
	return nil
}

// unreadArgs returns the plugins that have arguments and are enabled at no extension point, in the order of the
// arguments. It takes the plugins of each extension point.
func unreadArgs(plugins *config.Plugins, all []config.PluginConfig) (names []string) {
	points := []*config.PluginSet{
		&plugins.PreEnqueue, &plugins.QueueSort, &plugins.PreFilter, &plugins.Filter, &plugins.PostFilter,
		&plugins.PreScore, &plugins.Score, &plugins.Reserve, &plugins.Permit, &plugins.PreBind, &plugins.Bind,
		&plugins.PostBind, &plugins.PlacementGenerate, &plugins.PlacementScore,
	}
	for _, c := range all {
		if !slices.ContainsFunc(points, func(set *config.PluginSet) bool { return enables(set, c.Name) }) {
			names = append(names, c.Name)
		}
	}
	return names
}

// enables reports whether a set enables a plugin.
func enables(set *config.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Enabled, func(e config.Plugin) bool { return e.Name == name })
}

// union appends the words that list lacks.
func union(list []string, words ...string) []string {
	out := slices.Clone(list)
	for _, word := range words {
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}
