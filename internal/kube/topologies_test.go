package kube_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

func object(t *testing.T, version, name, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "topology.node.k8s.io/" + version, "kind": "NodeResourceTopology",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"a": "b"}, "annotations": map[string]any{
			annotation.CPUTopology: text, annotation.CPUSharedPoolsKey: "[]",
		}},
		"topologyPolicies": []any{"SingleNUMANodePodLevel"},
		"zones": []any{map[string]any{
			"name": "node-0", "type": "Node", "costs": []any{map[string]any{"name": "node-0", "value": int64(10)}},
			"resources": []any{
				map[string]any{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "3"},
				map[string]any{"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "1Gi"},
			},
		}},
	}}
}

// start runs an informer until the test ends.
func start(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { i.Run(stop) })
	t.Cleanup(func() { close(stop); running.Wait() })
	if !cache.WaitForCacheSync(stop, i.HasSynced) {
		t.Fatal("the cache does not sync")
	}
}

func TestTopologyCacheKeepsOnlyWhatIsReadAndSharesTheRest(t *testing.T) {
	text := convert.Topology(machine(t, 2, 4)).String()
	c, _ := client(t, object(t, "v1alpha2", "a", text), object(t, "v1alpha2", "b", text))
	i := kube.NewTopologyInformer(c)
	start(t, i)
	var kept []*v1alpha2.NodeResourceTopology
	for _, o := range i.GetStore().List() {
		kept = append(kept, o.(*v1alpha2.NodeResourceTopology))
	}
	if len(kept) != 2 {
		t.Fatalf("got %d objects, want 2", len(kept))
	}
	a, b := kept[0], kept[1]
	if len(a.Labels) != 0 || a.Annotations[annotation.CPUSharedPoolsKey] != "" {
		t.Errorf("kept unused fields: %+v", a)
	}
	policies := a.TopologyPolicies //nolint:staticcheck // what exporters of v1alpha1 write
	if a.Annotations[annotation.CPUTopology] != text || !slices.Equal(policies, []string{"SingleNUMANodePodLevel"}) {
		t.Errorf("lost what is read: %+v", a)
	}
	if len(a.Zones) != 1 || len(a.Zones[0].Resources) != 1 || a.Zones[0].Costs[0].Value != 10 ||
		&a.Zones[0] != &b.Zones[0] {
		t.Errorf("zones: want distances and memory alone, one copy for equal nodes: %+v", a.Zones)
	}
}

// TestAvailableDevicesAreKeptWhereNoAgentReportsPods: nothing else says what the pods of such a node have.
func TestAvailableDevicesAreKeptWhereNoAgentReportsPods(t *testing.T) {
	devices := func(name string, annotations map[string]any) *unstructured.Unstructured {
		o := object(t, "v1alpha2", name, "{}")
		o.Object["metadata"].(map[string]any)["annotations"] = annotations
		o.Object["zones"] = []any{map[string]any{"name": "node-0", "type": "Node", "resources": []any{
			map[string]any{"name": "vendor/nic", "capacity": "4", "allocatable": "4", "available": "3"},
			map[string]any{"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "1Gi"},
		}}}
		return o
	}
	c, _ := client(t, devices("foreign", map[string]any{}),
		devices("reported", map[string]any{annotation.KubeletKey: "{}"}))
	i := kube.NewTopologyInformer(c)
	start(t, i)
	for name, want := range map[string]int64{"foreign": 3, "reported": 0} {
		o, _, err := i.GetStore().GetByKey(name)
		testkit.Check(t, err)
		resources := o.(*v1alpha2.NodeResourceTopology).Zones[0].Resources
		if got := resources[0].Available.Value(); got != want || !resources[1].Available.IsZero() {
			t.Errorf("%s: available are %d devices and %s of memory, want %d and nothing", name, got,
				resources[1].Available.String(), want)
		}
	}
}

func TestTopologiesOfAServerWithTheOldVersionAlone(t *testing.T) {
	c, _ := client(t, object(t, "v1alpha1", "a", "{}"))
	i := kube.NewTopologyInformer(c)
	start(t, i)
	if got := i.GetStore().ListKeys(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %v, want the object of v1alpha1", got)
	}
}

func TestMissingResourceHasNoObjectsUntilInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := client(t, object(t, "v1alpha2", "a", "{}"))
		var installed atomic.Bool
		server.hidden = func() bool { return !installed.Load() }
		i := kube.NewTopologyInformer(c)
		start(t, i)
		if got := i.GetStore().ListKeys(); len(got) != 0 {
			t.Fatalf("got %v before the resource exists", got)
		}
		installed.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if got := i.GetStore().ListKeys(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after the installation: got %v, want [a]", got)
		}
	})
}

func TestOneOddObjectDoesNotHideTheOthers(t *testing.T) {
	odd := object(t, "v1alpha2", "odd", "{}")
	odd.Object["zones"] = "none"
	odd.Object["attributes"] = map[string]any{"a": int64(1)}
	odd.Object["topologyPolicies"] = int64(7)
	slow := object(t, "v1alpha2", "slow", "{}") // in seconds it would be read
	slow.Object["zones"] = []any{map[string]any{"name": "node-0", "resources": []any{
		map[string]any{"name": "cpu", "capacity": "1e-2147483647", "allocatable": "1", "available": "1"},
	}}}
	c, _ := client(t, odd, slow, object(t, "v1alpha2", "fine", "{}"))
	i := kube.NewTopologyInformer(c)
	start(t, i)
	got := i.GetStore().ListKeys()
	slices.Sort(got)
	if !slices.Equal(got, []string{"fine", "odd", "slow"}) {
		t.Errorf("got %v, want all", got)
	}
}
