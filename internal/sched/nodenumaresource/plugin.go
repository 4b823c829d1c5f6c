package nodenumaresource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "NodeNUMAResource"

// Plugin is the placement of a profile, with its arguments and its score.
type Plugin struct {
	*placement.Plugin
	// args are equal in all profiles: placement.Decisions refuses others.
	args convert.Args
}

var (
	_ fwk.PreScorePlugin  = (*Plugin)(nil)
	_ fwk.ScorePlugin     = (*Plugin)(nil)
	_ fwk.ScoreExtensions = (*Plugin)(nil)
)

// Factory makes the plugin for each profile. Unknown fields and values of its arguments are refused.
func Factory(d *placement.Decisions) frameworkruntime.PluginFactory {
	return func(_ context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		decoded, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		args := convert.NewArgs(decoded)
		if err := d.Configure(args); err != nil {
			return nil, err
		}
		return &Plugin{d.Join(h, Name), args}, nil
	}
}
