package ranking

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/sched/upstream/topologyspread"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// cluster is a scheduler without API server and queue: real plugins, the real cache, and the cycle of the core in
// short.
type cluster struct {
	t        testing.TB
	rnd      *rand.Rand
	cache    schedulercache.Cache
	snapshot *schedulercache.Snapshot
	changes  *hooks.Changes
	store    *kube.Store
	loads    *kube.Loads
	now      time.Time
	factory  informers.SharedInformerFactory
	registry frameworkruntime.Registry
	profiles map[string]*Profile
	sampled  map[string]bool // profiles that ask a part of the nodes
	start    int             // of the next sample

	nodes   map[string]*corev1.Node
	pods    map[types.UID]*corev1.Pod
	queue   podqueue.Queue
	waiting []*corev1.Pod // pods of the queue, which are nominated to nodes
	made    int

	// Of benchmarks: which pods come, how many have come, of how many nodes upstream takes a sample, and whether nodes
	// report what they use; then pods are reserved, and counted as bound.
	mix     mix
	cycles  int
	find    int
	reports bool

	hinted, spread, whole int // pods placed by a ranking, by one with spreading, by a pass over the nodes
}

// sampleOf is how many feasible nodes a profile that samples looks for.
const sampleOf = 7

// fed is a cache in front of which the accounts of nodes are, as in a scheduler.
type fed struct {
	schedulercache.Cache
	store *kube.Store
}

func (f *fed) AddNode(logger klog.Logger, node *corev1.Node) {
	f.store.PutNode(node)
	f.Cache.AddNode(logger, node)
}

func (f *fed) UpdateNode(logger klog.Logger, old, node *corev1.Node) {
	f.store.PutNode(node)
	f.Cache.UpdateNode(logger, old, node)
}

func (f *fed) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	f.store.RemoveNode(node.Name)
	return f.Cache.RemoveNode(logger, node)
}

func (f *fed) AddPod(logger klog.Logger, pod *corev1.Pod) error {
	f.store.PutPod(pod)
	return f.Cache.AddPod(logger, pod)
}

func (f *fed) UpdatePod(logger klog.Logger, old, pod *corev1.Pod) error {
	f.store.PutPod(pod)
	return f.Cache.UpdatePod(logger, old, pod)
}

func (f *fed) RemovePod(logger klog.Logger, pod *corev1.Pod) error {
	f.store.RemovePod(pod)
	return f.Cache.RemovePod(logger, pod)
}

func newCluster(t testing.TB, seed uint64) *cluster {
	t.Helper()
	return newClusterBy(t, seed, true)
}

// newClusterBy makes a cluster with or without LoadAwareScheduling.
func newClusterBy(t testing.TB, seed uint64, load bool) *cluster {
	t.Helper()
	c := &cluster{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), changes: &hooks.Changes{}, store: kube.NewStore(),
		loads: kube.NewLoads(), now: time.Unix(0, 0),
		snapshot: schedulercache.NewEmptySnapshot(),
		factory:  informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		profiles: map[string]*Profile{}, sampled: map[string]bool{"part": true},
		nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{},
	}
	less := func(a, b fwk.QueuedEntityInfo) bool { return false }
	c.queue = (&hooks.Events{}).Watch(takeable(t, queue.NewTestQueue(t.Context(), less,
		queue.WithPodLister(c.factory.Core().V1().Pods().Lister()))), c.changes)
	c.cache = &fed{c.changes.Watch(schedulercache.New(t.Context(), nil, false, false), c.store), c.store}
	created := func(all ...basemetrics.Registerable) {
		for _, m := range all {
			m.Create(nil)
		}
	}
	registry := frameworkplugins.NewInTreeRegistry()
	c.registry = registry
	tracker := follow.NewTracker(c.store, follow.NewMetrics(created), time.Now)
	registry[nodenumaresource.Name] = nodenumaresource.Factory(
		placement.NewDecisions(c.store, placement.NewMetrics(created), tracker))
	registry[topologyspread.Name] = topologyspread.New
	c.loads.OnChange(c.changes.Node, c.changes.Shown)
	registry[loadaware.Name] = loadaware.Factory(c.loads, func() time.Time { return c.now })
	for _, name := range []string{"all", "part"} {
		cfg := profileOf(t, name, load)
		f, err := c.framework(cfg, c.snapshot)
		testkit.Check(t, err)
		if c.profiles[name], err = NewProfile(t.Context(), f, cfg, c.changes, nodenumaresource.Name,
			loadaware.Name); err != nil {
			t.Fatal(err)
		}
	}
	for range 16 {
		c.addNode()
	}
	return c
}

