package loadaware

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	slov1alpha1 "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/memo"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "LoadAwareScheduling"

// Plugin filters and scores nodes by what they use. All fields are set by newPlugin, but nodes by Factory.
type Plugin struct {
	// loads is the account that all profiles share.
	loads *kube.Loads
	// now is the clock of the account.
	now func() time.Time
	// nodes are read by hints and by the endpoint, which have no snapshot.
	nodes corelisters.NodeLister
	// rules are the thresholds for nodes without their own.
	rules load.Rules
	// expiry says which reports are too old, and whether pods pass a node with such a report.
	expiry load.Expiry
	// scoring says how nodes compare: the weights of resources, and which use counts.
	scoring load.Scoring

	// overrides remembers the parsed thresholds of nodes, and raw their parsed unamplified resources, both by the text
	// of the annotation. Many nodes have equal texts.
	overrides *memo.Table[string, override]    // by the text of the annotation
	raw       *memo.Table[string, amount.Pair] // by the text of the annotation
	// seed is that of the hashes by which both remember.
	seed maphash.Seed
}

// override is the parsed annotation of a node with its own thresholds.
type override struct {
	load.Override
	// problem says why the annotation cannot be parsed; empty if it can.
	problem string
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Factory creates the plugin for each profile, all on the account l.
func Factory(l *kube.Loads, now func() time.Time) frameworkruntime.PluginFactory {
	return func(_ context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		a, err := v1alpha1.Decode[v1alpha1.LoadAwareSchedulingArgs](args)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		p := newPlugin(l, now, &a)
		p.nodes = h.SharedInformerFactory().Core().V1().Nodes().Lister()
		return p, nil
	}
}

// newPlugin returns a plugin with these arguments, and gives the account its settings.
func newPlugin(l *kube.Loads, now func() time.Time, a *v1alpha1.LoadAwareSchedulingArgs) *Plugin {
	after := time.Duration(*a.NodeMetricExpirationSeconds) * time.Second
	l.Enable(convert.LoadSettings{
		Factors: percents(a.EstimatedScalingFactors), Customized: a.AllowCustomizeEstimation,
		AfterScheduled:   seconds(a.EstimatedSecondsAfterPodScheduled),
		AfterInitialized: seconds(a.EstimatedSecondsAfterInitialized),
	}, after)
	p := &Plugin{
		loads: l, now: now,
		rules: load.Rules{
			Usage: percents(a.UsageThresholds), Prod: percents(a.ProdUsageThresholds),
			ProdWithSystem: a.ProdUsageIncludeSys,
		},
		expiry: load.Expiry{
			After: after, Ignore: !*a.FilterExpiredNodeMetrics, Pass: *a.EnableScheduleWhenNodeMetricsExpired,
		},
		scoring: load.Scoring{
			Weights: load.Weights{Resources: percents(a.ResourceWeights), Dominant: a.DominantResourceWeight},
			Prod:    a.ScoreAccordingProdUsage, ProdWithSystem: a.ProdUsageIncludeSys,
		},
		overrides: memo.New[string, override](64), raw: memo.New[string, amount.Pair](64), seed: maphash.MakeSeed(),
	}
	if g := a.Aggregated; g != nil {
		p.rules.Aggregated = percents(g.UsageThresholds)
		p.rules.AggregatedBy = load.Measure{
			Statistic: load.Statistic(g.UsageAggregationType), Duration: g.UsageAggregatedDuration.Duration,
		}
		p.scoring.By = load.Measure{
			Statistic: load.Statistic(g.ScoreAggregationType), Duration: g.ScoreAggregatedDuration.Duration,
		}
	}
	return p
}

// seconds returns a number of seconds as a duration; nil for nil.
func seconds(n *int64) *time.Duration {
	if n == nil {
		return nil
	}
	return new(time.Duration(*n) * time.Second)
}

// percents returns percentages by resource from those by name. Names of other resources are ignored.
func percents[K ~string](all map[K]int64) (out load.Percents) {
	for r := range amount.Resources {
		out[r] = all[K(r.String())]
	}
	return out
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// stateKey is where a cycle has its state.
const stateKey fwk.StateKey = Name

// cycle is the state of one scheduling cycle.
type cycle struct {
	// pod is the pod with its estimated use.
	pod load.Pod
	// daemon is true for a pod of a DaemonSet, which no node refuses.
	daemon bool
	// workload is that of the pod if a node has evicted another pod of it lately, else "".
	workload string
	// now is the time for all decisions of the cycle.
	now   time.Time
	trial *placement.Trial // nil for none
	// nominated are the pods that are nominated to the node for which the framework has cloned the cycle.
	nominated []load.Pod
}

// Clone returns a copy, to which nominated pods may be added.
func (c *cycle) Clone() fwk.StateData {
	out := *c
	out.nominated = slices.Clip(c.nominated)
	return &out
}

// PreFilter estimates what the pod will use. While no node has reported its use, it skips all pods but those that avoid
// a node. It skips those of DaemonSets.
func (p *Plugin) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if p.skips(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c, err := p.begin(cs, pod)
	switch {
	case err != nil:
		r := &placement.Refusal{Reason: why.Reason{Code: why.BadAnnotation}, Detail: err.Error()}
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(r)
	case c.daemon:
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.loads.Expire(c.now)
	return nil, nil
}

// skips reports whether all nodes are equal for a pod.
func (p *Plugin) skips(pod *corev1.Pod) bool {
	return convert.IsReservePod(pod) || !p.loads.HasReports() && p.loads.WorkloadEvicted(pod) == ""
}

// begin creates the state of a cycle and stores it. The state is stored also if an annotation of the pod cannot be
// parsed: the error says which.
func (p *Plugin) begin(cs fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	c := &cycle{now: p.now(), daemon: convert.IsOfDaemonSet(pod), trial: placement.OnTrial(cs)}
	estimated, err := p.loads.Estimate(pod, c.now)
	c.pod, c.workload = estimated, p.loads.WorkloadEvicted(pod)
	cs.Write(stateKey, c)
	return c, err
}

// PreFilterExtensions returns p, which counts nominated pods.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod counts a pod that is nominated to a node. A pod that is assigned to the node counts there already.
func (p *Plugin) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	c, pod := placement.State[*cycle](cs, stateKey), added.GetPod()
	if c != nil && !convert.IsReservePod(pod) && !p.loads.IsAssigned(pod.UID) {
		estimated, _ := p.loads.Estimate(pod, c.now) // what cannot be read of it does not count
		c.nominated = append(c.nominated, estimated)
	}
	return nil
}

// RemovePod removes a nominated pod. A victim goes on counting, because what it uses is measured until it has ended.
func (p *Plugin) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := placement.State[*cycle](cs, stateKey); c != nil {
		c.nominated = slices.DeleteFunc(slices.Clone(c.nominated), func(n load.Pod) bool {
			return n.UID == string(removed.GetPod().UID)
		})
	}
	return nil
}

// read returns the state of the cycle. It creates one for a profile that enables Filter or Score and not PreFilter. It
// returns nil if nodes are not compared by use for the pod.
func (p *Plugin) read(cs fwk.CycleState, pod *corev1.Pod) *cycle {
	if c := placement.State[*cycle](cs, stateKey); c != nil {
		return c
	}
	if p.skips(pod) {
		return nil
	}
	c, err := p.begin(cs, pod)
	if err != nil {
		return nil
	}
	return c
}

// Filter refuses nodes that would use more than their thresholds with the pod, and those that have just evicted a pod
// of its workload.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	c := p.read(cs, pod)
	if c == nil || c.daemon {
		return nil
	}
	if r, refused := p.refuses(c, node.Node(), p.allocatable(node)); refused {
		return (&placement.Refusal{Reason: r}).Status()
	}
	return nil
}

