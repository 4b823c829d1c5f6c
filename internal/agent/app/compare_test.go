package app_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/testkit"
)

// At every resync, and as soon as a runtime has reported its containers.
func TestAContainerThatCanUseAnotherCardIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		metric := w.metrics()
		w.mode("Own")
		w.run(func(a *app.Agent) {
			p := pod("plain", "", "1", "")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			group := "sys/fs/cgroup/devices/" + c.Cgroup
			w.file(group+"/cgroup.procs", "12\n")
			w.file(group+"/devices.list", "c 1:3 rwm\n")
			later(w.options.Resync)
			if got := drained(recorder, "DeviceMismatch"); got != "" {
				t.Errorf("reported %q of a container without devices", got)
			}
			w.file(group+"/devices.list", "c 195:1 rw\n")
			later(w.options.Resync)
			later(w.options.Resync)
			const want = `Warning DeviceMismatch container "main" runs: another writer, such as a device plugin of ` +
				`the kubelet, gives it /dev/nvidia1 of a card that was not allocated to it`
			if got := drained(recorder, "DeviceMismatch"); got != want {
				t.Errorf("reported %q, want once: %s", got, want)
			}
			c.Running = true
			a.Attach().Sync([]hook.Pod{c.Pod}, []hook.Container{c})
			later(w.options.Resync) // it was found at once, and now
			if got := drained(recorder, "DeviceMismatch"); got != want {
				t.Errorf("reported %q after the runtime came back, want once: %s", got, want)
			}
			wantVisible(t, a, "meanwhile", "void", "GPU-a")
			if metric("allocation_mismatch_total", "kernel") != 2 || metric("injection_seconds") < 2 {
				t.Errorf("%v reports and %v answers are counted, want 2 and as many answers",
					metric("allocation_mismatch_total", "kernel"), metric("injection_seconds"))
			}
		})
	})
}

// The driver says which process uses how much memory; limits of shares are cooperative.
func TestAPodThatUsesMoreMemoryThanItHasIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		metric := w.metrics()
		var used atomic.Int64
		w.options.Drivers = []inventory.Driver{{Name: "library", Devices: func() ([]host.Dropped, error) {
			return []host.Dropped{{Type: "gpu", UUID: "GPU-a", Processes: map[int]int64{
				12: used.Load(), 13: 1 << 30, 14: 1 << 40, 15: 1 << 40, // 14 is of no pod, 15 has ended
			}}}, nil
		}}}
		for pid, group := range map[string]string{
			"12": "0::/kubepods/poduid-share/x", "14": "0::/system.slice/y",
			"13": "0::/kubepods.slice/kubepods-poduid_share.slice/cri-z.scope",
		} {
			w.file("proc/"+pid+"/cgroup", group+"\n")
		}
		share := pod("share", "", "1", "")
		share.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-a","resources":{` +
			`"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"4Gi"}}]}`
		w.create(share)
		w.run(func(*app.Agent) {
			const over = "Warning DeviceMemoryExceeded its processes use 5120 MiB of the memory of GPU-a, and " +
				"4096 MiB are allocated"
			for i, step := range []struct {
				gib  int64
				want string
			}{{3, ""}, {4, over}, {4, ""}, {3, ""}, {4, over}} {
				used.Store(step.gib << 30)
				later(time.Minute)
				if got := drained(recorder, "DeviceMemoryExceeded"); got != step.want {
					t.Errorf("step %d: reported %q, want %q", i, got, step.want)
				}
			}
			if got := metric("allocation_mismatch_total", "NVML"); got != 2 {
				t.Errorf("%v are counted, want 2", got)
			}
		})
	})
}

