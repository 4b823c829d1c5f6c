package placement_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// claims serve the resources of a class each.
type claims struct {
	fwk.SharedDRAManager
	resource corev1.ResourceName
}

func (c claims) DeviceClassResolver() fwk.DeviceClassResolver { return c }

func (c claims) GetDeviceClass(name corev1.ResourceName) *resourceapi.DeviceClass {
	if name != c.resource {
		return nil
	}
	return &resourceapi.DeviceClass{}
}

// deviceProfile is a profile that decides about devices, and its store.
func deviceProfile(t *testing.T, dra fwk.SharedDRAManager) (framework.Framework, *kube.Store) {
	t.Helper()
	schedulermetrics.Register() // upstream's; the framework cannot do without
	store, measured, client := kube.NewStore(), metrics.NewKubeRegistry(), fake.NewClientset()
	tracker := follow.NewTracker(store, follow.NewMetrics(measured.MustRegister), time.Now)
	d := placement.NewDecisions(store, placement.NewMetrics(measured.MustRegister), tracker)
	registry := frameworkplugins.NewInTreeRegistry()
	registry[placement.DeviceShare] = func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return d.Join(h, placement.DeviceShare), nil
	}
	f, err := frameworkruntime.NewFramework(t.Context(), registry, &config.KubeSchedulerProfile{
		SchedulerName: "s", Plugins: &config.Plugins{MultiPoint: config.PluginSet{Enabled: []config.Plugin{
			{Name: names.PrioritySort}, {Name: placement.DeviceShare}, {Name: names.DefaultBinder},
		}}},
	}, frameworkruntime.WithClientSet(client), frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSharedDRAManager(dra))
	testkit.Check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f, store
}

// vendorPod asks for amounts with its containers; init containers first, sidecars where always is set.
func vendorPod(name string, init, containers []corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{InitContainers: init, Containers: containers},
	}
}

func asking(name corev1.ResourceName, n int64) corev1.Container {
	list := corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)}
	return corev1.Container{
		Name: fmt.Sprintf("c%d", n), Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
	}
}

func nodeWith(allocatable corev1.ResourceList, pods ...*corev1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Allocatable = allocatable
	info.SetNode(node)
	return info
}

// filter runs the filters of one cycle.
func filter(ctx context.Context, f framework.Framework, pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	cs := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(ctx, cs, pod); !status.IsSuccess() {
		return status
	}
	return f.RunFilterPlugins(ctx, cs, pod, n)
}

// A node without a Device object is refused exactly where NodeResourcesFit would refuse it, which leaves these names to
// us.
func TestVendorsResourcesAreCountedAsNodeResourcesFitCountsThem(t *testing.T) {
	vendors := []corev1.ResourceName{"nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu", "nvidia.com/mig-1g.5gb"}
	dra := claims{resource: "amd.com/gpu"}
	f, store := deviceProfile(t, dra)
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	always, seen := corev1.ContainerRestartPolicyAlways, map[fwk.Code]int{}
	pods := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, what) }
		vendor := func() corev1.ResourceName { return rapid.SampledFrom(vendors).Draw(t, "vendor") }
		allocatable := object.List("pods", "110")
		for range draw("resources", 2) {
			allocatable[vendor()] = *resource.NewQuantity(draw("allocatable", 4), resource.DecimalSI)
		}
		var there []*corev1.Pod
		for i := range draw("pods", 2) {
			holds := asking(vendor(), draw("held", 2))
			there = append(there, vendorPod(fmt.Sprint("on-", i), nil, []corev1.Container{holds}))
		}
		var init, containers []corev1.Container
		for range draw("init", 3) {
			c := asking(vendor(), draw("asked", 3))
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = &always
			}
			init = append(init, c)
		}
		for range 1 + draw("containers", 2) {
			containers = append(containers, asking(vendor(), draw("asked", 3)))
		}
		pods++
		pod, node := vendorPod(fmt.Sprint("p-", pods), init, containers), nodeWith(allocatable, there...)
		options := noderesources.ResourceRequestsOptions{EnableDRAExtendedResource: true}
		stock := noderesources.Fits(pod, node, dra, options)
		status := filter(context.Background(), f, pod, node)
		seen[status.Code()]++
		if status.IsSuccess() != (len(stock) == 0) {
			t.Fatalf("NodeResourcesFit says %+v, got %v", stock, status)
		}
		if status.IsSuccess() {
			return
		}
		var finding interface{ Finding() why.Finding }
		if !errors.As(status.AsError(), &finding) {
			t.Fatalf("the status has no reason: %v", status)
		}
		got := finding.Finding().Reason
		for _, s := range stock {
			if string(s.ResourceName) != string(got.Resource) {
				continue
			}
			never := status.Code() == fwk.UnschedulableAndUnresolvable
			if got.Code != why.InsufficientExtended || got.Asked != s.Requested || got.Text() != s.Reason ||
				got.Free != max(s.Capacity-s.Used, 0) || never != s.Unresolvable {
				t.Fatalf("NodeResourcesFit says %+v, got %+v, unresolvable %v", s, got, never)
			}
			return
		}
		t.Fatalf("NodeResourcesFit says %+v, got %+v", stock, got)
	})
	for _, code := range []fwk.Code{fwk.Success, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable} {
		if seen[code] == 0 && !testing.Short() {
			t.Errorf("no pod of %v", seen)
		}
	}
}