// allocatable returns the CPU and memory that a node really has: if its status was amplified, the amounts before.
func (p *Plugin) allocatable(node fwk.NodeInfo) amount.Pair {
	a := node.GetAllocatable()
	return p.unamplified(node.Node(), amount.Pair{amount.CPU: a.GetMilliCPU(), amount.Memory: a.GetMemory()})
}

// unamplified returns the smaller of the shown amounts and those that the node's annotation records.
func (p *Plugin) unamplified(node *corev1.Node, shown amount.Pair) amount.Pair {
	text, amplified := node.Annotations[annotation.RawAllocatableKey]
	if !amplified {
		return shown
	}
	hash := maphash.String(p.seed, text)
	raw, known := p.raw.Recall(text, hash)
	if !known {
		list, _, _ := annotation.ParseRawAllocatable(text) // what cannot be read changes nothing
		raw = convert.Pair(corev1.ResourceList(list))
		p.raw.Keep(text, hash, raw)
	}
	for r, n := range raw {
		if n > 0 {
			shown[r] = min(shown[r], n)
		}
	}
	return shown
}

// refuses returns why the node would use more than a threshold with the pod, that the pod avoids it, or that its report
// is too old; false if none of them holds.
func (p *Plugin) refuses(c *cycle, node *corev1.Node, allocatable amount.Pair) (why.Reason, bool) {
	if c.workload != "" && p.loads.Avoids(c.workload, node.Name, c.now) {
		return why.Reason{Code: why.RecentlyEvicted}, true
	}
	view := p.loads.View(node.Name)
	switch p.expiry.Check(view.Report, c.now) {
	case load.Skipped:
		return why.Reason{}, false
	case load.Refused:
		return why.Reason{Code: why.MetricExpired}, true
	}
	excess, exceeds := p.rulesOf(node).Exceeds(c.on(node.Name, view), allocatable, c.pod.Prod)
	if !exceeds {
		return why.Reason{}, false
	}
	r := why.Reason{
		Code: why.UsageThreshold, Resource: why.Resource(excess.Resource.String()), Unit: why.Percent,
		Asked: excess.Percent, Free: excess.Threshold,
	}
	switch {
	case excess.ByProd:
		r.Extra = why.ByProduction
	case excess.ByAggregated:
		r.Extra = why.ByPercentile
	}
	return r, true
}