// framework makes a profile on a snapshot.
func (c *cluster) framework(cfg *config.KubeSchedulerProfile, nodes fwk.SharedLister) (framework.Framework, error) {
	f, err := frameworkruntime.NewFramework(c.t.Context(), c.registry, cfg,
		frameworkruntime.WithInformerFactory(c.factory),
		frameworkruntime.WithSnapshotSharedLister(nodes),
		frameworkruntime.WithMutableSnapshotLister(hooks.Immutable{SharedLister: nodes}),
		frameworkruntime.WithPodNominator(c.queue),
	)
	if err == nil {
		c.t.Cleanup(func() { _ = f.Close() })
	}
	return f, err
}

// profileOf is the default profile with our plugins; the one that samples packs nodes and weighs spreading otherwise.
func profileOf(t testing.TB, name string, load bool) *config.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	p := &cfg.Profiles[0]
	p.SchedulerName = name
	multi := &p.Plugins.MultiPoint
	var enabled []config.Plugin
	for _, e := range multi.Enabled {
		switch e.Name {
		case names.DynamicResources, names.NodeVolumeLimits: // need managers of objects that are not here
			continue
		case names.PodTopologySpread:
			e.Name = topologyspread.Name
			if name == "part" {
				e.Weight = 5
			}
		case names.DefaultBinder:
			enabled = append(enabled, config.Plugin{Name: nodenumaresource.Name, Weight: 2})
			if name == "all" && load {
				enabled = append(enabled, config.Plugin{Name: loadaware.Name, Weight: 3})
			}
		}
		enabled = append(enabled, e)
	}
	multi.Enabled = enabled
	for i := range p.PluginConfig {
		switch args := p.PluginConfig[i].Args.(type) {
		case *config.PodTopologySpreadArgs:
			p.PluginConfig[i].Name = topologyspread.Name
		case *config.NodeResourcesFitArgs:
			if name == "part" {
				args.ScoringStrategy.Type = config.MostAllocated
			}
		}
	}
	p.PluginConfig = append(p.PluginConfig, config.PluginConfig{
		Name: nodenumaresource.Name, Args: &runtime.Unknown{
			Raw:         []byte(`{"volcanoScore":true}`),
			ContentType: runtime.ContentTypeJSON,
		},
	})
	return p
}

func (c *cluster) addNode() {
	c.made++
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", c.made), Labels: map[string]string{}}}
	n.Labels[corev1.LabelHostname] = n.Name
	n.Labels[corev1.LabelArchStable] = "amd64"
	c.relabel(n)
	n.Status.Allocatable = object.List("cpu", "16", "memory", "32Gi", "pods", "20")
	c.nodes[n.Name] = n
	c.cache.AddNode(klog.Background(), n)
	c.putTopology(n.Name)
}

// relabel draws what of a node pods are placed by.
func (c *cluster) relabel(n *corev1.Node) {
	delete(n.Labels, corev1.LabelTopologyZone)
	if zone := c.rnd.IntN(5); zone < 4 {
		n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("z%d", zone)
	}
	n.Labels["disk"] = []string{"ssd", "hdd"}[c.rnd.IntN(2)]
	n.Spec.Unschedulable = c.rnd.IntN(8) == 0
	n.Spec.Taints = nil
	if c.rnd.IntN(3) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	if c.rnd.IntN(8) == 0 {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
	}
	n.Status.Images = nil
	if c.rnd.IntN(2) == 0 {
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"image:latest"}, SizeBytes: 700 << 20}}
	}
}

func (c *cluster) putTopology(node string) {
	if c.rnd.IntN(3) == 0 {
		c.store.RemoveTopology(node)
		return
	}
	numa := 1 + c.rnd.IntN(2)
	m := grid.Machine{Arch: "amd64", Nodes: numa, Cores: 8 / numa, Threads: 2}.Build(c.t)
	topology := object.Topology(node, m, nil)
	if c.rnd.IntN(15) == 0 { // from then on, until it goes, Guaranteed pods concern our plugin
		topology.Annotations[annotation.KubeletCPUManagerPolicy] = `{"policy":"static"}`
	}
	c.store.PutTopology(topology)
}

