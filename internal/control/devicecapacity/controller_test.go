package devicecapacity

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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// world is an API server with one node and its Device. It applies as a server does: what the manager does not say any
// more goes.
type world struct {
	nodes, devices *fcache.FakeControllerSource

	mu      sync.Mutex // guards the rest
	node    *corev1.Node
	writes  int
	refusal error
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{nodes: fcache.NewFakeControllerSource(), devices: fcache.NewFakeControllerSource()}
		w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"own": "x"}}}
		w.node.Status.Capacity = object.List("cpu", "8")
		w.node.Status.Allocatable = maps.Clone(w.node.Status.Capacity)
		w.nodes.Add(w.node)
		client := fake.NewClientset()
		client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, w.apply(a.(clienttesting.PatchAction))
		})
		ctx, stop := context.WithCancel(t.Context())
		nodes := cache.NewSharedIndexInformer(w.nodes, &corev1.Node{}, 0, nil)
		devices := cache.NewSharedIndexInformer(w.devices, &devicev1alpha1.Device{}, 0, nil)
		var running sync.WaitGroup
		running.Go(func() { nodes.RunWithContext(ctx) })
		running.Go(func() { devices.RunWithContext(ctx) })
		cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, devices.HasSynced)
		synctest.Wait() // a source refuses to watch from its version 0 what was added before
		running.Go(func() {
			if err := New(Options{Devices: devices, Nodes: nodes, Client: client}).Start(ctx); err != nil {
				t.Error(err)
			}
		})
		f(w)
		stop()
		running.Wait()
		w.nodes.Shutdown()
		w.devices.Shutdown()
	})
}

func (w *world) apply(a clienttesting.PatchAction) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != nil {
		return w.refusal
	}
	var said corev1.Node
	if err := json.Unmarshal(a.GetPatch(), &said); err != nil || a.GetPatchType() != types.ApplyPatchType ||
		said.UID != w.node.UID || !*a.(clienttesting.PatchActionImpl).PatchOptions.Force {
		return errors.Join(err, errors.New("not an apply of this node by force"))
	}
	w.writes++
	node := w.node.DeepCopy()
	fields := map[string]any{}
	if a.GetSubresource() == status {
		for _, name := range convert.Owned(node, Manager, status, "f:status", "f:capacity") {
			delete(node.Status.Capacity, corev1.ResourceName(name))
			delete(node.Status.Allocatable, corev1.ResourceName(name))
		}
		maps.Copy(node.Status.Capacity, said.Status.Capacity)
		maps.Copy(node.Status.Allocatable, said.Status.Allocatable)
		for name := range said.Status.Capacity {
			fields["f:"+string(name)] = map[string]any{}
		}
		fields = map[string]any{"f:status": map[string]any{"f:capacity": fields}}
	} else {
		for _, name := range convert.Owned(node, Manager, "", "f:metadata", "f:labels") {
			delete(node.Labels, name)
		}
		maps.Copy(node.Labels, said.Labels)
		for name := range said.Labels {
			fields["f:"+name] = map[string]any{}
		}
		fields = map[string]any{"f:metadata": map[string]any{"f:labels": fields}}
	}
	raw, err := json.Marshal(fields)
	node.ManagedFields = slices.DeleteFunc(node.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == a.GetSubresource()
	})
	node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: a.GetSubresource(),
		FieldsV1: metav1.NewFieldsV1(string(raw)),
	})
	w.node = node
	w.nodes.Modify(node)
	return err
}

// shown is what the node has besides what it had.
func (w *world) shown() map[string]string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for name, n := range w.node.Status.Capacity {
		if allocatable := w.node.Status.Allocatable[name]; name != corev1.ResourceCPU {
			out[strings.TrimPrefix(string(name), "koordinator.sh/")] = n.String()
			if allocatable.Cmp(n) != 0 {
				out["allocatable"] = "differs"
			}
		}
	}
	for key, value := range w.node.Labels {
		if key != "own" {
			out[strings.TrimPrefix(key, "node.koordinator.sh/")] = value
		}
	}
	return out
}

