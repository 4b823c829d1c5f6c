package guard

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// Scheduler guards the plugins of a core that kube-scheduler has just made, before anything is put around its queue and
// profiles, and lets its queue hold pods.
func (g *Guard) Scheduler(core *scheduler.Scheduler) error {
	before, err := inside.Field[map[string]map[string]fwk.PreEnqueuePlugin](core.SchedulingQueue, "preEnqueuePluginMap")
	if err != nil {
		return err
	}
	hints, err := inside.Field[queue.QueueingHintMapPerProfile](core.SchedulingQueue, "queueingHintMap")
	if err != nil {
		return err
	}
	wakes, err := inside.Field[map[string][]fwk.ClusterEvent](core.SchedulingQueue, "pluginToEventsMap")
	if err != nil {
		return err
	}
	(*wakes)[Name] = []fwk.ClusterEvent{framework.EventUnschedulableTimeout}
	for profile, f := range core.Profiles {
		for name, plugin := range (*before)[profile] {
			(*before)[profile][name] = &preEnqueue{plugin, g.at(plugin, "PreEnqueue")}
		}
		(*before)[profile][Name] = queueGate{gate{g}}
		for _, all := range (*hints)[profile] {
			for _, hint := range all {
				hint.QueueingHintFn = g.hint(hint.PluginName, hint.QueueingHintFn)
			}
		}
		if err := g.Framework(f); err != nil {
			return err
		}
		plugins, err := inside.Field[[]fwk.PreEnqueuePlugin](f, "preEnqueuePlugins")
		if err != nil {
			return err
		}
		*plugins = append(*plugins, gate{g}) // for those who ask why a pod does not pass the queue
	}
	return nil
}

// Framework guards the plugins of a framework that kube-scheduler's runtime has just made, before anything is put
// around it. The framework must be asked about no pod yet.
func (g *Guard) Framework(f framework.Framework) error {
	plugins, err := inside.Field[map[string]fwk.Plugin](f, "pluginsMap")
	if err != nil {
		return err
	}
	divider, err := inside.Field[fwk.Parallelizer](f, "parallelizer")
	if err != nil {
		return err
	}
	*divider = parallelizer{*divider}
	for _, p := range *plugins { // some have kept that of the framework
		if kept, err := inside.Field[fwk.Parallelizer](p, "parallelizer"); err == nil {
			*kept = *divider
		}
	}
	for _, replace := range []error{
		Each(f, "preFilterPlugins", func(p fwk.PreFilterPlugin) fwk.PreFilterPlugin {
			return g.preFilter(p, f.SharedDRAManager())
		}),
		Each(f, "filterPlugins", func(p fwk.FilterPlugin) fwk.FilterPlugin { return &filter{p, g.at(p, "Filter")} }),
		Each(f, "postFilterPlugins", func(p fwk.PostFilterPlugin) fwk.PostFilterPlugin {
			return &postFilter{p, g.at(p, "PostFilter")}
		}),
		Each(f, "preScorePlugins", func(p fwk.PreScorePlugin) fwk.PreScorePlugin {
			return &preScore{p, g.at(p, "PreScore")}
		}),
		Each(f, "scorePlugins", g.score),
		Each(f, "reservePlugins", func(p fwk.ReservePlugin) fwk.ReservePlugin {
			return &reserve{p, g.at(p, "Reserve"), g.at(p, "Unreserve")}
		}),
		Each(f, "permitPlugins", func(p fwk.PermitPlugin) fwk.PermitPlugin { return &permit{p, g.at(p, "Permit")} }),
		Each(f, "preBindPlugins", func(p fwk.PreBindPlugin) fwk.PreBindPlugin {
			return &preBind{p, g.at(p, "PreBindPreFlight"), g.at(p, "PreBind")}
		}),
		Each(f, "bindPlugins", func(p fwk.BindPlugin) fwk.BindPlugin { return &bind{p, g.at(p, "Bind")} }),
		Each(f, "postBindPlugins", func(p fwk.PostBindPlugin) fwk.PostBindPlugin {
			return &postBind{p, g.at(p, "PostBind")}
		}),
		Each(f, "batchablePlugins", func(p fwk.SignPlugin) fwk.SignPlugin { return &sign{p, g.at(p, "SignPod")} }),
	} {
		if replace != nil {
			return replace
		}
	}
	return nil
}

// Each replaces each plugin in a list of a framework, such as preFilterPlugins. The framework must be asked about no
// pod yet.
func Each[T any](f framework.Framework, list string, replacement func(T) T) error {
	plugins, err := inside.Field[[]T](f, list)
	if err != nil {
		return err
	}
	for i, p := range *plugins {
		(*plugins)[i] = replacement(p)
	}
	return nil
}

// preFilter returns the replacement of a PreFilter plugin.
func (g *Guard) preFilter(p fwk.PreFilterPlugin, dra fwk.SharedDRAManager) fwk.PreFilterPlugin {
	guarded := &preFilter{PreFilterPlugin: p, point: g.at(p, "PreFilter")}
	if extensions := p.PreFilterExtensions(); extensions != nil {
		guarded.extensions = &preFilterExtensions{extensions, g.at(p, "AddPod"), g.at(p, "RemovePod")}
	}
	if p.Name() == names.DynamicResources && dra != nil {
		return &claimFilter{guarded, dra.ResourceClaims()}
	}
	return guarded
}

// score returns the replacement of a Score plugin.
func (g *Guard) score(p fwk.ScorePlugin) fwk.ScorePlugin {
	guarded := &score{ScorePlugin: p, point: g.at(p, "Score")}
	if extensions := p.ScoreExtensions(); extensions != nil {
		guarded.extensions = &scoreExtensions{extensions, g.at(p, "NormalizeScore")}
	}
	return guarded
}
