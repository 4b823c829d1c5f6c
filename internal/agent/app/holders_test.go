package app_test

import (
	"context"
	gojson "encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// newMoving is a node with two GPUs of which the kubelet gives out some, and whose agent is to take them over.
func newMoving(t *testing.T) *world {
	t.Helper()
	w := newAccelerated(t)
	w.file("proc/driver/nvidia/gpus/0000:5e:00.0/information", "GPU UUID: GPU-b\nDevice Minor: 0\n")
	w.file("var/run/tenon/device-infos/gpus.json", `[{"vendor":"nvidia","uuid":"GPU-a","minor":"1",`+
		`"topology":{"busID":"0000:3b:00.0"}},{"vendor":"nvidia","uuid":"GPU-b","minor":"0",`+
		`"topology":{"busID":"0000:5e:00.0"}}]`)
	w.objects.PrependReactor("patch", "devices", w.applyDevice)
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(t, err)
	node.Status.Capacity = object.List("nvidia.com/gpu", "2")
	if _, err := w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.options.DeviceMode = annotation.DeviceOwn
	return w
}

func (w *world) applyDevice(action clienttesting.Action) (bool, runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if err := gojson.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &u.Object); err != nil {
		return true, nil, err
	}
	u.SetResourceVersion(strconv.FormatInt(w.applies.Add(1), 10))
	u.SetUID("device-uid")
	if _, err := w.objects.Tracker().Get(device.Resource(), "", nodeName); err == nil {
		return true, u, w.objects.Tracker().Update(device.Resource(), u, "")
	}
	return true, u, w.objects.Tracker().Create(device.Resource(), u, "")
}

// device is the node's Device object.
func (w *world) device() *device.Device {
	w.t.Helper()
	o, err := w.objects.Tracker().Get(device.Resource(), "", nodeName)
	testkit.Check(w.t, err)
	d := &device.Device{}
	fields := o.(*unstructured.Unstructured).Object
	testkit.Check(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, d))
	return d
}

func (w *world) wantDevice(when, mode, holders string) {
	w.t.Helper()
	d := w.device()
	if got := d.Annotations[annotation.DeviceModeKey]; got != mode {
		w.t.Errorf("%s: mode %q, want %q", when, got, mode)
	}
	if got := d.Annotations[annotation.DevicesCheckpointsKey]; got != holders {
		w.t.Errorf("%s: holders %s, want %s", when, got, holders)
	}
}

// gave is the kubelet's checkpoint of GPUs, by pod.
func gave(gpus map[string]string) string {
	var entries []string
	for name, gpu := range gpus {
		entries = append(entries, fmt.Sprintf(`{"PodUID":"uid-%s","ContainerName":"main",`+
			`"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":[%q]},"AllocResp":""}`, name, gpu))
	}
	return `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") +
		`],"RegisteredDevices":{"nvidia.com/gpu":["GPU-a","GPU-b"]}},"Checksum":1}`
}

func askingForGPU(name, allocated string) *corev1.Pod {
	p := pod(name, "", "1", "")
	p.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = resource.MustParse("1")
	p.Status.StartTime = &metav1.Time{Time: time.Unix(0, 0)}
	if allocated != "" {
		p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"` + allocated + `","resources":{}}]}`
	}
	return p
}

const held = `[{"podUID":"uid-a","containerName":"main","resourceName":"nvidia.com/gpu","deviceIDs":["GPU-a"]}]`

// TestANodeMovesInFromTheKubelet: from the first look on the pods of the kubelet are published, they keep what they
// have, and with the last of them the node is Tenon's.
func TestANodeMovesInFromTheKubelet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMoving(t)
		w.file(deviceFile, gave(map[string]string{"a": "GPU-a"}))
		a := askingForGPU("a", "")
		w.create(a)
		w.options.DeviceMode = ""
		w.run(func(ag *app.Agent) {
			w.wantDevice("without configuration", annotation.DeviceFollow, held)
			wantVisible(t, ag, "without configuration", "-", "-")
		})
		w.options.DeviceMode = annotation.DeviceOwn
		w.run(func(ag *app.Agent) {
			w.wantDevice("configured for Own", annotation.DeviceMoving, held)
			wantVisible(t, ag, "while a pod has a GPU of the kubelet", "-", `DeviceConflict: container "main" of `+
				`pod u: the pod with UID uid-a has gpu GPU-a of another program than Tenon's scheduler`)
			w.file(deviceFile, gave(map[string]string{"a": "GPU-a", "b": "GPU-b"})) // what b asked for it got elsewhere
			w.create(askingForGPU("b", "GPU-b"))
			later(time.Minute)
			w.wantDevice("with a pod of Tenon", annotation.DeviceMoving, held)
			w.remove(a)
			later(time.Minute)
			w.wantDevice("after the last pod of the kubelet", annotation.DeviceOwn, "[]")
			wantVisible(t, ag, "after it", "void", "GPU-a")
		})
		w.options.DeviceMode = annotation.DeviceFollow
		w.run(func(ag *app.Agent) {
			w.wantDevice("configured for Follow", annotation.DeviceFollow, "[]")
			wantVisible(t, ag, "configured for Follow", "-", "-")
		})
	})
}

