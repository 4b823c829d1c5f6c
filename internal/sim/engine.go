package sim

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
)

// engine is the scheduler without a cluster: its profile with every plugin, its cache and its ledgers, and an API server
// that only takes bindings.
type engine struct {
	profile  framework.Framework
	cache    schedulercache.Cache
	snapshot *schedulercache.Snapshot
	store    *kube.Store
	api      *bindings
	logger   klog.Logger
}

// newEngine holds what the world has before any pod of it is tried. It ends with ctx.
func newEngine(ctx context.Context, w *world) (*engine, error) {
	schedulermetrics.Register()
	e := &engine{
		snapshot: schedulercache.NewEmptySnapshot(), store: kube.NewStore(), api: newBindings(), logger: klog.FromContext(ctx),
		cache: schedulercache.New(ctx, nil, false),
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://simulate.invalid", Transport: e.api, QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	if e.profile, err = newProfile(ctx, e, client, factory); err != nil {
		return nil, err
	}
	if err := list(factory, w); err != nil {
		return nil, err
	}
	for _, n := range w.nodes {
		e.store.PutNode(n)
		e.cache.AddNode(e.logger, n)
	}
	for _, t := range w.topologies {
		e.store.PutTopology(t)
	}
	for _, n := range w.numatopologies {
		e.store.PutNumatopology(n)
	}
	for _, p := range w.existing {
		if err := e.hold(p.Pod); err != nil {
			return nil, err
		}
	}
	e.store.MarkSynced()
	return e, nil
}

// newProfile makes the profile that tenon-scheduler has without a configuration file.
func newProfile(ctx context.Context, e *engine, client kubernetes.Interface, factory informers.SharedInformerFactory) (framework.Framework, error) {
	profile, err := app.DefaultProfile()
	if err != nil {
		return nil, err
	}
	registry := frameworkplugins.NewInTreeRegistry()
	unregistered := nodenumaresource.NewMetrics(func(...metrics.Registerable) {})
	if err := registry.Merge(app.Registry(e.store, unregistered, nodenumaresource.NewTracker(e.store, unregistered, time.Now))); err != nil {
		return nil, fmt.Errorf("collect the plugins: %w", err)
	}
	claims, err := noClaims(ctx, client, factory)
	if err != nil {
		return nil, err
	}
	f, err := frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(e.snapshot),
		frameworkruntime.WithSharedDRAManager(claims),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithPodNominator(nobody{}),
		frameworkruntime.WithPodGroupManager(e.cache),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		return nil, fmt.Errorf("make the plugins: %w", err)
	}
	return f, nil
}

// noClaims is what the plugin for resource claims asks; there are none, and no devices.
func noClaims(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory) (fwk.SharedDRAManager, error) {
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client})
	if err != nil {
		return nil, fmt.Errorf("track resource slices: %w", err)
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	return dynamicresources.NewDRAManager(ctx, claims, slices, factory), nil
}

// list fills the caches of informers that are never started.
func list(factory informers.SharedInformerFactory, w *world) error {
	add := func(i cache.SharedIndexInformer, o any) error {
		if err := i.GetIndexer().Add(o); err != nil {
			return fmt.Errorf("list %T: %w", o, err)
		}
		return nil
	}
	for _, n := range w.namespaces {
		if err := add(factory.Core().V1().Namespaces().Informer(), n); err != nil {
			return err
		}
	}
	for _, n := range w.nodes {
		if err := add(factory.Core().V1().Nodes().Informer(), n); err != nil {
			return err
		}
	}
	for _, s := range w.replicaSets {
		if err := add(factory.Apps().V1().ReplicaSets().Informer(), s); err != nil {
			return err
		}
	}
	for _, s := range w.statefulSets {
		if err := add(factory.Apps().V1().StatefulSets().Informer(), s); err != nil {
			return err
		}
	}
	return nil
}

// hold accounts a pod that has a node.
func (e *engine) hold(p *corev1.Pod) error {
	e.store.PutPod(p)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	if err := e.cache.AddPod(e.logger, p); err != nil {
		return fmt.Errorf("account pod %s: %w", klog.KObj(p), err)
	}
	return nil
}

