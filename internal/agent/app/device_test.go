package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const driver = "proc/driver/nvidia/gpus/0000:3b:00.0/information"

// newAccelerated is a node with a GPU, whose Device object is not there yet.
func newAccelerated(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "arm64-1s")
	w.file("proc/devices", "Character devices:\n195 nvidia\n")
	w.file(driver, "GPU UUID: GPU-a\nDevice Minor: 1\n")
	w.client.Resources = append(w.client.Resources, &metav1.APIResourceList{
		GroupVersion: device.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: "devices"}},
	})
	return w
}

// mode writes the node's Device object, and waits until it is read.
func (w *world) mode(mode string) {
	w.t.Helper()
	w.putMode(mode)
	later(100 * time.Millisecond)
}

func (w *world) putMode(mode string) {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": device.GroupVersion().String(), "kind": "Device",
		"metadata": map[string]any{
			"name": nodeName, "annotations": map[string]any{annotation.DeviceModeKey: mode},
		},
		"spec": map[string]any{"devices": []any{
			map[string]any{"type": "gpu", "id": "GPU-a", "health": true},
		}},
	}}
	devices := w.objects.Resource(device.Resource())
	_, err := devices.Update(w.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		_, err = devices.Create(w.t.Context(), u, metav1.CreateOptions{})
	}
	testkit.Check(w.t, err)
}

// putGPUs makes the Node have a GPU of the kubelet, of which so many are left.
func (w *world) putGPUs(left string) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	node.Status.Capacity = object.List("nvidia.com/gpu", "1")
	node.Status.Allocatable = object.List("nvidia.com/gpu", left)
	if _, err := w.client.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// visible is what a container is to see; "-" where the agent leaves it alone.
func visible(a *app.Agent, allocated string) string {
	c := hook.Container{Name: "main", Pod: hook.Pod{UID: "u", Annotations: map[string]string{}}}
	if allocated != "" {
		c.Annotations[annotation.DeviceAllocatedKey] = allocated
	}
	answer, err := a.Attach().Devices(c)
	switch {
	case err != nil:
		return err.Error()
	case answer.IsEmpty():
		return "-"
	}
	return answer.Env["NVIDIA_VISIBLE_DEVICES"]
}

const gpuA = `{"gpu":[{"id":"GPU-a","resources":{}}]}`

func wantVisible(t *testing.T, a *app.Agent, when, plain, allocated string) {
	t.Helper()
	if got := visible(a, ""); got != plain {
		t.Errorf("%s: a plain container sees %q, want %q", when, got, plain)
	}
	if got := visible(a, gpuA); got != allocated {
		t.Errorf("%s: a container with an allocation sees %q, want %q", when, got, allocated)
	}
}

func TestContainersSeeWhatTheModeOfTheNodeSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.run(func(a *app.Agent) {
			wantVisible(t, a, "without a Device", "-", "GPU-a")
			w.mode("")
			wantVisible(t, a, "by default", "void", "GPU-a")
			w.mode("Moving")
			wantVisible(t, a, "while it moves", "-", "GPU-a")
			w.mode("Own")
			wantVisible(t, a, "under Own", "void", "GPU-a")
			w.mode("Mine")
			wantVisible(t, a, "under an unknown mode, which changes nothing", "void", "GPU-a")
			w.mode("Follow")
			wantVisible(t, a, "under Follow", "-", "-")
		})
	})
}

// Without what an earlier agent kept, a container that started while the API server was away would see every GPU.
func TestARestartedAgentKnowsTheModeWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		gone := w.away()
		w.mode("Own")
		w.run(func(a *app.Agent) { wantVisible(t, a, "with the API server", "void", "GPU-a") })
		gone.Store(true)
		w.run(func(a *app.Agent) { wantVisible(t, a, "without it", "void", "GPU-a") })
	})
}

func TestADeletedDeviceObjectFreesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.mode("Own")
		w.run(func(a *app.Agent) {
			if err := w.objects.Resource(device.Resource()).Delete(t.Context(), nodeName,
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			later(time.Second)
			wantVisible(t, a, "after the deletion", "void", "GPU-a")
		})
	})
}

func TestACardThatVanishesIsNotGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.mode("Own")
		w.run(func(a *app.Agent) {
			testkit.Check(t, os.RemoveAll(filepath.Join(w.root.Dir, filepath.Dir(driver))))
			later(w.options.Resync)
			wantVisible(t, a, "without the card", "void",
				`DeviceUnavailable: container "main" of pod u: no driver of this machine has the gpu "GPU-a"`)
			w.file(driver, "GPU UUID: GPU-a\nDevice Minor: 0\n")
			later(w.options.Resync)
			wantVisible(t, a, "when it is back", "void", "GPU-a")
		})
	})
}

// named are the CDI devices of a container with an allocation.
func named(t *testing.T, a *app.Agent) string {
	t.Helper()
	answer, err := a.Attach().Devices(hook.Container{Name: "main", Pod: hook.Pod{
		UID: "u", Annotations: map[string]string{annotation.DeviceAllocatedKey: gpuA},
	}})
	if err != nil || len(answer.Files) == 0 {
		t.Errorf("got files %v, %v; want some, whatever describes them", answer.Files, err)
	}
	return strings.Join(answer.CDI, ",")
}

func TestTheCardsThatThereAreAreDescribedToTheRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		const file, device = "run/cdi/tenon.sh-gpu.json", "tenon.sh/gpu=GPU-a"
		text := func() string {
			text, err := os.ReadFile(w.root.Path(file))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return string(text)
		}
		whole := ""
		w.run(func(a *app.Agent) {
			if whole = text(); named(t, a) != device || !strings.Contains(whole, "/dev/nvidia1") {
				t.Errorf("the container is given %q of %s", named(t, a), whole)
			}
			w.file(driver, "GPU UUID: GPU-a\nDevice Minor: 0\n")
			later(w.options.Resync)
			if named(t, a) != device || !strings.Contains(text(), "/dev/nvidia0") {
				t.Errorf("after the driver was loaded anew the container is given %q of %s", named(t, a), text())
			}
			w.file("run/cdi/tenon.sh-gpu.yaml", "cdiVersion: 0.5.0\nkind: tenon.sh/gpu\ndevices: [{name: GPU-x}]\n")
			later(w.options.Resync)
			if got := named(t, a); got != "" || text() != "" {
				t.Errorf("beside the administrator's file the container is given %q of %s", got, text())
			}
		})
		// An agent that was killed while it wrote, on a machine that had other cards before.
		testkit.Check(t, os.Remove(w.root.Path("run/cdi/tenon.sh-gpu.yaml")))
		w.file(file, strings.ReplaceAll(whole, "GPU-a", "GPU-old"))
		w.file(file+".new", whole[:20])
		w.file(driver, "GPU UUID: GPU-a\nDevice Minor: 1\n")
		w.run(func(a *app.Agent) {
			if got := named(t, a); got != device || text() != whole {
				t.Errorf("after a restart the container is given %q of %s, want %s", got, text(), whole)
			}
			testkit.Check(t, os.RemoveAll(w.root.Path("proc/driver")))
			later(w.options.Resync)
			if got := text(); got != "" {
				t.Errorf("without cards there is %s", got)
			}
		})
	})
}

func TestCardsThatCannotBeDescribedAreGivenByTheirFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.file("run/cdi", "") // not a folder
		w.run(func(a *app.Agent) {
			if got := named(t, a); got != "" {
				t.Errorf("the container is given %s, which no runtime can resolve", got)
			}
		})
	})
}