// TestContradictionsAboutDevices: a pod that is gone from the API while the kubelet has it keeps its GPU, a GPU of two
// pods is reported, and so is one that two sources name differently.
func TestContradictionsAboutDevices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMoving(t)
		var named atomic.Pointer[[]kubeletapi.Pod]
		named.Store(&[]kubeletapi.Pod{{Namespace: "default", Name: "a", Containers: map[string]kubeletapi.Container{
			"main": {Devices: []host.Device{{Resource: "nvidia.com/gpu", ID: "GPU-a"}}},
		}}})
		w.options.AskResources = resources(func(context.Context) (kubeletapi.Resources, error) {
			return kubeletapi.Resources{Pods: *named.Load()}, nil
		})
		w.file(deviceFile, gave(map[string]string{"a": "GPU-a"}))
		a, metric := askingForGPU("a", ""), w.metrics()
		w.create(a)
		contradictory := event.DeviceHoldersUnclear
		w.run(func(*app.Agent) {
			later(time.Minute)
			if got := w.condition(contradictory); got != "" {
				t.Errorf("a pod of the kubelet: condition %q: %s", got, w.message(contradictory))
			}
			w.remove(a)
			later(2 * time.Minute)
			if got := w.message(contradictory); w.condition(contradictory) != "True" ||
				!strings.Contains(got, "pods that the API does not have (namespace/name or UID): default/a") {
				t.Errorf("a pod that was deleted by force: %q", got)
			}
			w.wantDevice("a pod that was deleted by force", annotation.DeviceMoving,
				strings.Replace(held, "uid-a", "default/a", 1))
			w.create(askingForGPU("b", "GPU-a"))
			later(2 * time.Minute)
			if got := w.message(contradictory); !strings.Contains(got, "the kubelet allocated GPU-a, which Tenon's") {
				t.Errorf("a GPU of two pods: %q", got)
			}
			counted, foreign := metric("allocation_mismatch_total", "PodResources"), metric("foreign_devices")
			if counted != 2 || foreign != 1 {
				t.Errorf("%v contradictions and %v devices of others are counted, want 2 and 1", counted, foreign)
			}
			named.Store(&[]kubeletapi.Pod{})
			later(2 * time.Minute)
			if got := w.condition(contradictory); got != "False" {
				t.Errorf("when it has ended: condition %q, %s", got, w.message(contradictory))
			}
			if got := metric("foreign_devices"); got != 0 {
				t.Errorf("when it has ended: %v devices of others are counted", got)
			}
			w.wantDevice("when it has ended", annotation.DeviceOwn, "[]")
		})
		w.file(deviceFile, gave(map[string]string{"c": "GPU-b"}))
		named.Store(&[]kubeletapi.Pod{{Namespace: "default", Name: "c", Containers: map[string]kubeletapi.Container{
			"main": {Devices: []host.Device{{Resource: "nvidia.com/gpu", ID: "GPU-a"}}},
		}}})
		w.create(askingForGPU("c", ""))
		w.run(func(*app.Agent) {
			later(2 * time.Minute)
			if got := w.message(contradictory); !strings.Contains(got, "for one container: GPU-a, GPU-b") {
				t.Errorf("sources that disagree: %q", got)
			}
			for _, d := range w.device().Spec.Devices {
				if !meta.IsStatusConditionTrue(d.Conditions, device.Foreign) {
					t.Errorf("%s has the conditions %v", d.ID, d.Conditions)
				}
			}
			applies := w.applies.Load()
			later(10 * time.Minute)
			if now := w.applies.Load(); now != applies {
				t.Errorf("%d writes while nothing changed", now-applies)
			}
		})
	})
}
