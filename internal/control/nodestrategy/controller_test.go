package nodestrategy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// world is an API server with a node of 100 CPUs and 100 GiB, and a controller. It applies as a server does: what the
// manager does not say any more goes.
type world struct {
	nodes, metrics, slos, config, pods *fcache.FakeControllerSource

	mu      sync.Mutex // guards the rest
	node    *corev1.Node
	metric  *slo.NodeMetric
	slo     *slo.NodeSLO
	said    *corev1.ConfigMap
	writes  map[string]int
	refusal error
	refused string // resource that cannot be written
	events  chan string
	restart func() // ends the controller and starts another one
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{writes: map[string]int{}}
		for _, s := range []**fcache.FakeControllerSource{&w.nodes, &w.metrics, &w.slos, &w.config, &w.pods} {
			*s = fcache.NewFakeControllerSource()
		}
		w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		w.node.Status.Capacity = object.List("cpu", "100", "memory", "100Gi")
		w.node.Status.Allocatable = object.List("cpu", "95", "memory", "100Gi")
		w.nodes.Add(w.node)
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, &unstructured.Unstructured{}, w.apply(a.(clienttesting.PatchAction))
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		follow := func(source *fcache.FakeControllerSource, kind runtime.Object) cache.SharedIndexInformer {
			i := cache.NewSharedIndexInformer(source, kind, 0, nil)
			running.Go(func() { i.RunWithContext(ctx) })
			cache.WaitForCacheSync(ctx.Done(), i.HasSynced)
			return i
		}
		recorder := events.NewFakeRecorder(100)
		w.events = recorder.Events
		o := Options{
			Nodes: follow(w.nodes, &corev1.Node{}), Metrics: follow(w.metrics, &slo.NodeMetric{}),
			SLOs: follow(w.slos, &slo.NodeSLO{}), Config: follow(w.config, &corev1.ConfigMap{}),
			Pods: follow(w.pods, &corev1.Pod{}), Client: client, Events: recorder,
		}
		o.PodsOn = func(string) (all []*corev1.Pod) {
			for _, p := range o.Pods.GetStore().List() {
				all = append(all, p.(*corev1.Pod))
			}
			return all
		}
		synctest.Wait() // a source refuses to watch from its version 0 what was added before
		end := func() {}
		w.restart = func() {
			end()
			own, cancel := context.WithCancel(ctx)
			end = cancel
			synctest.Wait()
			running.Go(func() {
				if err := New(o).Start(own); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second) //nolint:forbidigo // in synctest's time, the ConfigMap is waited for
		}
		w.restart()
		f(w)
		stop()
		running.Wait()
		for _, s := range []*fcache.FakeControllerSource{w.nodes, w.metrics, w.slos, w.config, w.pods} {
			s.Shutdown()
		}
	})
}

func (w *world) apply(a clienttesting.PatchAction) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != nil {
		return w.refusal
	}
	if a.GetResource().Resource == w.refused {
		return errors.New("refused")
	}
	if a.GetResource().Resource == "configmaps" {
		return w.annotate(a.GetPatch())
	}
	if o := a.(clienttesting.PatchActionImpl).PatchOptions; a.GetPatchType() != "application/apply-patch+yaml" ||
		o.Force != nil || o.FieldManager != convert.ColocationManager {
		return errors.New("not an apply without force")
	}
	w.writes[a.GetResource().Resource]++
	switch a.GetResource().Resource {
	case "nodemetrics":
		m := &slo.NodeMetric{}
		err := json.Unmarshal(a.GetPatch(), m)
		if w.metric == nil {
			w.metric = m
			w.metrics.Add(m)
			return err
		}
		m.Status, w.metric = w.metric.Status, m
		w.metrics.Modify(m)
		return err
	case "nodeslos":
		if w.slo != nil && strings.Contains(string(a.GetPatch()), "{}") { // an API server makes it null
			return apierrors.NewInvalid(slo.GroupVersion().WithKind(slo.NodeSLOKind).GroupKind(), "n", nil)
		}
		w.slo = &slo.NodeSLO{}
		err := json.Unmarshal(a.GetPatch(), w.slo)
		w.slos.Modify(w.slo)
		return err
	}
	var said corev1.Node
	if err := json.Unmarshal(a.GetPatch(), &said); err != nil || a.GetSubresource() != "status" || said.UID != "u" {
		return errors.Join(err, errors.New("not the status of this node"))
	}
	node := w.node.DeepCopy()
	shown := map[string]any{}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for _, r := range []corev1.ResourceName{
			convert.BatchCPU, convert.BatchMemory, convert.MidCPU, convert.MidMemory,
		} {
			delete(list, r)
		}
	}
	maps.Copy(node.Status.Capacity, said.Status.Capacity)
	maps.Copy(node.Status.Allocatable, said.Status.Allocatable)
	for r := range said.Status.Allocatable {
		shown["f:"+string(r)] = map[string]any{}
	}
	node.ManagedFields = nil
	if len(shown) > 0 {
		raw, _ := json.Marshal(map[string]any{"f:status": map[string]any{"f:allocatable": shown}})
		now := metav1.Now()
		node.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: convert.ColocationManager, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status",
			Time: &now, FieldsV1: metav1.NewFieldsV1(string(raw)),
		}}
	}
	w.node = node
	w.nodes.Modify(node)
	return nil
}