// workloads is how many kinds of pods there are.
const workloads = 20

// pod makes the next pod of a workload.
func (c *cluster) pod(workload int) *corev1.Pod {
	c.made++
	name := fmt.Sprintf("pod-%d", c.made)
	app := fmt.Sprintf("app-%d", workload)
	p := object.Pod(name, object.Label("app", app), object.Scheduler([]string{"all", "part"}[workload%2]),
		object.Container("c", "image"), object.Requests("cpu", fmt.Sprintf("%dm", 100+100*workload), "memory", "1Gi"))
	owned := func(kind string) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: app, Controller: &yes}}
	}
	constraint := func(key string, when corev1.UnsatisfiableConstraintAction, skew int32) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		})
	}
	exclusive := func(n int64) { object.Both("cpu", fmt.Sprint(n), "memory", "1Gi")(p) }
	switch workload / 2 {
	case 0: // a bare pod; a Guaranteed one, which concerns our plugin while some kubelet is static
		if workload == 1 {
			exclusive(2)
		}
	case 1:
		owned("ReplicaSet")
	case 2:
		owned("StatefulSet")
		p.Labels["statefulset.kubernetes.io/pod-name"] = name
	case 3:
		constraint(corev1.LabelTopologyZone, corev1.ScheduleAnyway, 1)
		constraint(corev1.LabelHostname, corev1.ScheduleAnyway, 2)
		honor := corev1.NodeInclusionPolicyHonor
		p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = &honor
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	case 4:
		constraint("disk", corev1.ScheduleAnyway, 1)
		p.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"version"}
		p.Labels["version"] = strconv.Itoa(c.rnd.IntN(2))
	case 5:
		constraint(corev1.LabelTopologyZone, corev1.DoNotSchedule, 2)
	case 6:
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 10,
				Preference: corev1.NodeSelectorTerm{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: "disk", Operator: corev1.NodeSelectorOpIn,
						Values: []string{"ssd"},
					}},
				},
			}},
		}}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(8000 + workload)}}
	case 7:
		exclusive(2)
		p.Labels[annotation.QoSClass] = "LSR"
	case 8:
		exclusive(2)
		p.Annotations = map[string]string{annotation.VolcanoTopologyPolicy: "restricted"}
	case 9:
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		if c.rnd.IntN(4) == 0 { // keeps away from another workload, whose pods go the whole way while it is there
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
					Weight: 5,
					PodAffinityTerm: corev1.PodAffinityTerm{
						TopologyKey:   corev1.LabelTopologyZone,
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app-13"}},
					},
				}},
			}}
		}
	}
	return p
}

// scored is what a pass of upstream's own code over some nodes says, by node: the total and the columns of the plugins,
// weighted and before they are normalized.
func (c *cluster) scored(p *Profile, pod *corev1.Pod, among sets.Set[string],
) (totals map[string]int64, columns, raw map[string]map[string]int64) {
	c.t.Helper()
	f := p.Framework
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(c.t.Context(), state, pod); !status.IsSuccess() {
		c.t.Fatal(status)
	}
	all, err := c.snapshot.NodeInfos().List()
	if err != nil {
		c.t.Fatal(err)
	}
	var feasible []fwk.NodeInfo
	for _, n := range all {
		if (among == nil || among.Has(n.Node().Name)) &&
			f.RunFilterPluginsWithNominatedPods(c.t.Context(), state, pod, n).IsSuccess() {
			feasible = append(feasible, n)
		}
	}
	totals, columns, raw = map[string]int64{}, map[string]map[string]int64{}, map[string]map[string]int64{}
	if len(feasible) == 0 {
		return totals, columns, raw
	}
	if status := f.RunPreScorePlugins(c.t.Context(), state, pod, feasible); !status.IsSuccess() {
		c.t.Fatal(status)
	}
	scores, status := f.RunScorePlugins(c.t.Context(), state, pod, feasible)
	if !status.IsSuccess() {
		c.t.Fatal(status)
	}
	for _, s := range scores {
		totals[s.Name], columns[s.Name], raw[s.Name] = s.TotalScore, map[string]int64{}, map[string]int64{}
		for _, column := range s.Scores {
			columns[s.Name][column.Name] = column.Score
		}
	}
	for _, n := range feasible {
		for name := range columns[n.Node().Name] {
			if p.asked[name] == nil { // see addScore: its scores are those of pods without a ranking
				if columns[n.Node().Name][name] != 0 {
					c.t.Fatalf("%s scores a pod that has a ranking", name)
				}
				delete(columns[n.Node().Name], name)
				continue
			}
			raw[n.Node().Name][name], status = p.asked[name].Score(c.t.Context(), state, pod, n)
			if !status.IsSuccess() {
				c.t.Fatal(status)
			}
		}
	}
	return totals, columns, raw
}

