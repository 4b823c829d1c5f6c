package app

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
)

// plugins remembers the out-of-tree plugins that the running profiles have, for those that serve endpoints: a framework
// does not hand its plugins out.
type plugins struct {
	mu   sync.Mutex // guards made
	made []ginroute.Plugin
}

// watch returns the registry with factories that report what they made.
func (p *plugins) watch(r frameworkruntime.Registry) frameworkruntime.Registry {
	watched := frameworkruntime.Registry{}
	for name, factory := range r {
		watched[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, h)
			if err == nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.made = append(p.made, plugin)
			}
			return plugin, err
		}
	}
	return watched
}

func (p *plugins) list() []ginroute.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.made)
}