// configure writes the ConfigMap, with thresholds for all nodes.
func (w *world) configure(colocation string) {
	w.write(sloconfig.ColocationKey, colocation, sloconfig.ThresholdKey, `{"clusterStrategy":{"enable":true}}`)
}

// write writes the ConfigMap: pairs of key and value.
func (w *world) write(pairs ...string) {
	w.mu.Lock()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenon-system", Name: sloconfig.Name}}
	if w.said != nil {
		m = w.said.DeepCopy()
	}
	m.Data = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m.Data[pairs[i]] = pairs[i+1]
	}
	w.said = m
	w.config.Modify(m)
	w.mu.Unlock()
	synctest.Wait()
}

// annotate merges a patch of annotations into the ConfigMap.
func (w *world) annotate(patch []byte) error {
	var said struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err := json.Unmarshal(patch, &said); err != nil {
		return err
	}
	m := w.said.DeepCopy()
	for key, value := range said.Metadata.Annotations {
		delete(m.Annotations, key)
		if value != nil {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, *value)
		}
	}
	w.said = m
	w.writes["configmaps"]++
	w.config.Modify(m)
	return nil
}

// report writes what the agent reports: use of the node, and of the pods default/NAME.
func (w *world) report(cpu string, pods ...string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.metric.DeepCopy()
	now := metav1.Now()
	m.Status.UpdateTime = &now
	use := slo.ResourceMap{Resources: object.List("cpu", cpu, "memory", "1Gi")}
	m.Status.NodeMetric = &slo.NodeMetricInfo{NodeUsage: use}
	m.Status.PodsMetric = nil
	for i := 0; i < len(pods); i += 2 {
		m.Status.PodsMetric = append(m.Status.PodsMetric, &slo.PodMetricInfo{
			Namespace: "default", Name: pods[i], PodUsage: slo.ResourceMap{Resources: object.List("cpu", pods[i+1])},
		})
	}
	w.metric = m
	w.metrics.Modify(m)
}

// after lets time pass, and reports what the agent reports meanwhile, each minute.
func (w *world) after(minutes int, cpu string, pods ...string) {
	for range minutes {
		w.report(cpu, pods...)
		time.Sleep(time.Minute) //nolint:forbidigo // in synctest's time
	}
	synctest.Wait()
}

func (w *world) batchCPU() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	capacity, found := w.node.Status.Capacity[convert.BatchCPU]
	allocatable := w.node.Status.Allocatable[convert.BatchCPU]
	switch {
	case !found:
		return "none"
	case capacity.Cmp(allocatable) != 0:
		return "differs"
	}
	return allocatable.String()
}

func (w *world) want(t *testing.T, what, batchCPU string) {
	t.Helper()
	if got := w.batchCPU(); got != batchCPU {
		t.Errorf("%s: batch-cpu is %s, want %s", what, got, batchCPU)
	}
}