// place is the scheduling cycle of the core. It compares what a ranking proposes with a pass over the nodes.
func (c *cluster) place(ctx context.Context, pod *corev1.Pod) (node string, state fwk.CycleState) {
	c.t.Helper()
	if err := c.cache.UpdateSnapshot(klog.Background(), c.snapshot); err != nil {
		c.t.Fatal(err)
	}
	p := c.profiles[pod.Spec.SchedulerName]
	state = framework.NewCycleState()
	if _, status, _ := p.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		c.t.Fatal(status)
	}
	signature := p.SignPod(ctx, pod)
	if hint := p.GetNodeHint(ctx, pod, signature, state, 0); hint != "" {
		var among sets.Set[string]
		if r := p.used; !r.complete {
			among = sets.New[string]()
			for _, i := range r.members {
				among.Insert(p.names[i])
			}
		}
		totals, columns, raw := c.scored(p, pod, among)
		best := slices.Max(slices.Collect(maps.Values(totals)))
		proposed, feasible, evaluated := p.Proposed(0)
		if got, fits := totals[hint]; !fits || got != best || got != proposed[0].TotalScore {
			c.t.Fatalf("pod %s (%v) of profile %s: the ranking proposes %s with %+v; a pass says %d of %d among %v",
				pod.Name, pod.Labels, pod.Spec.SchedulerName, hint, proposed, got, best, totals)
		}
		if feasible != len(totals) || evaluated != len(p.used.members) || len(proposed) != min(feasible, 2) {
			c.t.Fatalf("pod %s: %d of %d nodes fit, with scores of %d; a pass finds %d of %d", pod.Name, feasible,
				evaluated, len(proposed), len(totals), len(p.used.members))
		}
		all, _, _ := p.Proposed(len(totals) + 1)
		if len(all) != len(totals) {
			c.t.Fatalf("pod %s: scores of %d nodes, want those of all %d", pod.Name, len(all), len(totals))
		}
		for i, s := range all {
			got := map[string]int64{}
			for _, column := range s.Scores {
				got[column.Name] = column.Score
			}
			said := p.Raw(ctx, state, pod, s.Name)
			if !maps.Equal(got, columns[s.Name]) || !maps.Equal(said, raw[s.Name]) || s.TotalScore != totals[s.Name] ||
				i > 0 && all[i-1].TotalScore < s.TotalScore {
				c.t.Fatalf("pod %s on %s: the ranking has %v of %v, a pass %v of %v", pod.Name, s.Name, got, said,
					columns[s.Name], raw[s.Name])
			}
		}
		delete(totals, hint)
		for _, next := range proposed[1:] {
			most := slices.Max(slices.Collect(maps.Values(totals)))
			if next.TotalScore != totals[next.Name] || next.TotalScore != most {
				c.t.Fatalf("pod %s: the next best is %s with %d, of %v", pod.Name, next.Name, next.TotalScore, totals)
			}
		}
		p.StoreScheduleResults(ctx, signature, hint, hint, nil, 0)
		c.hinted++
		if p.spread != nil {
			c.spread++
		}
		return hint, state
	}
	all, err := c.snapshot.NodeInfos().List()
	if err != nil {
		c.t.Fatal(err)
	}
	var feasible []fwk.NodeInfo
	for i := range all {
		n := all[(c.start+i)%len(all)]
		if p.RunFilterPluginsWithNominatedPods(ctx, state, pod, n).IsSuccess() {
			feasible = append(feasible, n)
		}
		if c.sampled[p.ProfileName()] && len(feasible) == sampleOf {
			break
		}
	}
	c.start++
	c.whole++
	switch len(feasible) {
	case 0:
		return "", state
	case 1:
		node = feasible[0].Node().Name
		p.StoreScheduleResults(ctx, signature, "", node, nil, 0)
		return node, state
	}
	if status := p.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		c.t.Fatal(status)
	}
	scores, status := p.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		c.t.Fatal(status)
	}
	node = slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) }).Name
	p.StoreScheduleResults(ctx, signature, "", node, nil, 0)
	return node, state
}

