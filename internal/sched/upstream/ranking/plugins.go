package ranking

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// local are the plugins that evaluate a node by its NodeInfo alone.
var local = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.NodeResourcesBalancedAllocation, names.ImageLocality, names.NodeDeclaredFeatures,
}

// Spreader is a plugin that scores a node by the pods of all nodes in its topology, as PodTopologySpread does.
type Spreader interface {
	fwk.PreScorePlugin
	// SpreadKey returns all that its score reads of the pod, "" for a pod that it does not spread.
	SpreadKey(pod *corev1.Pod) string
	// IgnoresIncomplete reports whether nodes without all topology keys are left out.
	IgnoresIncomplete(pod *corev1.Pod) bool
}

// Valuer is a plugin that scores nodes by what pods of the cluster ask for.
type Valuer interface {
	// Arrived is called for each attempt on a pod, before its nodes are filtered.
	Arrived(state fwk.CycleState, pod *corev1.Pod)
	// Recall learns from the pods that are bound, if it has not yet.
	Recall()
	// Epoch changes when scores can be others although the pod and the nodes are the same; in Arrived alone.
	Epoch() uint64
	// Decides reports whether its score is to decide: nodes must get none for the CPUs and memory that they have free,
	// nor for being apart from pods that the pod does not name.
	Decides(state fwk.CycleState) bool
}

// scorer is a plugin that scores a node by what is on the node alone, with its weight.
type scorer struct {
	fwk.ScorePlugin
	pre    fwk.PreScorePlugin // nil without
	weight int64
	alike  bool // it reads no amounts of the pod
}

// plugins are those of a profile, by what a ranking needs of them. They do not change.
type plugins struct {
	// usable is true if every score plugin is known. Else no pod is ranked.
	usable bool
	// across are the plugins that must have nothing to say about a pod: what they say of a node depends on others.
	across []string
	// scorers evaluate each node by itself. asked has all score plugins that are known, by name.
	scorers []scorer
	asked   map[string]fwk.ScorePlugin
	// sized are the local filters that may read amounts of the pod; sizedNames their names.
	sized      []fwk.FilterPlugin
	sizedNames sets.Set[string]
	// amounts is NodeResourcesFit; nil without.
	amounts  hooks.Amounts
	spreader Spreader // nil without
	// spreads is the weight of spreader.
	spreads int64
	valuer  Valuer // nil without
	// affinity is InterPodAffinity: rankings are used only for pods about which it has nothing to say. nil without.
	affinity fwk.PreScorePlugin
}

// maker makes plugins of a profile that the framework does not hand out.
type maker struct {
	framework.Framework
	config  *config.KubeSchedulerProfile
	made    map[string]fwk.Plugin // those that it does, by name
	locally []string              // plugins outside of kube-scheduler that evaluate a node by itself
}

// newPlugins returns the plugins of a profile that was made from cfg. localPlugins are those of NewProfile.
func newPlugins(ctx context.Context, f framework.Framework, cfg *config.KubeSchedulerProfile, localPlugins []string,
) (plugins, error) {
	p := plugins{usable: true, asked: map[string]fwk.ScorePlugin{}, sizedNames: sets.New[string]()}
	m := &maker{f, cfg, map[string]fwk.Plugin{}, localPlugins}
	for _, e := range f.EnqueueExtensions() {
		m.made[e.Name()] = e
		if valuer, ok := e.(Valuer); ok {
			p.valuer = valuer
		}
	}
	p.amounts, _ = m.made[names.NodeResourcesFit].(hooks.Amounts)
	enabled := f.ListPlugins()
	for _, e := range enabled.Filter.Enabled {
		p.addFilter(m, e.Name)
	}
	for _, e := range enabled.Score.Enabled {
		if err := p.addScore(ctx, m, e); err != nil {
			return p, err
		}
	}
	return p, nil
}

// addFilter adds a filter by its name.
func (p *plugins) addFilter(m *maker, name string) {
	if !m.isLocal(name) {
		p.across = append(p.across, name) // its answer about one node may depend on others
		return
	}
	if filter, ok := m.made[name].(fwk.FilterPlugin); ok && !isAlike(name) {
		p.sized = append(p.sized, filter)
		p.sizedNames.Insert(name)
	}
}

// addScore adds a plugin that scores nodes.
func (p *plugins) addScore(ctx context.Context, m *maker, enabled config.Plugin) error {
	if enabled.Name == names.VolumeBinding || enabled.Name == names.DynamicResources {
		p.across = append(p.across, enabled.Name) // who passes their filter without a word has a score of 0
		return nil
	}
	plugin, err := m.scorer(ctx, enabled.Name)
	if err != nil {
		return err
	}
	if plugin != nil {
		p.asked[enabled.Name] = plugin
	}
	pre, _ := plugin.(fwk.PreScorePlugin)
	spreader, spreads := plugin.(Spreader)
	switch {
	case plugin != nil && m.isLocal(enabled.Name):
		p.scorers = append(p.scorers, scorer{plugin, pre, int64(enabled.Weight), isAlike(enabled.Name)})
	case plugin != nil && enabled.Name == names.InterPodAffinity:
		p.affinity = pre
	case spreads:
		p.spreader, p.spreads = spreader, int64(enabled.Weight)
	case enabled.Name != names.PodTopologySpread: // which signs no pod that it would score
		p.usable = false
	}
	return nil
}

// isLocal reports whether a plugin evaluates a node by itself.
func (m *maker) isLocal(name string) bool {
	return slices.Contains(local, name) || slices.Contains(m.locally, name)
}

// scorer returns a plugin that scores; nil for one that is not known. One of kube-scheduler that only scores is made
// anew: the framework does not hand it out.
func (m *maker) scorer(ctx context.Context, name string) (fwk.ScorePlugin, error) {
	if plugin, ok := m.made[name].(fwk.ScorePlugin); ok {
		return plugin, nil
	}
	factory, inTree := frameworkplugins.NewInTreeRegistry()[name]
	if !inTree || !m.isLocal(name) {
		return nil, nil
	}
	var args runtime.Object
	for i := range m.config.PluginConfig {
		if m.config.PluginConfig[i].Name == name {
			args = m.config.PluginConfig[i].Args
		}
	}
	another, err := factory(ctx, args, m.Framework)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	plugin, _ := another.(fwk.ScorePlugin)
	return plugin, nil
}