func TestANodeShowsWhatItsPodsLeave(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		service := object.Pod("service", object.On("n"), object.Requests("cpu", "40"))
		started := metav1.Now()
		service.Status.StartTime = &started
		w.pods.Add(service)
		w.after(1, "37", "service", "30")
		w.want(t, "without a ConfigMap", "none")
		w.configure(`{"enable":true}`)
		w.want(t, "at first a tenth of the capacity", "10k")
		w.after(14, "37", "service", "30") // memory takes the longest
		w.want(t, "60 % of 100 CPUs, less 7 of the system and 30 of the service", "23k")
		writes := w.writes["nodes"]
		w.after(10, "37", "service", "30")
		if n := w.writes["nodes"] - writes; n > 0 {
			t.Errorf("%d writes without a change", n)
		}
		w.report("57", "service", "50")
		w.want(t, "it shrinks at once", "3k")
		w.pods.Add(object.Pod("new", object.On("n"), object.Requests("cpu", "2")))
		time.Sleep(2 * time.Second) //nolint:forbidigo // in synctest's time
		w.want(t, "a pod that is bound counts before the next report", "1k")
		time.Sleep(16 * time.Minute) //nolint:forbidigo // in synctest's time
		w.want(t, "an old report grants nothing", "none")
		w.after(2, "37", "service", "30")
		w.want(t, "and again", "21k")
		w.configure(`{"enable":false}`)
		w.want(t, "a strategy that is off", "none")
	})
}

