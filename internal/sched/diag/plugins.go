package diag

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Plugins are the out-of-tree plugins of the first profile that has them, by name: a framework does not hand its
// plugins out. They are complete when the profiles are made, one after the other.
type Plugins map[string]fwk.Plugin

// Watch returns the registry with factories that report what they made.
func (p Plugins) Watch(r frameworkruntime.Registry) frameworkruntime.Registry {
	watched := frameworkruntime.Registry{}
	for name, factory := range r {
		watched[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, h)
			// The plugin of a later profile shares the state of the first one.
			if err == nil && p[name] == nil {
				p[name] = plugin
			}
			return plugin, err
		}
	}
	return watched
}

// List returns one plugin for each name, sorted.
func (p Plugins) List() []fwk.Plugin {
	var all []fwk.Plugin
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, p[name])
	}
	return all
}
