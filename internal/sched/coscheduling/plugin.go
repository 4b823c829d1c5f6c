package coscheduling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	scheduling "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "Coscheduling"

// Plugin is the plugin of one profile.
type Plugin struct {
	// gangs is shared by all profiles.
	gangs    *kube.Gangs
	preempts bool // gangs may evict others
}

var (
	_ fwk.QueueSortPlugin   = (*Plugin)(nil)
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

// Factory makes the plugin for each profile, on one set of gangs, whose sizes quotas learns. Unknown fields and values
// of its arguments are refused, and so are arguments that differ between profiles.
func Factory(gangs *kube.Gangs, quotas *kube.Quotas) frameworkruntime.PluginFactory {
	var once sync.Once
	return func(_ context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := v1alpha1.Decode[v1alpha1.CoschedulingArgs](raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		if err := gangs.Configure(convert.GangDefaults(&args), convert.GangRulesOf(&args)); err != nil {
			return nil, err
		}
		once.Do(func() { // a second instance in the process evaluates pods for explanations
			gangs.Inform(quotas.SetGang)
			gangs.Handle(&handler{h, gangs})
		})
		return &Plugin{gangs, *args.EnablePreemption}, nil
	}
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// Less puts pods in order: by priority, highest first, then as Gangs.Compare does, then by the time at which they came
// into the queue. The times of creation are whole seconds.
func (p *Plugin) Less(a, b fwk.QueuedEntityInfo) bool {
	x, y := podqueue.PodOf(a), podqueue.PodOf(b)
	if order := cmp.Compare(p.gangs.Priority(y), p.gangs.Priority(x)); order != 0 {
		return order < 0
	}
	return cmp.Or(p.gangs.Compare(x, y), a.GetTimestamp().Compare(b.GetTimestamp())) < 0
}

// SortQueue gives profiles that say nothing of it the queue's order of one that does, else Less, where one of them has
// the plugin: all profiles share one queue, whose order must be the same in all.
func SortQueue(profiles []config.Profile) {
	plugins := config.Set{
		Enabled: []config.Plugin{{Name: Name}}, Disabled: []config.Plugin{{Name: "*"}},
	}
	var args []config.Arguments
	found := false
	for i := range profiles {
		if p := &profiles[i]; p.Plugins != nil {
			found = found || config.Enables(p.Plugins.MultiPoint, Name)
			if len(p.Plugins.QueueSort.Enabled) > 0 {
				plugins = p.Plugins.QueueSort
			}
			if at := slices.IndexFunc(p.PluginConfig, isOurs); at >= 0 {
				args = p.PluginConfig[at : at+1]
			}
		}
	}
	for i := range profiles {
		p := &profiles[i]
		if !found || p.Plugins == nil || len(p.Plugins.QueueSort.Enabled) > 0 {
			continue
		}
		p.Plugins.QueueSort = *plugins.DeepCopy()
		if !slices.ContainsFunc(p.PluginConfig, isOurs) {
			p.PluginConfig = append(p.PluginConfig, args...)
		}
	}
}

// isOurs reports whether a configuration is that of this plugin.
func isOurs(c config.Arguments) bool { return c.Name == Name }

// PreEnqueue holds back a pod whose gang may not be tried.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	return statusOf(kube.Ask(p.gangs, func(s *gang.State) gang.Refusal { return s.Gate(string(pod.UID)) }))
}

// statusOf returns a refusal as a status; nil for none.
func statusOf(r gang.Refusal) *fwk.Status {
	if r.Code == why.None {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{r})
}

// Waiting returns why a pod that passes the queue is not bound.
func (p *Plugin) Waiting(pod *corev1.Pod) *fwk.Status {
	return statusOf(kube.Ask(p.gangs, func(s *gang.State) gang.Refusal { return s.Why(string(pod.UID)) }))
}

// Reserve does nothing: a member holds what the other plugins reserve.
func (*Plugin) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status { return nil }

// Unreserve records that a member holds nothing any more.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.gangs.Update(func(s *gang.State) gang.Effects { return s.Lose(string(pod.UID), why.Finding{}) })
}

// longestWait is more than the framework lets a pod wait. The gang's own waiting time ends the wait.
const longestWait = time.Hour

// Permit lets a member wait for the others.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	if p.gangs.Pass(pod, time.Now()) {
		return fwk.NewStatus(fwk.Wait), longestWait
	}
	return nil, 0
}