// place runs one scheduling cycle. It returns the pod as bound, or why no node takes it.
func (e *engine) place(ctx context.Context, p *corev1.Pod) (*corev1.Pod, []why.Finding, error) {
	if err := e.cache.UpdateSnapshot(e.logger, e.snapshot); err != nil {
		return nil, nil, fmt.Errorf("take a snapshot: %w", err)
	}
	state := framework.NewCycleState()
	nodes, err := e.feasible(ctx, state, p)
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) == 0 {
		v, err := verdict.Of(ctx, e.profile, p)
		return nil, v.Findings, err
	}
	chosen, err := e.choose(ctx, state, p, nodes)
	if err != nil {
		return nil, nil, err
	}
	bound, findings, err := e.bind(ctx, state, p, chosen)
	if err != nil || bound == nil {
		return nil, findings, err
	}
	return bound, nil, e.hold(bound)
}

// feasible are the nodes that every filter accepts.
func (e *engine) feasible(ctx context.Context, state fwk.CycleState, p *corev1.Pod) ([]fwk.NodeInfo, error) {
	allowed, status, _ := e.profile.RunPreFilterPlugins(ctx, state, p)
	if status.IsRejected() {
		return nil, nil
	}
	if !status.IsSuccess() {
		return nil, fmt.Errorf("prepare the filters for pod %s: %w", klog.KObj(p), status.AsError())
	}
	all, err := e.snapshot.NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("list the snapshot's nodes: %w", err)
	}
	var out []fwk.NodeInfo
	for _, n := range all {
		if !allowed.AllNodes() && !allowed.NodeNames.Has(n.Node().Name) {
			continue
		}
		switch status := e.profile.RunFilterPlugins(ctx, state, p, n); {
		case status.IsSuccess():
			out = append(out, n)
		case !status.IsRejected():
			return nil, fmt.Errorf("filter node %s for pod %s: %w", n.Node().Name, klog.KObj(p), status.AsError())
		}
	}
	return out, nil
}

// choose returns the node with the highest score, the first by name among equals.
func (e *engine) choose(ctx context.Context, state fwk.CycleState, p *corev1.Pod, nodes []fwk.NodeInfo) (string, error) {
	if len(nodes) == 1 {
		return nodes[0].Node().Name, nil
	}
	if status := e.profile.RunPreScorePlugins(ctx, state, p, nodes); !status.IsSuccess() {
		return "", fmt.Errorf("prepare the scores of pod %s: %w", klog.KObj(p), status.AsError())
	}
	scores, status := e.profile.RunScorePlugins(ctx, state, p, nodes)
	if !status.IsSuccess() {
		return "", fmt.Errorf("score pod %s: %w", klog.KObj(p), status.AsError())
	}
	best := slices.MinFunc(scores, func(a, b fwk.NodePluginScores) int {
		if a.TotalScore != b.TotalScore {
			return int(max(-1, min(1, b.TotalScore-a.TotalScore)))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return best.Name, nil
}

// bind reserves and binds as the scheduler does, and reads the Binding that was sent.
func (e *engine) bind(ctx context.Context, state fwk.CycleState, p *corev1.Pod, node string) (*corev1.Pod, []why.Finding, error) {
	n, err := e.snapshot.NodeInfos().Get(node)
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", node, err)
	}
	if status := e.profile.RunReservePluginsReserve(ctx, state, p, node); !status.IsSuccess() {
		e.profile.RunReservePluginsUnreserve(ctx, state, p, node)
		if status.IsRejected() {
			return nil, verdict.Findings(p, n, why.Reserve, status, ""), nil
		}
		return nil, nil, fmt.Errorf("reserve node %s for pod %s: %w", node, klog.KObj(p), status.AsError())
	}
	for _, step := range []func(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status{
		e.profile.RunPreBindPreFlights, e.profile.RunPreBindPlugins, e.profile.RunBindPlugins,
	} {
		if status := step(ctx, state, p, node); !status.IsSuccess() && !status.IsSkip() {
			return nil, nil, fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(p), node, status.AsError())
		}
	}
	annotations, sent := e.api.take(p.Namespace, p.Name)
	if !sent {
		return nil, nil, fmt.Errorf("bind pod %s to node %s: no plugin sent a binding", klog.KObj(p), node)
	}
	bound := p.DeepCopy()
	bound.Spec.NodeName = node
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&bound.ObjectMeta, key, value)
	}
	return bound, nil, nil
}

// nobody nominates no pods: nothing is preempted.
type nobody struct{}

func (nobody) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nobody) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (nobody) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo)      {}
func (nobody) NominatedPodsForNode(string) []fwk.PodInfo                     { return nil }

var (
	_ fwk.PodNominator  = nobody{}
	_ http.RoundTripper = (*bindings)(nil)
)

// quiet is a context whose logger says nothing: what happened is in the result.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
