package app_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
)

// entry is what the kubelet's checkpoint has of a container.
func entry(pod, container, ids string) string {
	return fmt.Sprintf(`{"PodUID":"uid-%s","ContainerName":%q,"ResourceName":"nvidia.com/gpu","DeviceIDs":%s,`+
		`"AllocResp":""}`, pod, container, ids)
}

func checkpointOf(entries ...string) string {
	return `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") + `],"RegisteredDevices":{}},"Checksum":1}`
}

// holding is what is published of the containers of pod a, each with the same ids.
func holding(ids string, containers ...string) string {
	var list []string
	for _, c := range containers {
		list = append(list, fmt.Sprintf(`{"podUID":"uid-a","containerName":%q,"resourceName":"nvidia.com/gpu",`+
			`"deviceIDs":%s}`, c, ids))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// TestBadInputWhileANodeMovesIn: pod a has a GPU of the kubelet, whose word on it is bad in one way or another. The
// node is not Tenon's before it is known what the pod has, what any source names is held, and what is not clear is
// reported.
func TestBadInputWhileANodeMovesIn(t *testing.T) {
	t.Parallel()
	const unknown = "no source names the devices of the pods default/a"
	away := func(context.Context) (kubeletapi.Resources, error) {
		return kubeletapi.Resources{}, errors.New("no such file or directory")
	}
	hangs := func(ctx context.Context) (kubeletapi.Resources, error) {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second) // package kubeletapi has a limit of its own
		defer cancel()
		<-ctx.Done()
		return kubeletapi.Resources{}, ctx.Err()
	}
	for name, test := range map[string]struct {
		file    string
		asks    resources
		env     string // of the pod's running container
		holders string
		unclear string       // of the condition DeviceHoldersUnclear
		because event.Reason // another condition that is True
		free    bool         // GPU-a is given to a container of Tenon, which the scheduler would not do
	}{
		"a wrong checksum":              {file: checkpointOf(entry("a", "main", `{"-1":["GPU-a"]}`)), holders: held},
		"ids as a list, as before 1.20": {file: checkpointOf(entry("a", "main", `["GPU-a"]`)), holders: held},
		"an id twice for one container": {
			file: checkpointOf(entry("a", "main", `{"-1":["GPU-a","GPU-a"],"0":["GPU-a"]}`)), holders: held,
		},
		"an id for two containers of a pod": {
			file:    checkpointOf(entry("a", "first", `["GPU-a"]`), entry("a", "main", `["GPU-a"]`)),
			holders: holding(`["GPU-a"]`, "first", "main"),
		},
		"an id for two pods": {
			file:    checkpointOf(entry("a", "main", `["GPU-a"]`), entry("b", "main", `["GPU-a"]`)),
			unclear: unknown, because: event.KubeletStateUnreadable, free: true,
		},
		"a torn checkpoint": {
			file: checkpointOf(entry("a", "main", `["GPU-a"]`))[:60], unclear: unknown,
			because: event.KubeletStateUnreadable, free: true,
		},
		"an id that no device has": {
			file:    checkpointOf(entry("a", "main", `["GPU-x"]`)),
			holders: holding(`["GPU-x"]`, "main"), free: true,
			unclear: "the kubelet's pods have the devices GPU-x, which the Device object does not list",
		},
		"ids, one of them known": {
			file: checkpointOf(entry("a", "main", `["GPU-a","GPU-x"]`)), holders: holding(`["GPU-a","GPU-x"]`, "main"),
			unclear: "the devices GPU-x, which the Device object does not list",
		},
		"PodResources away": {
			file: checkpointOf(entry("a", "main", `["GPU-a"]`)), asks: away, holders: held,
			because: event.TopologySourceDegraded,
		},
		"PodResources hanging": {
			file: checkpointOf(entry("a", "main", `["GPU-a"]`)), asks: hangs, holders: held,
			because: event.TopologySourceDegraded,
		},
		"PodResources away, and no checkpoint": {
			asks: away, unclear: unknown, because: event.TopologySourceDegraded, free: true,
		},
		"a variable of a running container alone": {env: "GPU-a", holders: held},
		"a variable that names no device of the node": {
			env: "GPU-x", holders: holding(`["GPU-x"]`, "main"), unclear: "the devices GPU-x, which", free: true,
		},
		"a variable beside a checkpoint that names another GPU": {
			file: checkpointOf(entry("a", "main", `["GPU-a"]`)), env: "GPU-b",
			holders: holding(`["GPU-a","GPU-b"]`, "main"),
			unclear: "the sources name different devices for one container: GPU-a, GPU-b",
		},
		"a variable that names all GPUs": {env: "all", unclear: unknown, free: true},
		"no source at all":               {unclear: unknown, free: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newMoving(t)
				if test.asks != nil {
					w.options.AskResources = test.asks
				}
				if test.file != "" {
					w.file(deviceFile, test.file)
				}
				w.create(askingForGPU("a", ""))
				w.run(func(ag *app.Agent) {
					if test.env != "" {
						p := hook.Pod{UID: "uid-a", Namespace: "default", Name: "a"}
						ag.Attach().Sync([]hook.Pod{p}, []hook.Container{{
							Pod: p, ID: "c1", Name: "main", Running: true,
							Devices: inject.Sight{Env: []string{"NVIDIA_VISIBLE_DEVICES=" + test.env}},
						}})
					}
					later(2 * time.Minute)
					w.wantDevice("after two minutes", annotation.DeviceMoving, test.holders)
					w.wantUnclear("after two minutes", test.unclear)
					for _, kind := range []event.Reason{event.KubeletStateUnreadable, event.TopologySourceDegraded} {
						if got := w.condition(kind); (got == "True") != (kind == test.because) {
							t.Errorf("condition %s is %q: %s", kind, got, w.message(kind))
						}
					}
					if got := visible(ag, gpuA); (got == "GPU-a") != test.free ||
						!test.free && !strings.Contains(got, "DeviceConflict") {
						t.Errorf("a container of Tenon with GPU-a: %q, want it: %t", got, test.free)
					}
				})
			})
		})
	}
}

// wantUnclear checks what the Node says of holders that are not clear; "" for nothing.
func (w *world) wantUnclear(when, text string) {
	w.t.Helper()
	status, says := w.condition(event.DeviceHoldersUnclear), w.message(event.DeviceHoldersUnclear)
	if text == "" && status == "True" || text != "" && (status != "True" || !strings.Contains(says, text)) {
		w.t.Errorf("%s: the condition is %q: %s; want %q", when, status, says, text)
	}
}

// TestHoldersThatAreUnclearForLong: a kubelet that never says what a pod has closes the node for as long as that lasts,
// without a write while nothing changes. What it says then counts at once.
func TestHoldersThatAreUnclearForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMoving(t)
		var pods atomic.Pointer[[]kubeletapi.Pod]
		pods.Store(&[]kubeletapi.Pod{})
		w.options.AskResources = resources(func(context.Context) (kubeletapi.Resources, error) {
			return kubeletapi.Resources{Pods: *pods.Load()}, nil
		})
		w.create(askingForGPU("a", ""))
		w.run(func(*app.Agent) {
			w.wantUnclear("at the beginning", "")
			later(2 * time.Minute)
			w.wantUnclear("after two minutes", "of the pods default/a")
			applies := w.applies.Load()
			later(time.Hour)
			w.wantUnclear("after an hour", "of the pods default/a")
			w.wantDevice("after an hour", annotation.DeviceMoving, "")
			if now := w.applies.Load(); now != applies {
				t.Errorf("%d writes while nothing changed", now-applies)
			}
			pods.Store(&[]kubeletapi.Pod{{Namespace: "default", Name: "a", Containers: map[string]kubeletapi.Container{
				"main": {Devices: []host.Device{{Resource: "nvidia.com/gpu", ID: "GPU-a"}}},
			}}})
			later(2 * time.Minute)
			w.wantUnclear("once the kubelet says it", "")
			w.wantDevice("once the kubelet says it", annotation.DeviceMoving, held)
			pods.Store(&[]kubeletapi.Pod{})
			w.remove(&corev1.Pod{ObjectMeta: askingForGPU("a", "").ObjectMeta})
			later(2 * time.Minute)
			w.wantDevice("after the pod", annotation.DeviceOwn, "[]")
		})
	})
}

// TestADeletedDeviceObjectGivesNothingBack: a Device that is deleted comes back as it was. The kubelet's plugin still
// has all GPUs, and would give them out again if the node were its own: it never is while a pod has one of Tenon.
func TestADeletedDeviceObjectGivesNothingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMoving(t)
		w.options.DeviceMode = ""
		own := askingForGPU("own", "GPU-a")
		w.create(own)
		remove := func() {
			t.Helper()
			devices := w.objects.Resource(device.Resource())
			testkit.Check(t, devices.Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
			later(2 * time.Minute)
		}
		w.run(func(ag *app.Agent) {
			w.wantDevice("without an object, beside a pod of Tenon", annotation.DeviceMoving, "")
			remove()
			w.wantDevice("after it was deleted", annotation.DeviceMoving, "")
			wantVisible(t, ag, "after it was deleted", "-", "GPU-a")
			w.remove(own)
			remove()
			w.wantDevice("without a pod of Tenon", annotation.DeviceMoving, "")
		})
		remove()
		w.run(func(*app.Agent) {
			w.wantDevice("for another agent, without a pod of Tenon", annotation.DeviceFollow, "")
		})
	})
}