func TestOtherRequestsForDevicesNeedADeviceObject(t *testing.T) {
	f, store := deviceProfile(t, nil)
	n := nodeWith(object.List("koordinator.sh/gpu-core", "100"))
	store.PutNode(n.Node())
	pod := vendorPod("share", nil, []corev1.Container{asking("koordinator.sh/gpu", 50)})
	if status := filter(t.Context(), f, pod, n); status.Code() != fwk.UnschedulableAndUnresolvable ||
		status.Message() != "node(s) missing Device" {
		t.Errorf("a share: got %v %q", status.Code(), status.Message())
	}
	pod = vendorPod("bad", nil, []corev1.Container{asking("koordinator.sh/gpu", 150)})
	want := `invalid request for devices: container "c150": koordinator.sh/gpu: 150 must be percentage of 100: at ` +
		`most 100, or a multiple of 100`
	if status := filter(t.Context(), f, pod, n); status.Code() != fwk.UnschedulableAndUnresolvable ||
		status.Message() != want {
		t.Errorf("a bad request: got %v %q", status.Code(), status.Message())
	}
}

// A device plugin that registers late adds to what its node has.
func TestAPodThatWaitsForAVendorsResourceWakesWhenANodeOffersIt(t *testing.T) {
	f, store := deviceProfile(t, nil)
	pod := vendorPod("p", nil, []corev1.Container{asking("nvidia.com/gpu", 2)})
	var hint fwk.QueueingHintFn
	for _, p := range f.EnqueueExtensions() {
		if p.Name() != placement.DeviceShare {
			continue
		}
		events, err := p.EventsToRegister(t.Context())
		testkit.Check(t, err)
		for _, e := range events {
			if e.Event.Resource == fwk.Node && e.Event.ActionType&fwk.UpdateNodeAllocatable != 0 {
				hint = e.QueueingHintFn
			}
		}
	}
	if hint == nil {
		t.Fatal("no event of what a node has")
	}
	for n, want := range map[string]fwk.QueueingHint{"0": fwk.QueueSkip, "1": fwk.QueueSkip, "2": fwk.Queue} {
		node := nodeWith(object.List("nvidia.com/gpu", n)).Node()
		store.PutNode(node)
		if got, err := hint(klog.Background(), pod, nil, node); err != nil || got != want {
			t.Errorf("%s GPUs: hint %v, %v, want %v", n, got, err, want)
		}
	}
}

// TestANodeWithDevicesFromElsewhereIsClosed: the filter says why, preemption does not help, and the agent's report
// opens the node.
func TestANodeWithDevicesFromElsewhereIsClosed(t *testing.T) {
	f, store := deviceProfile(t, nil)
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Annotations: map[string]string{annotation.DeviceModeKey: annotation.DeviceMoving},
	}}
	for _, id := range []string{"GPU-a", "GPU-b"} {
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{Type: "gpu", ID: id, Health: true})
	}
	store.PutDevice(d)
	other := vendorPod("other", nil, []corev1.Container{asking("nvidia.com/gpu", 1)})
	other.Spec.NodeName = "n"
	store.PutPod(other)
	try := func(gpus int64) *fwk.Status {
		pod := vendorPod(fmt.Sprint("new-", gpus), nil, []corev1.Container{asking("nvidia.com/gpu", gpus)})
		return filter(t.Context(), f, pod, nodeWith(nil, other))
	}
	status := try(1)
	if status.Code() != fwk.UnschedulableAndUnresolvable ||
		status.Message() != "node(s) hold devices allocated outside the scheduler" {
		t.Errorf("before the report: %v", status)
	}
	if plain := filter(t.Context(), f, vendorPod("plain", nil, nil), nodeWith(nil, other)); !plain.IsSuccess() {
		t.Errorf("a pod without devices: %v", plain)
	}
	reported := d.DeepCopy()
	reported.Annotations[annotation.DevicesCheckpointsKey] = annotation.DevicesCheckpoints{
		{PodUID: "other", ResourceName: "nvidia.com/gpu", DeviceIDs: []string{"GPU-b"}},
	}.String()
	store.PutDevice(reported)
	if one, two := try(1), try(2); !one.IsSuccess() || two.IsSuccess() {
		t.Errorf("after the report: one GPU %v, two GPUs %v", one, two)
	}
	store.RemovePod(other)
	if two := try(2); two.IsSuccess() {
		t.Error("the GPU is free before the agent says so: its containers may run")
	}
	store.PutDevice(d)
	if two := try(2); !two.IsSuccess() {
		t.Errorf("after the pod: %v", two)
	}
}
