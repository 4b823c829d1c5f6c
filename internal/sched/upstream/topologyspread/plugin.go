package topologyspread

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
)

// Name is the plugin's name. It cannot be upstream's: an out-of-tree plugin must not take the name of an in-tree one.
// In a profile it stands in the place of PodTopologySpread and takes its arguments.
const Name = "TenonPodTopologySpread"

// Plugin is PodTopologySpread, and signs all pods.
type Plugin struct {
	*podtopologyspread.PodTopologySpread
	// args are the decoded arguments: upstream's plugin keeps its copy private.
	args *config.PodTopologySpreadArgs
	// The listers find the default selector of a pod as upstream does: from its Services and owners.
	services     corelisters.ServiceLister
	controllers  corelisters.ReplicationControllerLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New makes the plugin for a scheduler that compares SpreadKey besides the signature. args are those of
// PodTopologySpread, in a configuration file too; nil are upstream's defaults.
func New(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := decode(args)
	if err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", Name, err)
	}
	inner, err := podtopologyspread.New(ctx, args, h,
		feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	upstream, ok := inner.(*podtopologyspread.PodTopologySpread)
	if !ok {
		return nil, fmt.Errorf("%s: upstream's plugin is a %T", Name, inner)
	}
	f := h.SharedInformerFactory()
	decoded, ok := args.(*config.PodTopologySpreadArgs)
	if !ok {
		return nil, fmt.Errorf("arguments of %s are a %T", Name, args)
	}
	return &Plugin{
		PodTopologySpread: upstream,
		args:              decoded,
		services:          f.Core().V1().Services().Lister(),
		controllers:       f.Core().V1().ReplicationControllers().Lister(),
		replicaSets:       f.Apps().V1().ReplicaSets().Lister(),
		statefulSets:      f.Apps().V1().StatefulSets().Lister(),
	}, nil
}

// decode reads what a file says under this plugin's name, of which upstream does not know the type.
func decode(args runtime.Object) (runtime.Object, error) {
	raw, ok := args.(*runtime.Unknown)
	if args == nil {
		raw, ok = &runtime.Unknown{Raw: []byte("{}")}, true
	}
	if !ok {
		return args, nil
	}
	kind := configv1.SchemeGroupVersion.WithKind("PodTopologySpreadArgs")
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode(raw.Raw, &kind, nil)
	return decoded, err
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// SpreadKey returns all that the score reads of the pod, owners and Services included; "" without a constraint.
func (p *Plugin) SpreadKey(pod *corev1.Pod) string {
	own := pod.Spec.TopologySpreadConstraints
	if len(own) == 0 {
		selector := helper.DefaultSelector(pod, p.services, p.controllers, p.replicaSets, p.statefulSets)
		if selector.Empty() || !p.systemDefaults() && len(p.args.DefaultConstraints) == 0 {
			return ""
		}
		return pod.Namespace + "/" + selector.String()
	}
	read := []any{pod.Namespace, own}
	if slices.ContainsFunc(own, func(c corev1.TopologySpreadConstraint) bool { return len(c.MatchLabelKeys) > 0 }) {
		read = append(read, pod.Labels)
	}
	key, err := json.Marshal(read)
	if err != nil {
		return string(pod.UID) // no other pod's
	}
	return string(key)
}

// IgnoresIncomplete reports whether nodes without all topology keys are left out: not with upstream's defaults.
func (p *Plugin) IgnoresIncomplete(pod *corev1.Pod) bool {
	return len(pod.Spec.TopologySpreadConstraints) > 0 || !p.systemDefaults()
}

// systemDefaults reports whether pods without constraints get upstream's default ones.
func (p *Plugin) systemDefaults() bool { return p.args.DefaultingType == config.SystemDefaulting }

// SignPod signs every pod with nothing: SpreadKey has what is read of it.
func (*Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
