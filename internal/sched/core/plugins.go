package core

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/scarceresource"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
	"github.com/tenon-project/tenon/internal/sched/upstream/topologyspread"
)

var _ ranking.Valuer = (*deviceshare.Plugin)(nil)

// Registry returns Tenon's plugins by name. Pods that they bind are followed by a tracker.
func Registry(o *Options, t *follow.Tracker) frameworkruntime.Registry {
	d := placement.NewDecisions(o.Nodes, o.Metrics.Placement, t)
	d.Others = records{o.Quotas, o.Gangs, o.Reservations}
	return frameworkruntime.Registry{
		coscheduling.Name:     coscheduling.Factory(o.Gangs, o.Quotas),
		deviceshare.Name:      deviceshare.Factory(d),
		elasticquota.Name:     elasticquota.Factory(o.Quotas, o.Metrics.Quota),
		loadaware.Name:        loadaware.Factory(o.Loads, o.Clock.Now),
		nodenumaresource.Name: nodenumaresource.Factory(d),
		reserving.Name:        reserving.Factory(o.Reservations, o.Quotas),
		scarceresource.Name:   scarceresource.New,
		topologyspread.Name:   topologyspread.New,
	}
}

// records are what the accounts write into a pod that is bound.
type records struct {
	quotas       *kube.Quotas
	gangs        *kube.Gangs
	reservations *kube.Reservations
}

// Record returns the annotations of all accounts.
func (r records) Record(p *corev1.Pod) map[string]string {
	var all map[string]string
	for _, record := range []map[string]string{r.gangs.Record(p), r.reservations.Record(p), r.quotas.Record(p)} {
		if all == nil {
			all = record
		} else {
			maps.Copy(all, record)
		}
	}
	return all
}

// Chosen is that of package reserving.
func (records) Chosen(cs fwk.CycleState, node string) (uid string, restricted bool) {
	return reserving.Chosen(cs, node)
}

// plugins are what gangs ask the plugins of a profile for. store has the accounts of nodes.
type plugins struct{ store *kube.Store }

// Trial returns a copy of the accounts of nodes.
func (p plugins) Trial() coscheduling.Trial { return placement.NewTrial(p.store) }

// Planned and Admitted mark an attempt for ElasticQuota.
func (plugins) Planned(cs fwk.CycleState)  { elasticquota.Planned(cs) }
func (plugins) Admitted(cs fwk.CycleState) { elasticquota.Admitted(cs) }

// Preemption is PreemptionOf.
func (plugins) Preemption(f framework.Framework) *preempt.Chooser { return PreemptionOf(f) }

// Joint is the answer of the plugin that decides about devices in a profile.
func (plugins) Joint(f framework.Framework, node string, pods []*corev1.Pod) (link int64, mark func(fwk.CycleState)) {
	if p := pluginOf[*deviceshare.Plugin](f); p != nil {
		return p.Joint(node, pods)
	}
	return 0, nil
}

// Usable is the answer of the plugin of Reservations in a profile.
func (plugins) Usable(f framework.Framework, pods []*corev1.Pod) func(*corev1.Pod) bool {
	if p := pluginOf[*reserving.Plugin](f); p != nil {
		return p.Usable(pods)
	}
	return nil
}

// pluginOf returns a plugin of a profile, nil for one without it.
func pluginOf[T fwk.Plugin](f framework.Framework) (plugin T) {
	for _, e := range f.EnqueueExtensions() {
		if p, ok := e.(T); ok {
			return p
		}
	}
	return plugin
}

// PreemptionOf returns what chooses victims for a profile; nil for one that does not preempt.
func PreemptionOf(f framework.Framework) *preempt.Chooser {
	for _, p := range f.PreEnqueuePlugins() {
		if p, ok := p.(*elasticquota.Plugin); ok {
			return p.Preemption
		}
		if c := preempt.Of(p); c != nil {
			return c
		}
	}
	return nil
}

// protect adds the rules of Reservations and gangs to the preemption of a profile, if it preempts.
func protect(f framework.Framework, e *coscheduling.Evictions) {
	p := PreemptionOf(f)
	if p == nil {
		return
	}
	if rooms := pluginOf[*reserving.Plugin](f); rooms != nil {
		rooms.Guard(p)
	}
	e.Guard(f, p)
}

// startTogether returns the names of the profiles that start gangs whole.
func startTogether(core *loop.Scheduler) (names []string) {
	for name, f := range core.Profiles {
		if config.Enables(f.ListPlugins().Permit, coscheduling.Name) {
			names = append(names, name)
		}
	}
	return names
}