// TestANodeOfDropFilesAloneFollowsItsDevice: it has no card whose files a container could get.
func TestANodeOfDropFilesAloneFollowsItsDevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		testkit.Check(t, os.RemoveAll(w.root.Path("proc/driver")))
		w.file("var/run/tenon/device-infos/f.json", `[{"type":"dpu","uuid":"d"}]`)
		w.mode("Follow")
		w.run(func(a *app.Agent) {
			later(w.options.Resync)
			if got := visible(a, `{"dpu":[{"id":"d","resources":{}}]}`); got != "-" {
				t.Errorf("a container with an allocation sees %q under Follow, want what its plugin gives", got)
			}
		})
	})
}

// TestALostPluginIsNoticedBeforeTheResync: the agent looks at its devices, and so at the plugins that the node needs,
// when the Node says that the kubelet has none left to give.
func TestALostPluginIsNoticedBeforeTheResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.options.Resync = time.Hour
		w.putGPUs("1")
		w.mode("Own")
		w.run(func(a *app.Agent) {
			testkit.Check(t, os.RemoveAll(w.root.Path("proc/driver")))
			later(time.Minute)
			wantVisible(t, a, "before", "void", "GPU-a")
			w.putGPUs("0")
			later(time.Second)
			wantVisible(t, a, "after", "void",
				`DeviceUnavailable: container "main" of pod u: no driver of this machine has the gpu "GPU-a"`)
		})
	})
}

// A MIG device that a driver describes is given with its files and those of its GPU; one without is not given.
func TestContainersGetTheSlicesThatDriversDescribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		slice := func(id string, files ...host.DeviceFile) host.Dropped {
			return host.Dropped{
				Type: "gpu", UUID: id, Labels: map[string]string{annotation.MIGParentLabel: "GPU-a"}, Files: files,
			}
		}
		w.options.Drivers = []inventory.Driver{{Name: "slices", Devices: func() ([]host.Dropped, error) {
			opens := host.DeviceFile{Path: "/dev/nvidia-caps/nvidia-cap3", Major: 508, Minor: 3}
			return []host.Dropped{slice("MIG-1", opens), slice("MIG-2")}, nil
		}}}
		w.run(func(a *app.Agent) {
			later(3 * time.Minute)
			w.mode("Own")
			for id, want := range map[string]string{
				"MIG-1": "MIG-1", "MIG-2": `no driver of this machine has the gpu "MIG-2"`,
			} {
				if got := visible(a, `{"gpu":[{"id":"`+id+`","resources":{}}]}`); !strings.Contains(got, want) {
					t.Errorf("a container with %s sees %q, want %q", id, got, want)
				}
			}
		})
	})
}

// What drivers and drop files have is in one object. A device that a driver loses stays listed until the machine starts
// again.
func TestTheAgentPublishesWhatDriversHave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.objects.PrependReactor("patch", "devices", w.apply)
		w.file("var/run/tenon/device-infos/f.json", `[{"uuid":"GPU-a","resources":{"gpu-memory":"80Gi"}},`+
			`{"type":"dpu","uuid":"d"}]`)
		listed := func() (text string) {
			u, err := w.objects.Resource(device.Resource()).Get(t.Context(), nodeName, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			devices, _, _ := unstructured.NestedSlice(u.Object, "spec", "devices")
			for _, d := range devices {
				d := d.(map[string]any)
				memory, _, _ := unstructured.NestedString(d, "resources", "koordinator.sh/gpu-memory")
				text += fmt.Sprint(d["type"], " ", d["id"], " ", d["health"], " ", memory, ";")
			}
			return text
		}
		w.run(func(*app.Agent) {
			later(3 * time.Minute)
			if got, want := listed(), "dpu d true ;gpu GPU-a true 80Gi;"; got != want {
				t.Errorf("the object lists %q, want %q", got, want)
			}
			testkit.Check(t, os.RemoveAll(filepath.Join(w.root.Dir, filepath.Dir(driver))))
			w.file("var/run/tenon/device-infos/f.json", `[]`)
			later(3 * time.Minute)
			if got, want := listed(), "gpu GPU-a false 80Gi;"; got != want {
				t.Errorf("after the driver has lost it, the object lists %q, want %q", got, want)
			}
		})
	})
}
