package nodestrategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what a controller works with.
type Options struct {
	Nodes   cache.SharedIndexInformer // with the managed fields that convert.WithOwned keeps
	Metrics cache.SharedIndexInformer // of slo.NodeMetric
	SLOs    cache.SharedIndexInformer // of slo.NodeSLO
	Config  cache.SharedIndexInformer // of the ConfigMap
	Pods    cache.SharedIndexInformer
	// PodsOn returns the pods that are bound to a node, without the keys that do not count.
	PodsOn func(node string) []*corev1.Pod
	Client dynamic.Interface
	Events events.EventRecorder
	Clock  clock.WithTicker // nil is the real one
}

// Controller writes Nodes, NodeMetrics and NodeSLOs. One at a time may run: the leader's.
type Controller struct {
	Options
	config kube.SLOConfig
	queue  workqueue.TypedRateLimitingInterface[string]
	bad    map[string]string // by node: what is wrong with what is written on it
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Controller{Options: o, bad: map[string]string{}}
}

// Start works until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: c.Clock})
	defer c.queue.ShutDown()
	c.config.Changed = c.changed(ctx)
	byPod := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			c.queue.AddAfter(p.Spec.NodeName, time.Second) // pods come in groups
		}
	}
	pods := cache.ResourceEventHandlerFuncs{AddFunc: byPod, DeleteFunc: byPod, UpdateFunc: func(old, object any) {
		before, _ := old.(*corev1.Pod)
		if p, ok := object.(*corev1.Pod); ok && before != nil && (before.Spec.NodeName != p.Spec.NodeName ||
			convert.Ended(before) != convert.Ended(p)) {
			byPod(p)
		}
	}}
	nodes, configured := kube.ByName(c.queue.Add), false
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{c.Config, c.config.Handler()}, {c.Nodes, nodes}, {c.Metrics, nodes}, {c.SLOs, nodes}, {c.Pods, pods}} {
		registration, err := f.informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("follow Nodes and their strategy: %w", err)
		}
		defer func() { _ = f.informer.RemoveEventHandler(registration) }()
		if !configured { // a Node must not lose what it shows before the ConfigMap is known
			cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
			configured = true
		}
	}
	kube.Work(ctx, c.queue, "Strategy of a node not followed", c.follow)
	return nil
}

// changed looks at all Nodes again, and reports what is wrong with a ConfigMap.
func (c *Controller) changed(ctx context.Context) func(*corev1.ConfigMap, error) {
	return func(m *corev1.ConfigMap, problem error) {
		c.queue.Add(noteKey)
		if problem != nil {
			klog.FromContext(ctx).Error(problem, "ConfigMap not usable; the last one that was is kept")
			c.report(m, event.StrategyInvalid, problem.Error())
			return
		}
		if config := c.config.Get(); config != nil && len(config.Ignored) > 0 {
			c.report(m, event.StrategyIgnored, "have no effect: "+strings.Join(config.Ignored, ", "))
		}
		for _, name := range c.Nodes.GetStore().ListKeys() {
			c.queue.Add(name)
		}
	}
}

func (c *Controller) report(about runtime.Object, e event.Reason, text string) {
	c.Events.Eventf(about, nil, e.Type(), e.String(), "Follow", "%s", text[:min(len(text), 1000)])
}

// noteKey is the key of the ConfigMap in the queue, which is the name of no Node.
const noteKey = ""