// TestAManagerThatIsRestartedGrantsNoFaster: what a Node shows grows by a tenth of its capacity a minute, however many
// managers there have been.
func TestAManagerThatIsRestartedGrantsNoFaster(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true}`)
		w.after(3, "7")
		before := w.batchCPU()
		writes := w.writes["nodes"]
		for range 5 {
			w.restart()
		}
		w.want(t, "five managers within seconds", before)
		if n := w.writes["nodes"] - writes; n > 0 {
			t.Errorf("they write the Node %d times", n)
		}
		w.restart()
		w.report("57")
		w.want(t, "the next one shrinks it at once", "3k")
	})
}

func TestTheObjectsOfANodeSayWhatTheStrategySays(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		synctest.Wait()
		if w.slo != nil || *w.metric.Spec.CollectPolicy.ReportIntervalSeconds != 60 {
			t.Errorf("without a ConfigMap: %v, %v", w.slo, w.metric.Spec)
		}
		w.configure(`{"metricReportIntervalSeconds":10,"metricAggregatePolicy":{"durations":["90s"]}}`)
		policy := w.metric.Spec.CollectPolicy
		if *policy.ReportIntervalSeconds != 10 || len(policy.NodeAggregatePolicy.Durations) != 1 {
			t.Errorf("the NodeMetric says %v", policy)
		}
		if !*w.slo.Spec.ResourceUsedThresholdWithBE.Enable || len(w.slo.OwnerReferences) != 1 {
			t.Errorf("the NodeSLO is %v", w.slo)
		}
		before := maps.Clone(w.writes)
		w.after(3, "1")
		if diff := cmp.Diff(before, w.writes); diff != "" {
			t.Errorf("writes without a change: %s", diff)
		}
		w.slos.Modify(&slo.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		synctest.Wait()
		if w.writes["nodeslos"] != before["nodeslos"]+1 {
			t.Error("a change of another user is not undone")
		}
	})
}

// TestANodeLeavesColocation: whatever takes a node out of colocation, it loses its amounts, and its NodeSLO says
// nothing.
func TestANodeLeavesColocation(t *testing.T) {
	t.Parallel()
	const colo, classes = `{"matchLabels":{"colo":"yes"}}`, `{"clusterStrategy":{"beClass":{"cpuQOS":{"enable":true}}}}`
	all := []string{
		sloconfig.ColocationKey, `{"enable":true}`, sloconfig.ThresholdKey, `{"clusterStrategy":{"enable":true}}`,
	}
	for name, c := range map[string]struct {
		before []string
		leave  func(*world)
	}{
		"the ConfigMap is deleted": {all, func(w *world) { w.config.Delete(w.said) }},
		"the ConfigMap is emptied": {all, func(w *world) { w.write() }},
		"it is not enabled, without a threshold": {all, func(w *world) {
			w.write(sloconfig.ColocationKey, `{"enable":false}`)
		}},
		"an application of the host is removed as well": {
			append([]string{sloconfig.ApplicationsKey, `{"applications":[{"name":"a"}]}`}, all...),
			func(w *world) { w.write(sloconfig.ApplicationsKey, `{"applications":[]}`) },
		},
		"thresholds without a value remain": {all, func(w *world) {
			w.write(sloconfig.ThresholdKey, `{"clusterStrategy":{"enable":null,"cpuSuppressPolicy":""}}`)
		}},
		"classes without a value remain": {append([]string{sloconfig.QoSKey, classes}, all...), func(w *world) {
			w.write(sloconfig.QoSKey, `{"clusterStrategy":{"beClass":{"cpuQOS":{}}}}`)
		}},
		"its label is removed": {
			[]string{
				sloconfig.ColocationKey, `{"nodeConfigs":[{"nodeSelector":` + colo + `,"enable":true}]}`,
				sloconfig.ThresholdKey, `{"nodeStrategies":[{"nodeSelector":` + colo + `,"enable":true}]}`,
			},
			func(w *world) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.node = w.node.DeepCopy()
				w.node.Labels = nil
				w.nodes.Modify(w.node)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				w.node.Labels = map[string]string{"colo": "yes"}
				w.nodes.Modify(w.node)
				w.write(c.before...)
				w.after(1, "7")
				if got := w.batchCPU(); got == "none" {
					t.Error("a Node in colocation grants nothing")
				}
				if w.slo == nil || w.slo.Spec.ResourceUsedThresholdWithBE == nil {
					t.Fatalf("the NodeSLO before is %+v", w.slo)
				}
				c.leave(w)
				w.want(t, "out of colocation", "none")
				if diff := cmp.Diff(slo.NodeSLOSpec{}, w.slo.Spec); diff != "" {
					t.Errorf("the NodeSLO still says %s", diff)
				}
			})
		})
	}
}

// TestOneObjectThatIsRefusedKeepsNoOther: where NodeSLOs cannot be written, a Node still loses its amounts.
func TestOneObjectThatIsRefusedKeepsNoOther(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true}`)
		w.after(1, "7")
		w.mu.Lock()
		w.refused = "nodeslos"
		w.mu.Unlock()
		w.write(sloconfig.ColocationKey, `{"enable":false}`)
		w.want(t, "out of colocation", "none")
	})
}

// TestTheLastValidStrategySurvivesARestart: a manager that finds a ConfigMap with an error goes on with what the one
// before it noted there.
func TestTheLastValidStrategySurvivesARestart(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true,"cpuReclaimThresholdPercent":20}`)
		w.after(3, "7")
		w.want(t, "20 % of 100 CPUs less 7 of the system", "13k")
		w.configure(`{"enable":true,"cpuReclaimThresholdPercent":"much"}`)
		w.restart()
		w.after(3, "7")
		w.want(t, "after a restart with an error", "13k")
		if w.slo.Spec.ResourceUsedThresholdWithBE == nil {
			t.Error("the NodeSLO says nothing any more")
		}
		if problem := w.said.Annotations[annotation.StrategyProblem]; !strings.Contains(problem, "much") {
			t.Errorf("the ConfigMap has the problem %q", problem)
		}
		writes := w.writes["configmaps"]
		w.after(3, "7")
		w.restart()
		if n := w.writes["configmaps"] - writes; n > 0 {
			t.Errorf("the ConfigMap is written %d times without a change", n)
		}
		w.configure(`{"enable":true,"cpuReclaimThresholdPercent":10}`)
		w.after(1, "7")
		w.want(t, "the error is corrected", "3k")
		if problem, found := w.said.Annotations[annotation.StrategyProblem]; found {
			t.Errorf("the ConfigMap still has the problem %q", problem)
		}
		w.config.Delete(w.said)
		w.restart()
		w.want(t, "the ConfigMap is deleted", "none")
	})
}

// TestNoStrategyIsGuessed: an error in a ConfigMap that was never valid grants nothing.
func TestNoStrategyIsGuessed(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true,"cpuReclaimThresholdPercent":"much"}`)
		w.restart()
		w.after(2, "7")
		w.want(t, "with an error from the beginning", "none")
		if _, found := w.said.Annotations[annotation.LastValidStrategy]; found {
			t.Error("the error is noted as valid")
		}
	})
}