// The condition names what keeps pods to their parts of GPUs: nothing, a library, or the GPU itself.
func TestTheNodeSaysHowGPUsAreIsolated(t *testing.T) {
	t.Parallel()
	mig := host.Dropped{
		Type: "gpu", UUID: "MIG-a", Labels: map[string]string{annotation.MIGParentLabel: "GPU-a"},
		Resources: map[string]string{"gpu-core": "14"},
	}
	for name, c := range map[string]struct {
		mode, library string
		slices        []host.Dropped
		want          string
	}{
		"nothing":             {"Own", "", nil, "True None"},
		"a library":           {"Own", "HAMi-core", nil, "True Cooperative"},
		"MIG devices alone":   {"Own", "", []host.Dropped{mig}, ""},
		"GPUs of the kubelet": {"Follow", "", nil, ""},
		"a node that moves":   {"Moving", "", nil, "True None"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newAccelerated(t)
				w.options.Drivers = []inventory.Driver{{Name: "library", Devices: func() ([]host.Dropped, error) {
					return append([]host.Dropped{{Type: "gpu", UUID: "GPU-a"}}, c.slices...), nil
				}}}
				if c.library != "" {
					w.label(annotation.GPUIsolationLabel, c.library)
				}
				w.mode(c.mode)
				w.run(func(*app.Agent) {
					later(2 * time.Minute)
					node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
					testkit.Check(t, err)
					got := ""
					for _, s := range node.Status.Conditions {
						if s.Type == "tenon.sh/GPUIsolationWeak" {
							got = string(s.Status) + " " + s.Reason
						}
					}
					if got != c.want {
						t.Errorf("the condition is %q, want %q", got, c.want)
					}
				})
			})
		})
	}
}

// With the switch a best-effort pod that goes on using more is evicted, and no other one.
func TestABestEffortPodThatUsesMoreMemoryThanItHasIsEvicted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class  string
		evicts bool
		want   bool
	}{
		"a best-effort pod":  {"BE", true, true},
		"another pod":        {"LS", true, false},
		"without the switch": {"BE", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newAccelerated(t)
				w.options.EvictDeviceOveruse = c.evicts
				w.options.Drivers = []inventory.Driver{{Name: "library", Devices: func() ([]host.Dropped, error) {
					return []host.Dropped{{Type: "gpu", UUID: "GPU-a", Processes: map[int]int64{12: 5 << 30}}}, nil
				}}}
				w.file("proc/12/cgroup", "0::/kubepods/besteffort/poduid-share/x\n")
				share := pod("share", "", "1", "")
				share.Labels[annotation.QoSClass] = c.class
				share.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-a","resources":{` +
					`"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"4Gi"}}]}`
				w.create(share)
				gone := func() bool {
					_, err := w.client.CoreV1().Pods(share.Namespace).Get(t.Context(), share.Name, metav1.GetOptions{})
					return apierrors.IsNotFound(err)
				}
				w.run(func(*app.Agent) {
					later(30 * time.Second)
					if gone() {
						t.Error("it was evicted in the first minute")
					}
					if later(2 * time.Minute); gone() != c.want {
						t.Errorf("it is gone: %t, want %t", gone(), c.want)
					}
				})
			})
		})
	}
}

// metrics registers the metrics of an agent that is started later. What it returns reads the one with a name behind
// tenon_device_, and a source where it has one.
func (w *world) metrics() func(name string, source ...string) float64 {
	w.options.Shared = app.NewShared()
	registry := metrics.NewKubeRegistry()
	w.options.Shared.Metrics.Register(registry.MustRegister, registry.CustomMustRegister)
	return func(name string, source ...string) (sum float64) {
		w.t.Helper()
		families, err := registry.Gather()
		testkit.Check(w.t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				want := append([]string{w.options.Node}, source...)
				if f.GetName() == "tenon_device_"+name && slices.Equal(labels, want) {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
						float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return sum
	}
}

// drained takes all Events, and returns those of a reason.
func drained(r *events.FakeRecorder, reason string) string {
	var found []string
	for len(r.Events) > 0 {
		if e := <-r.Events; strings.Contains(e, reason) {
			found = append(found, e)
		}
	}
	return strings.Join(found, "\n")
}