// note writes into the ConfigMap what is wrong with it, or that this is the last version without a problem.
func (c *Controller) note(ctx context.Context) error {
	for _, object := range c.Config.GetStore().List() {
		m, ok := object.(*corev1.ConfigMap)
		if !ok || m.Name != sloconfig.Name {
			continue
		}
		notes := map[string]any{}
		if _, problem := sloconfig.Parse(m.Data); problem != nil {
			notes[annotation.StrategyProblem] = problem.Error()
		} else if data, err := json.Marshal(m.Data); err == nil {
			notes[annotation.StrategyProblem], notes[annotation.LastValidStrategy] = nil, string(data)
		}
		for key, value := range notes {
			if text, found := m.Annotations[key]; found && text == value || !found && value == nil {
				delete(notes, key)
			}
		}
		if len(notes) == 0 {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
		if err != nil {
			return err
		}
		maps := c.Client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(m.Namespace)
		_, err = maps.Patch(ctx, m.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: convert.ColocationManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("note what is wrong with ConfigMap %s: %w", m.Name, err)
		}
	}
	return nil
}

// follow makes the objects of a Node what its strategy says. It returns when to look again, 0 for at the next event.
// The failure of one object does not keep the others from being written.
func (c *Controller) follow(ctx context.Context, name string) (again time.Duration, err error) {
	if name == noteKey {
		return 0, c.note(ctx)
	}
	node := kube.Get[corev1.Node](c.Nodes, name)
	if node == nil {
		delete(c.bad, name)
		return 0, nil
	}
	config := c.config.Get()
	strategy, problem := config.Strategy(node)
	switch {
	case problem == nil:
		delete(c.bad, name)
	case c.bad[name] != problem.Error():
		c.bad[name] = problem.Error()
		c.report(node, event.StrategyInvalid, problem.Error())
	}
	metric, shown := kube.Get[slo.NodeMetric](c.Metrics, name), kube.Get[slo.NodeSLO](c.SLOs, name)
	var failed []error
	spec := metricSpec(&strategy)
	if metric == nil || !equality.Semantic.DeepEqual(metric.Spec, spec) {
		failed = append(failed, c.applySpec(ctx, node, slo.NodeMetrics(), slo.NodeMetricKind, spec))
	}
	want, err := config.NodeSLO(node)
	failed = append(failed, err)
	if shown == nil {
		shown = &slo.NodeSLO{} // one that says nothing is not made
	}
	if err == nil && !equality.Semantic.DeepEqual(shown.Spec, want) {
		failed = append(failed, c.applySpec(ctx, node, slo.NodeSLOs(), slo.NodeSLOKind, want))
	}
	if problem != nil {
		strategy.Enable = new(false)
	}
	again, err = c.grant(ctx, node, metric, &strategy)
	return again, errors.Join(append(failed, err)...)
}

// grant makes a Node show what batch and mid pods may have of it.
func (c *Controller) grant(ctx context.Context, node *corev1.Node, metric *slo.NodeMetric, s *sloconfig.Strategy) (
	again time.Duration, err error,
) {
	now := c.Clock.Now()
	accounts, ok := convert.Reclaim(s, node, metric, c.PodsOn(node.Name), now)
	shown := convert.Shown(node)
	if !ok {
		if shown.Since.IsZero() {
			return 0, nil
		}
		return 0, c.show(ctx, node, corev1.ResourceList{})
	}
	strategy := convert.Colocation(s)
	amounts, write, again := strategy.Next(accounts, shown, now)
	expires := metric.Status.UpdateTime.Add(strategy.Degrade).Sub(now) + time.Second
	if again = min(again, expires); again <= 0 {
		again = expires
	}
	if !write {
		return again, nil
	}
	return again, c.show(ctx, node, convert.Granted(amounts))
}

// show writes amounts into a Node. An empty list is written too: an API server that finds none takes the kubelet's
// amounts away together with those of this manager, where the Node has had them since it was created.
func (c *Controller) show(ctx context.Context, node *corev1.Node, list corev1.ResourceList) error {
	return c.apply(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node.Name, "uid": node.UID},
		"status": map[string]any{"capacity": list, "allocatable": list},
	}, "status")
}

// applySpec writes the spec of an object with the name of a Node, which goes with it. A spec without fields is left
// out: the API server makes it null, and refuses that, where the object has had fields.
func (c *Controller) applySpec(ctx context.Context, node *corev1.Node, resource schema.GroupVersionResource,
	kind string, spec any,
) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	object := map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{
			"name": node.Name,
			"ownerReferences": []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
	}
	if string(text) != "{}" {
		object["spec"] = json.RawMessage(text)
	}
	return c.apply(ctx, resource, object, "")
}

// apply writes all that an object is to have from this controller, and removes what it has from it besides. Fields of
// another manager are left to it.
func (c *Controller) apply(ctx context.Context, resource schema.GroupVersionResource, object map[string]any,
	subresource string,
) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	_, err = c.Client.Resource(resource).Patch(ctx, name, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: convert.ColocationManager}, strings.Fields(subresource)...)
	switch {
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).Info("Object left to another manager of its fields", "resource", resource.Resource,
			"name", name, "reason", err.Error())
		return nil
	case apierrors.IsNotFound(err): // the Node is gone, or the kind is not installed
		return nil
	}
	return err
}

// metricSpec is how the use of a node is measured.
func metricSpec(s *sloconfig.Strategy) slo.NodeMetricSpec {
	return slo.NodeMetricSpec{CollectPolicy: &slo.NodeMetricCollectPolicy{
		AggregateDurationSeconds: s.MetricAggregateDurationSeconds,
		ReportIntervalSeconds:    s.MetricReportIntervalSeconds,
		NodeAggregatePolicy:      &slo.AggregatePolicy{Durations: slices.Clone(s.MetricAggregatePolicy.Durations)},
		NodeMemoryCollectPolicy:  s.MetricMemoryCollectPolicy,
	}}
}
