package scarceresource

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

// Name is the plugin's name in profiles.
const Name = "ScarceResourceAvoidance"

// Plugin scores nodes by the names of their resources.
type Plugin struct {
	// scarce are the resources to avoid.
	scarce []corev1.ResourceName
}

var (
	_ fwk.ScorePlugin                = (*Plugin)(nil)
	_ fwk.SignPlugin                 = (*Plugin)(nil)
	_ frameworkruntime.PluginFactory = New
)

// New makes the plugin of a profile. Unknown fields and values of arguments are refused.
func New(_ context.Context, raw runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	args, err := v1alpha1.Decode[v1alpha1.ScarceResourceAvoidanceArgs](raw)
	if err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", Name, err)
	}
	return &Plugin{scarce: args.Resources}, nil
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// Score returns the percentage of a node's resources that are not scarce, of those that the pod does not request: 100
// if none of them is scarce. Resources are counted, not their amounts.
func (p *Plugin) Score(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	asked := resource.PodRequests(pod, resource.PodResourcesOptions{})
	unused, scarce := int64(0), int64(0)
	for name := range n.Node().Status.Allocatable {
		if _, asks := asked[name]; asks {
			continue
		}
		if unused++; slices.Contains(p.scarce, name) {
			scarce++
		}
	}
	if scarce == 0 {
		return fwk.MaxScore, nil
	}
	return (unused - scarce) * fwk.MaxScore / unused, nil
}

// ScoreExtensions returns nil: scores are final.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod signs nothing: the framework signs the requests of a pod.
func (*Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