// on returns the view of a node with the pod, those that are on trial there, and the nominated ones.
func (c *cycle) on(node string, v load.View) load.View {
	if c.trial != nil {
		v = c.trial.Loads.On(node, v)
	}
	for _, n := range c.nominated {
		v = v.With(n)
	}
	return v.With(c.pod)
}

// rulesOf returns the rules for a node: those of the plugin, with the thresholds of the node's annotation. An
// annotation that cannot be parsed changes nothing.
func (p *Plugin) rulesOf(node *corev1.Node) load.Rules {
	text, has := node.Annotations[annotation.UsageThresholdsKey]
	if !has {
		return p.rules
	}
	return p.rules.Of(p.overrideOf(text).Override)
}

// overrideOf returns the parsed annotation, from memory if an equal text was parsed before.
func (p *Plugin) overrideOf(text string) override {
	hash := maphash.String(p.seed, text)
	if o, known := p.overrides.Recall(text, hash); known {
		return o
	}
	var o override
	t, _, err := annotation.ParseUsageThresholds(text)
	if err != nil {
		o.problem = err.Error()
	}
	group := func(all map[string]int64) *load.Percents {
		if len(all) == 0 {
			return nil
		}
		return new(percents(all))
	}
	o.Usage, o.Prod = group(t.UsageThresholds), group(t.ProdUsageThresholds)
	if a := t.AggregatedUsage; a != nil {
		o.Aggregated = group(a.UsageThresholds)
		o.AggregatedBy = load.Measure{Statistic: load.Statistic(a.UsageAggregationType), Duration: a.Duration()}
	}
	p.overrides.Keep(text, hash, o)
	return o
}