func (w *world) want(t *testing.T, what string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, w.shown()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// change changes the node as another one does.
func (w *world) change(f func(*corev1.Node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node = w.node.DeepCopy()
	f(w.node)
	w.nodes.Modify(w.node)
}

func server(health ...bool) *devicev1alpha1.Device {
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		annotation.GPUVendorLabel: "nvidia", annotation.GPUModelLabel: "H100", "other": "x",
	}}}
	for i, healthy := range health {
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
			Type: "gpu", ID: string(rune('a' + i)), Health: healthy,
			Resources: map[corev1.ResourceName]resource.Quantity{
				"koordinator.sh/gpu-memory": resource.MustParse("80Gi"),
			},
		})
	}
	d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
		Type: "dpu", ID: "z", Health: true,
		Resources: map[corev1.ResourceName]resource.Quantity{"example.com/dpu": resource.MustParse("2")},
	})
	return d
}

func amounts(gpus string, memory string) map[string]string {
	return map[string]string{
		"gpu-core": gpus, "gpu-memory-ratio": gpus, "gpu-memory": memory, "example.com/dpu": "2",
		"gpu-vendor": "nvidia", "gpu-model": "H100",
	}
}

func TestANodeShowsItsDevices(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.want(t, "a node without devices", map[string]string{})
		w.devices.Add(server(true, true))
		w.want(t, "two GPUs", amounts("200", "160Gi"))
		w.devices.Modify(server(true, true, true))
		w.want(t, "one more, at once", amounts("300", "240Gi"))
		before := w.writes
		w.change(func(n *corev1.Node) { n.Annotations = map[string]string{"other": "x"} })
		<-time.After(2 * lossDelay)
		w.want(t, "nothing new", amounts("300", "240Gi"))
		if w.writes != before {
			t.Errorf("%d writes of what the node shows", w.writes-before)
		}

		w.devices.Modify(server(true, false, false))
		<-time.After(lossDelay / 2)
		w.want(t, "two are lost", amounts("300", "240Gi"))
		w.devices.Modify(server(true, true, true))
		<-time.After(2 * lossDelay)
		w.want(t, "they are back", amounts("300", "240Gi"))
		w.devices.Modify(server(true, true, false))
		<-time.After(lossDelay - time.Second)
		w.want(t, "one is lost", amounts("300", "240Gi"))
		<-time.After(2 * time.Second)
		w.want(t, "one is lost for a minute", amounts("200", "160Gi"))
	})
}

// A restarted kubelet without a checkpoint of its device plugins sets all extended resources to 0.
func TestAKubeletThatResetsExtendedResources(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.devices.Add(server(true))
		w.want(t, "a GPU", amounts("100", "80Gi"))
		w.change(func(n *corev1.Node) {
			for name := range n.Status.Capacity {
				if name != corev1.ResourceCPU {
					n.Status.Capacity[name], n.Status.Allocatable[name] = resource.Quantity{}, resource.Quantity{}
				}
			}
		})
		w.want(t, "after the kubelet", amounts("100", "80Gi"))
	})
}

func TestWhatANodeHasNoMoreIsRemoved(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.devices.Add(server(true))
		w.want(t, "a GPU", amounts("100", "80Gi"))
		follows := server(true)
		follows.Annotations = map[string]string{annotation.DeviceModeKey: annotation.DeviceFollow}
		w.devices.Modify(follows)
		<-time.After(lossDelay + time.Second)
		w.want(t, "devices of the kubelet", map[string]string{"gpu-vendor": "nvidia", "gpu-model": "H100"})
		w.devices.Modify(server(true))
		w.want(t, "a GPU again", amounts("100", "80Gi"))
		w.devices.Delete(server(true))
		<-time.After(lossDelay + time.Second)
		w.want(t, "no Device", map[string]string{})
		w.nodes.Delete(w.node)
		synctest.Wait()
	})
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.refusal = errors.New("no")
		w.devices.Add(server(true))
		w.want(t, "no right", map[string]string{})
		w.mu.Lock()
		w.refusal = nil
		w.mu.Unlock()
		<-time.After(time.Minute)
		w.want(t, "a GPU", amounts("100", "80Gi"))
	})
}

func TestTrimKeepsWhatTheControllerWrote(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate},
		{Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: status},
	}
	convert.WithOwned(n)
	if len(n.ManagedFields) != 1 || n.ManagedFields[0].Manager != Manager {
		t.Errorf("kept %v", n.ManagedFields)
	}
}