// schedule places and binds a pod; one Binding in ten fails.
func (c *cluster) schedule(ctx context.Context, pod *corev1.Pod) {
	c.t.Helper()
	node, state := c.place(ctx, pod)
	if node == "" {
		return
	}
	f, logger := c.profiles[pod.Spec.SchedulerName], klog.Background()
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	if err := c.cache.AssumePod(logger, assumed); err != nil {
		c.t.Fatal(err)
	}
	reserved := f.RunReservePluginsReserve(ctx, state, assumed, node)
	if !reserved.IsSuccess() || c.rnd.IntN(10) == 0 {
		f.RunReservePluginsUnreserve(ctx, state, assumed, node)
		if err := c.cache.ForgetPod(logger, assumed); err != nil {
			c.t.Fatal(err)
		}
		return
	}
	entry, held := c.store.View(node).Entry(string(pod.UID))
	bound := assumed.DeepCopy()
	if held && entry.CPUList != "" {
		status := annotation.ResourceStatus{CPUSet: entry.CPUList}
		bound.Annotations = map[string]string{annotation.ResourceStatusKey: annotation.Encode(status)}
	}
	if err := c.cache.AddPod(logger, bound); err != nil {
		c.t.Fatal(err)
	}
	c.pods[bound.UID] = bound
}

// any returns one of a map's keys.
func anyOf[K ~string, V any](c *cluster, m map[K]V) (K, bool) {
	if len(m) == 0 {
		return "", false
	}
	return slices.Sorted(maps.Keys(m))[c.rnd.IntN(len(m))], true
}

// disturb changes something that is not a pod being placed.
func (c *cluster) disturb() {
	c.t.Helper()
	logger := klog.Background()
	kind := c.rnd.IntN(20)
	c.now = c.now.Add(time.Duration(c.rnd.IntN(1000)) * time.Millisecond)
	if len(c.pods) > 60 && c.rnd.IntN(2) > 0 {
		kind = 0
	}
	switch kind {
	case 0, 1, 2, 3, 4: // a pod ends, or is being deleted, or gets another label
		uid, ok := anyOf(c, c.pods)
		if !ok {
			return
		}
		was := c.pods[uid]
		now := was.DeepCopy()
		switch kind {
		case 3:
			now.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		case 4:
			now.Labels["app"] = fmt.Sprintf("app-%d", c.rnd.IntN(workloads))
		default:
			if err := c.cache.RemovePod(logger, was); err != nil {
				c.t.Fatal(err)
			}
			c.loads.RemovePod(uid)
			delete(c.pods, uid)
			return
		}
		if err := c.cache.UpdatePod(logger, was, now); err != nil {
			c.t.Fatal(err)
		}
		c.pods[uid] = now
	case 5:
		if len(c.nodes) < 24 && c.rnd.IntN(4) == 0 {
			c.addNode()
			return
		}
		fallthrough
	case 9:
		name, _ := anyOf(c, c.nodes)
		c.putTopology(name)
	case 6:
		name, _ := anyOf(c, c.nodes)
		if len(c.nodes) < 8 || c.rnd.IntN(4) > 0 {
			return
		}
		for uid, p := range c.pods {
			if p.Spec.NodeName == name {
				_ = c.cache.RemovePod(logger, p)
				c.loads.RemovePod(uid)
				delete(c.pods, uid)
			}
		}
		if err := c.cache.RemoveNode(logger, c.nodes[name]); err != nil {
			c.t.Fatal(err)
		}
		delete(c.nodes, name)
	case 7, 8: // cordoned, relabelled, tainted
		name, _ := anyOf(c, c.nodes)
		was := c.nodes[name]
		now := was.DeepCopy()
		c.relabel(now)
		c.cache.UpdateNode(logger, was, now)
		c.nodes[name] = now
	case 10, 11:
		services := c.factory.Core().V1().Services().Informer().GetIndexer()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s-%d", c.rnd.IntN(6))},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": fmt.Sprintf("app-%d",
				c.rnd.IntN(workloads))}},
		}
		if kind == 10 {
			_ = services.Delete(s)
		} else {
			_ = services.Add(s)
		}
	case 12, 13:
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("app-%d", c.rnd.IntN(workloads))}
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": meta.Name}}
		if kind == 12 {
			_ = c.factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(&appsv1.ReplicaSet{
				ObjectMeta: meta,
				Spec:       appsv1.ReplicaSetSpec{Selector: selector},
			})
		} else {
			_ = c.factory.Apps().V1().StatefulSets().Informer().GetIndexer().Add(&appsv1.StatefulSet{
				ObjectMeta: meta,
				Spec:       appsv1.StatefulSetSpec{Selector: selector},
			})
		}
	case 14, 15:
		c.renominate(c.rnd.IntN(len(c.waiting)))
	case 16, 17, 18:
		name, _ := anyOf(c, c.nodes)
		c.report(name)
	case 19: // a node's own thresholds
		name, _ := anyOf(c, c.nodes)
		was := c.nodes[name]
		now := was.DeepCopy()
		now.Annotations = map[string]string{annotation.UsageThresholdsKey: fmt.Sprintf(
			`{"usageThresholds":{"cpu":%d}}`, 20+c.rnd.IntN(80))}
		if c.rnd.IntN(2) == 0 {
			now.Annotations = nil
		}
		c.cache.UpdateNode(logger, was, now)
		c.nodes[name] = now
	}
}