// handler carries out what becomes of gangs, for all profiles: they share queue and waiting pods.
type handler struct {
	fwk.Handle
	// gangs calls the handler, without its lock held, and gives it the UIDs of pods that wait in Permit.
	gangs *kube.Gangs
}

// Opened queues the pods.
func (h *handler) Opened(pods map[string]*corev1.Pod) { h.Activate(klog.Background(), pods) }

// Allow lets pods be bound.
func (h *handler) Allow(uids []string) {
	h.each(uids, func(w fwk.WaitingPod) { w.Allow(Name) })
}

// Release ends the reservations of pods.
func (h *handler) Release(uids []string) {
	h.each(uids, func(w fwk.WaitingPod) { w.Reject(Name, "the gang cannot start") })
}

// each calls f with the waiting pod of each UID. A pod that does not wait any more holds nothing, which the state
// learns.
func (h *handler) each(uids []string, f func(fwk.WaitingPod)) {
	for _, uid := range uids {
		if w := h.GetWaitingPod(types.UID(uid)); w != nil {
			f(w)
		} else { // rejected by another, or deleted
			h.gangs.Update(func(s *gang.State) gang.Effects { return s.Lose(uid, why.Finding{}) })
		}
	}
}

// Exclusive returns an error for a profile in which Kubernetes schedules gangs too: each would hold members back until
// the other lets the whole gang go.
func Exclusive(plugins *config.Plugins, gates featuregate.FeatureGate) error {
	other := ""
	switch {
	case !config.Enables(plugins.Permit, Name):
	case config.Enables(plugins.Permit, names.GangScheduling), config.Enables(plugins.PreEnqueue, names.GangScheduling):
		other = "plugin GangScheduling"
	case gates.Enabled(features.GenericWorkload):
		other = "feature gate GenericWorkload"
	case gates.Enabled(features.CompositePodGroup): // it needs GenericWorkload
		other = "feature gate CompositePodGroup"
	}
	if other == "" {
		return nil
	}
	return fmt.Errorf("plugin Coscheduling and %s are both enabled: each would hold the pods of a PodGroup of "+
		"scheduling.k8s.io back until the other lets them go; Coscheduling starts such gangs by itself: turn the "+
		"feature gates GenericWorkload and CompositePodGroup of this scheduler off and remove plugin GangScheduling "+
		"from the profile, or disable Coscheduling", other)
}

// EventsToRegister names what gangs are read from and the layers of the network, so that they are read. Members are
// activated when they can be tried again: the queue has no event for a change of another pending pod.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	var events []fwk.ClusterEventWithHint
	read := []schema.GroupVersionResource{devicev1alpha1.NetworkResource()}
	for _, kind := range scheduling.GangKinds() {
		read = append(read, kind.At[0])
	}
	for _, r := range read {
		events = append(events, fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{
				Resource:   fwk.EventResource(r.Resource + "." + r.Version + "." + r.Group),
				ActionType: fwk.Add | fwk.Update | fwk.Delete,
			},
			QueueingHintFn: skip,
		})
	}
	return append(events, fwk.ClusterEventWithHint{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel},
		QueueingHintFn: p.moved,
	}), nil
}

// moved lets a pod be tried whose gang must be in one domain of the network, when a node comes into one.
func (p *Plugin) moved(_ klog.Logger, pod *corev1.Pod, was, now any) (fwk.QueueingHint, error) {
	if !kube.Ask(p.gangs, func(s *gang.State) bool { return s.HasDomainRules(string(pod.UID)) }) {
		return fwk.QueueSkip, nil
	}
	before, _ := was.(*corev1.Node)
	if after, ok := now.(*corev1.Node); ok && before != nil && maps.Equal(before.Labels, after.Labels) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// skip is the hint for events that never let a pod fit by themselves.
func skip(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.QueueSkip, nil }
