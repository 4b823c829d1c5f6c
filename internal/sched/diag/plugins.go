package diag

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Plugins collects the out-of-tree plugins that the running profiles have: a framework does not hand its plugins out.
type Plugins struct {
	mu     sync.Mutex            // guards byName
	byName map[string]fwk.Plugin // that of the first profile
}

// Watch returns the registry with factories that report what they made.
func (p *Plugins) Watch(r frameworkruntime.Registry) frameworkruntime.Registry {
	p.byName = map[string]fwk.Plugin{}
	watched := frameworkruntime.Registry{}
	for name, factory := range r {
		watched[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, h)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err == nil && p.byName[name] == nil {
				p.byName[name] = plugin
			}
			return plugin, err
		}
	}
	return watched
}

// List returns one plugin for each name, sorted.
func (p *Plugins) List() []fwk.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []fwk.Plugin
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		all = append(all, p.byName[name])
	}
	return all
}