// report makes a report of a node, with a part of its pods, or removes the one that it has.
func (c *cluster) report(node string) {
	m := &kube.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: node}, Report: &load.Report{
		Updated: c.now, Interval: time.Minute, Pods: map[string]load.PodUse{},
		Use: &amount.Pair{c.rnd.Int64N(8000), c.rnd.Int64N(16 << 30)},
	}}
	if c.rnd.IntN(30) == 0 {
		c.loads.RemoveMetric(m)
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[uid]; p.Spec.NodeName == node && c.rnd.IntN(3) > 0 {
			use := amount.Pair{c.rnd.Int64N(1000), 1 << 20}
			m.Report.Pods[p.Namespace+"/"+p.Name] = load.PodUse{Use: use, Prod: true}
		}
	}
	c.loads.PutMetric(m)
}

// takeable returns a queue of upstream as Tenon uses it.
func takeable(t testing.TB, q queue.SchedulingQueue) podqueue.Queue {
	t.Helper()
	out, err := podqueue.New(q)
	testkit.Check(t, err)
	return out
}

// wait puts a pod into the queue that asks for so many CPUs.
func (c *cluster) wait(cpus string) {
	p := c.pod(0)
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpus)
	_ = c.factory.Core().V1().Pods().Informer().GetIndexer().Add(p)
	c.queue.Add(c.t.Context(), p)
	c.waiting = append(c.waiting, p)
}

// nominate nominates a waiting pod to a node.
func (c *cluster) nominate(i int, node string) {
	c.t.Helper()
	info, err := framework.NewPodInfo(c.waiting[i])
	if err != nil {
		c.t.Fatal(err)
	}
	to := &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
	c.queue.AddNominatedPod(klog.Background(), info, to)
}

// leave takes a waiting pod out of the queue while f runs, as a round of its gang does.
func (c *cluster) leave(i int, f func()) {
	c.t.Helper()
	info := c.queue.Take(klog.Background(), c.waiting[i])
	f()
	if err := c.queue.AddUnschedulablePodIfNotPresent(klog.Background(), info, c.queue.SchedulingCycle()); err != nil {
		c.t.Fatal(err)
	}
}

// renominate changes where a waiting pod is nominated, or how it counts there. No node changes.
func (c *cluster) renominate(i int) {
	c.t.Helper()
	switch c.rnd.IntN(6) {
	case 0:
		c.queue.DeleteNominatedPodIfExists(c.waiting[i])
	case 1:
		c.leave(i, func() { c.schedule(c.t.Context(), c.pod(c.rnd.IntN(workloads))) })
	case 2:
		was := c.waiting[i]
		now := was.DeepCopy()
		now.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(
			[]string{"2", "12"}[c.rnd.IntN(2)])
		c.queue.Update(c.t.Context(), was, now)
		c.waiting[i] = now
	default:
		name, _ := anyOf(c, c.nodes)
		c.nominate(i, name)
	}
}