// PreScore skips pods for which nodes are not compared by use.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if p.read(cs, pod) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score is higher the less a node uses with the pod. A node without a report, or with one that is too old, gets 0.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c := p.read(cs, pod)
	if c == nil {
		return 0, nil
	}
	name := node.Node().Name
	view := p.loads.View(name)
	if !p.expiry.Scores(view.Report, c.now) {
		return 0, nil
	}
	return p.scoring.Score(c.on(name, view), p.allocatable(node), c.pod.Prod), nil
}

// ScoreExtensions returns nil: scores are final.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve counts the pod's estimated use on the node, until a report includes the pod.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if convert.IsReservePod(pod) {
		return nil
	}
	c := placement.State[*cycle](cs, stateKey)
	if c == nil {
		c, _ = p.begin(cs, pod) // no node is judged yet: annotations that cannot be read do not count
	}
	if t := placement.OnTrial(cs); t != nil {
		t.Loads.Assign(node, c.pod)
	} else {
		p.loads.Assign(node, c.pod)
	}
	return nil
}

// Unreserve removes the estimate.
func (p *Plugin) Unreserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	if t := placement.OnTrial(cs); t != nil {
		t.Loads.Remove(node, pod.UID)
	} else if !convert.IsReservePod(pod) {
		p.loads.RemovePod(pod.UID)
	}
}

// metrics are NodeMetrics as the framework names resources.
const metrics fwk.EventResource = "nodemetrics.v1alpha1." + slov1alpha1.GroupName

// EventsToRegister names the events after which a node may use less than its thresholds.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	on := func(r fwk.EventResource, actions fwk.ActionType) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: r, ActionType: actions}, QueueingHintFn: p.hint,
		}
	}
	return []fwk.ClusterEventWithHint{
		on(metrics, fwk.Add|fwk.Update|fwk.Delete), on(fwk.Pod, fwk.Update|fwk.Delete),
		on(fwk.Node, fwk.Add|fwk.UpdateNodeAllocatable|fwk.UpdateNodeAnnotation),
	}, nil
}

// hint wakes a pod if the node of the event does not refuse it now. A change of the pod itself wakes it always.
func (p *Plugin) hint(_ klog.Logger, pod *corev1.Pod, old, object any) (fwk.QueueingHint, error) {
	if object == nil {
		object = old
	}
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	name := ""
	switch o := object.(type) {
	case *kube.NodeMetric:
		name = o.Name
	case *corev1.Node:
		name = o.Name
	case *corev1.Pod:
		if o.UID == pod.UID {
			return fwk.Queue, nil
		}
		name = o.Spec.NodeName
	}
	node, _ := p.nodes.Get(name)
	if node == nil {
		return fwk.QueueSkip, nil
	}
	estimated, err := p.loads.Estimate(pod, p.now())
	if err != nil {
		return fwk.QueueSkip, nil //nolint:nilerr // only a change of the pod helps
	}
	has := p.unamplified(node, convert.Pair(node.Status.Allocatable))
	if _, refused := p.refuses(&cycle{
		pod: estimated, workload: p.loads.WorkloadEvicted(pod), now: p.now(),
	}, node, has); refused {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// signature has all that the plugin reads of a pod. Pods with equal signatures get equal answers.
type signature struct {
	// Estimate is what the pod is expected to use.
	Estimate amount.Pair
	// Prod is true for a production pod, Daemon for a pod of a DaemonSet: both select the thresholds.
	Prod, Daemon bool
	// Workload is that of a pod that avoids nodes, else "".
	Workload string
}

// SignPod signs what is read of the pod.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	estimated, err := p.loads.Estimate(pod, time.Time{})
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a pod that cannot be read is not signed")
	}
	s := signature{estimated.Estimate, estimated.Prod, convert.IsOfDaemonSet(pod), p.loads.WorkloadEvicted(pod)}
	return []fwk.SignFragment{{Key: "tenon.sh/load", Value: s}}, nil
}
