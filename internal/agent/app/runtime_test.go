package app_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestANodeWhoseRuntimeIsNotConnectedSaysSo: the rest of the agent works, and the cause is reported once.
func TestANodeWhoseRuntimeIsNotConnectedSaysSo(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.unasked, w.options.Recorder, w.options.NRISocket = true, recorder, w.root.Path("missing.sock")
		metric := w.metrics()
		w.run(func(a *app.Agent) {
			later(time.Minute)
			if got := w.condition(event.EnforcementDegraded); got != "True" {
				t.Errorf("condition = %q, want True", got)
			}
			if got := w.message(event.EnforcementDegraded); !strings.Contains(got, "missing.sock") {
				t.Errorf("message = %q, want the socket's name in it", got)
			}
			ls := pod("ls", "LS", "1500m", "")
			w.create(ls)
			if _, err := w.start(a, ls); err != nil {
				t.Errorf("start = %v, want nil", err)
			}
		})
		close(recorder.Events)
		sent := 0
		for e := range recorder.Events {
			if strings.Contains(e, "NRIDisconnected") {
				sent++
			}
		}
		if lost := metric("nri_disconnects_total"); sent != 1 || lost != 1 {
			t.Errorf("%d Events and a metric of %v, want one", sent, lost)
		}
	})
}

// TestAStaticPodIsKnownByTheUIDOfItsNode: its object in the API is a mirror with another one.
func TestAStaticPodIsKnownByTheUIDOfItsNode(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			mirror := pod("static", "LSR", "2", "2-3")
			mirror.UID, mirror.Annotations[corev1.MirrorPodAnnotationKey] = "of-the-api", "of-the-node"
			w.create(mirror)
			onNode := mirror.DeepCopy()
			onNode.UID = types.UID("of-the-node")
			c, err := w.start(a, onNode)
			if err != nil {
				t.Fatalf("start = %v, want nil", err)
			}
			if got := w.cpuset(c); got != "2-3" {
				t.Errorf("cpuset = %q, want 2-3", got)
			}
			if err := w.client.CoreV1().Pods("default").Delete(t.Context(), "static",
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			later(time.Second)
			c.ID, c.Cgroup = "next", c.Pod.Cgroup+"/next"
			if _, _, err := a.Attach().Create(t.Context(), c); err == nil {
				t.Error("a container of a deleted pod is created")
			}
		})
	})
}

// TestAStaticPodThatTheKubeletPinnedKeepsItsCPUs: the kubelet records it by the UID of its node, the API has a mirror
// pod.
func TestAStaticPodThatTheKubeletPinnedKeepsItsCPUs(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		mirror := pod("static", "", "2", "")
		mirror.UID, mirror.Annotations[corev1.MirrorPodAnnotationKey] = "of-the-api", "of-the-node"
		mirror.Status.QOSClass = corev1.PodQOSGuaranteed
		mirror.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())},
		}}}
		w.create(mirror)
		w.state(
			`{"policyName":"static","defaultCpuSet":"0-4,7-63","entries":{"of-the-node":{"main":"5-6"}},"checksum":1}`)
		c := hook.Container{Name: "main", Cgroup: "kubepods/podof-the-node/c1"}
		testkit.Check(t, errors.Join(w.tree.MkdirAll(c.Cgroup), w.tree.Write(c.Cgroup, desired.CPUs, "5-6")))
		if _, err := w.tree.Spawn(c.Cgroup); err != nil {
			t.Fatal(err)
		}
		later(time.Minute)
		w.run(func(a *app.Agent) {
			later(time.Minute)
			if got := w.cpuset(c); got != "5-6" {
				t.Errorf("cpuset = %q, want the kubelet's 5-6", got)
			}
			if got := w.published(annotation.PodCPUAllocsKey); !strings.Contains(got,
				`"uid":"of-the-api","cpuset":"5-6","managedByKubelet":true`) {
				t.Errorf("published allocations = %s, want those of the mirror's UID", got)
			}
			if got, ok := a.Inspect("default", "static"); !ok || len(got.Groups) != 1 {
				t.Errorf("inspect = %+v, %v, want the group of the container", got, ok)
			}
		})
	})
}
