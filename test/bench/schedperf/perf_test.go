package schedperf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "schedperf-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := linkEtcd(dir); err != nil {
		return 0, err
	}
	if err := perf.InitTests(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// linkEtcd puts a link named etcd to this binary into dir, and dir into PATH.
func linkEtcd(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func BenchmarkPerfScheduling(b *testing.B) {
	h := &harness{}
	perf.RunBenchmarkPerfScheduling(b, "performance-config.yaml", "tenon", h.registry(),
		perf.WithNodeUpdateFn(h.publishTopology))
}

// harness knows the accounts of the scheduler that runs; workloads run one after the other.
type harness struct{ running atomic.Pointer[fedStore] }

// fedStore has the accounts of one scheduler; ctx ends with it.
type fedStore struct {
	*kube.Store
	ctx context.Context
}

func (a *fedStore) alive() bool { return a != nil && a.ctx.Err() == nil }

// registry makes Tenon's plugins. Each scheduler has accounts of its own, fed from its own informers.
func (h *harness) registry() frameworkruntime.Registry {
	unexported := func(...metrics.Registerable) {} // the harness has its own
	return frameworkruntime.Registry{
		nodenumaresource.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if err := installKinds(ctx, handle.KubeConfig()); err != nil {
				return nil, err
			}
			store := kube.NewStore()
			if err := feed(ctx, store, handle); err != nil {
				return nil, err
			}
			h.running.Store(&fedStore{store, ctx})
			tracker := follow.NewTracker(store, follow.NewMetrics(unexported), time.Now)
			decisions := placement.NewDecisions(store, placement.NewMetrics(unexported), tracker)
			return nodenumaresource.Factory(decisions)(ctx, args, handle)
		},
	}
}

// feed keeps the accounts up to date until ctx, the scheduler's, ends.
func feed(ctx context.Context, store *kube.Store, h fwk.Handle) error {
	client, err := kube.NewClient(h.KubeConfig())
	if err != nil {
		return err
	}
	core, table := h.SharedInformerFactory().Core().V1(), accounts.Accounts{Nodes: store}.Table()
	topologies := kube.NewTopologyInformer(client)
	var fed []cache.InformerSynced
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"Node": core.Nodes().Informer(), "NodeResourceTopology": topologies, "Pod": core.Pods().Informer(),
	} {
		r, err := table.Of(kind).Follow(informer)
		if err != nil {
			return err
		}
		fed = append(fed, r.HasSynced)
	}
	go topologies.Run(ctx.Done())
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), fed...) {
			store.MarkSynced()
		}
	}()
	return nil
}

// installKinds installs our kinds before the scheduler's informers start: the harness has no hook between API server
// and scheduler.
func installKinds(ctx context.Context, config *rest.Config) error {
	c, err := extensionsclient.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, doc := range deploy.CRDs() {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(doc, crd); err != nil {
			return err
		}
		if _, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd,
			metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return waitServed(ctx, config)
}

// waitServed returns when the server has the topologies.
func waitServed(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		if _, err := client.Resource(topologyResource).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return nil
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("list topologies: %w", err)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var topologyResource = schema.GroupVersionResource{
	Group: "topology.node.k8s.io", Version: "v1alpha2",
	Resource: "noderesourcetopologies",
}

// publishTopology gives each new node two NUMA nodes of 8 cores with 2 threads, and returns when the accounts know.
func (h *harness) publishTopology(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload,
	nodes *corev1.NodeList,
) error {
	running := h.running.Load()
	if !running.alive() {
		return nil // a stock scheduler
	}
	client, err := dynamic.NewForConfig(tCtx.RESTConfig())
	if err != nil {
		return err
	}
	var detail []map[string]int
	for id := range 32 {
		detail = append(detail, map[string]int{"id": id, "core": id % 16, "socket": id % 16 / 8, "node": id % 16 / 8})
	}
	text, err := json.Marshal(map[string]any{"detail": detail})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		nrt := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
			"metadata": map[string]any{"name": nodes.Items[i].Name, "annotations": map[string]any{
				"node.koordinator.sh/cpu-topology":          string(text),
				"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"none"}`,
			}},
			"zones": []any{},
		}}
		if _, err := client.Resource(topologyResource).Create(tCtx, nrt, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("publish topology: %w", err)
		}
	}
	return waitKnown(tCtx, running.Store, nodes)
}

// waitKnown returns when the accounts have the topology of every node.
func waitKnown(ctx context.Context, store *kube.Store, nodes *corev1.NodeList) error {
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		for n, _ := store.Node(name); n.Topology == nil; n, _ = store.Node(name) {
			if err := pause(ctx); err != nil {
				return fmt.Errorf("topology of %s: %w", name, err)
			}
		}
	}
	return nil
}