func TestARankingTakesTheNodeThatAPassOverTheNodesWouldTake(t *testing.T) {
	stepsOf(t, 23, 1_000) // images go from a node between two changes of another one
	c := stepsOf(t, 1, 10_000)
	t.Logf("%d pods by a ranking, %d of them spread, %d by a pass", c.hinted, c.spread, c.whole)
	if c.hinted < 2000 || c.spread < 500 || c.whole < 500 {
		t.Errorf("rankings placed %d pods, %d of them spread, a pass %d: too few for the steps to mean anything",
			c.hinted, c.spread, c.whole)
	}
}

// stepsOf places and disturbs, in an order that follows from the seed.
func stepsOf(t *testing.T, seed uint64, steps int) *cluster {
	t.Helper()
	c := newCluster(t, seed)
	c.wait("12")
	c.wait("12")
	recent := [3]int{} // workloads that follow each other for a while: their rankings are behind by few changes
	for range steps {
		if c.rnd.IntN(10) == 0 {
			recent[c.rnd.IntN(len(recent))] = c.rnd.IntN(workloads)
		}
		switch disturb := c.rnd.IntN(3) == 0; {
		case disturb || len(c.pods) > 100: // else nodes are full, and no node is left to choose
			c.disturb()
		default:
			c.schedule(t.Context(), c.pod(recent[c.rnd.IntN(len(recent))]))
		}
	}
	return c
}

// TestWorkloadsWithEqualPodsShareARanking: each has its own spread beside it, and the first pod of a workload needs no
// pass over the nodes once another one has a ranking.
func TestWorkloadsWithEqualPodsShareARanking(t *testing.T) {
	c := newCluster(t, 1)
	c.prepare(100, mix{owners: 10}, -1) // a ranking of 50, for as many pods
	for i := range 30 {
		c.cycle(true)
		if c.hinted != i {
			t.Fatalf("rankings placed %d of %d pods, want all but the first", c.hinted, i+1)
		}
	}
	if got := c.profiles["all"].rankings.Len(); got != 12 {
		t.Errorf("%d families, rankings and spreads, want 1, 1 and 10", got)
	}
}

// TestASizeThatComesForTheFirstTimeNeedsNoPass: it is placed among the nodes of the last pass for another size, unless
// too few of them have room.
func TestASizeThatComesForTheFirstTimeNeedsNoPass(t *testing.T) {
	c := newCluster(t, 1)
	c.prepare(100, mix{sizes: 30}, -1) // a sample of 50, for as many pods
	for i := range 30 {
		if c.cycle(true); c.hinted < i-1 {
			t.Fatalf("rankings placed %d of %d pods, want all but the first two", c.hinted, i+1)
		}
	}
	c.mix = mix{sizes: 1}
	r := c.profiles["all"].used
	for _, m := range r.members[:len(r.members)/3] { // no room for 31 CPUs is left there
		small := c.nextOfMix()
		small.Name, small.Spec.NodeName = fmt.Sprint("small-", m), c.profiles["all"].names[m]
		small.UID = types.UID(small.Name)
		object.Requests("cpu", "2")(small)
		testkit.Check(t, c.cache.AddPod(klog.Background(), small))
	}
	before := c.hinted
	c.mix.request = 31_000
	if c.cycle(true); c.hinted > before {
		t.Error("a pod was placed among few nodes with room, want a pass that looks for others")
	}
}

// TestRankingsTakeNoMoreMemoryThanTheyMay: the least recently used ones go, what goes does not count any more, and
// those that remain propose the nodes that passes would take.
func TestRankingsTakeNoMoreMemoryThanTheyMay(t *testing.T) {
	c := newCluster(t, 3)
	c.wait("12")
	p, most := c.profiles["all"], 0
	p.Memory = 8 * bytesOfEntry
	for range 2000 {
		if c.rnd.IntN(3) == 0 || len(c.pods) > 100 {
			c.disturb()
		} else {
			c.schedule(t.Context(), c.pod(2*c.rnd.IntN(4)))
		}
		if p.kept > p.Memory && p.rankings.Len() > 2 {
			t.Fatalf("%d rankings take %d bytes of %d", p.rankings.Len(), p.kept, p.Memory)
		}
		most = max(most, p.rankings.Len())
	}
	if most < 3 || most > 8 || c.hinted < 100 {
		t.Errorf("at most %d rankings at a time placed %d pods, want 3 to 8", most, c.hinted)
	}
	if p.rankings.Clear(); p.kept != 0 {
		t.Errorf("no ranking takes %d bytes", p.kept)
	}
}