func TestABadConfigMapChangesNothing(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true}`)
		w.after(3, "7")
		w.want(t, "before, in steps of 59 seconds: a Node says in whole seconds when it was written", "39499")
		w.configure(`{"enable":true,"cpuReclaimThresholdPercent":201}`)
		w.after(1, "7")
		w.want(t, "it is kept", "49332")
		select {
		case e := <-w.events:
			if !strings.Contains(e, "StrategyInvalid") || !strings.Contains(e, "must be 0 to 200") {
				t.Errorf("Event %q", e)
			}
		default:
			t.Error("no Event")
		}
		if n := len(w.events); n > 0 { // not once more when the error is noted in the ConfigMap
			t.Errorf("%d more Events", n)
		}
	})
}

func TestWhatHasNoEffectIsNamed(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.write(sloconfig.ThresholdKey, `{"clusterStrategy":{"enable":true},
				"nodeStrategies":[{"nodeSelector":{},"cpuEvictThresholdPercent":90}]}`,
			sloconfig.BurstKey, `{"clusterStrategy":{"policy":"auto"}}`,
			"cpu-normalization-config", `{"enable":true}`)
		want := "Warning StrategyIgnored have no effect: " +
			"cpu-burst-config: clusterStrategy.policy: quota scaling of auto, cpu-normalization-config, " +
			"resource-threshold-config: nodeStrategies[0].cpuEvictThresholdPercent"
		select {
		case e := <-w.events:
			if e != want {
				t.Errorf("Event %q, want %q", e, want)
			}
		default:
			t.Error("no Event")
		}
	})
}

func TestANodeWithABadStrategyGrantsNothing(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.configure(`{"enable":true}`)
		w.after(1, "7")
		w.mu.Lock()
		w.node = w.node.DeepCopy()
		w.node.Labels = map[string]string{annotation.NodeCPUReclaimRatio: "much"}
		w.nodes.Modify(w.node)
		w.mu.Unlock()
		w.want(t, "with a ratio that cannot be read", "none")
		w.after(3, "7")
		if n := len(w.events); n != 1 {
			t.Errorf("%d Events, want 1", n)
		}
	})
}

func TestWhatAnotherManagerWritesIsLeftToIt(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		synctest.Wait()
		w.mu.Lock()
		w.refusal = apierrors.NewConflict(slo.NodeMetrics().GroupResource(), "n", errors.New("koord-manager"))
		w.mu.Unlock()
		w.configure(`{"enable":true}`)
		w.after(2, "7")
		w.want(t, "without the field", "none")
		if !slices.Equal([]int64{60}, []int64{*w.metric.Spec.CollectPolicy.ReportIntervalSeconds}) {
			t.Errorf("the NodeMetric is %v", w.metric.Spec)
		}
	})
}

// TestWhatIsGoneIsNotLookedAtAgain: the next look would be as vain, and at once.
func TestWhatIsGoneIsNotLookedAtAgain(t *testing.T) {
	t.Parallel()
	empty := func(kind runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(fcache.NewFakeControllerSource(), kind, 0, nil)
	}
	c := New(Options{Nodes: empty(&corev1.Node{}), Config: empty(&corev1.ConfigMap{})})
	c.bad["gone"] = "its strategy cannot be read"
	for _, key := range []string{noteKey, "gone"} {
		if again, err := c.follow(t.Context(), key); again != 0 || err != nil {
			t.Errorf("%q: again after %v, %v", key, again, err)
		}
	}
	if len(c.bad) > 0 {
		t.Errorf("kept %v", c.bad)
	}
}
