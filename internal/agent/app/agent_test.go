package app_test

import (
	"context"
	gojson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const nodeName = "n0"

// Conditions that tests look at often.
const (
	sourceDegraded = event.TopologySourceDegraded
	modeConflict   = event.TopologyModeConflict
	unreadable     = event.KubeletStateUnreadable
	contradictory  = event.KubeletStateContradictory
)

// world is one node: a generated machine with a simulated kernel, and an API server in memory.
type world struct {
	t       *testing.T
	root    host.Root
	tree    *kernel.Tree
	client  *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	options app.Options
	applies atomic.Int64
	// unasked: no container runtime is connected.
	unasked bool
}

// inWorld runs a test beside others, with a clock of its own, on a node of a machine spec.
func inWorld(t *testing.T, spec string, play func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { play(t, newWorld(t, spec)) })
}

// newWorld makes a node of a machine spec such as arm64-1s@static.
func newWorld(t *testing.T, spec string) *world {
	t.Helper()
	d, _, err := machine.Parse(spec)
	testkit.Check(t, err)
	w := &world{t: t, root: host.Root{Dir: filepath.Join(testkit.Dir(t), nodeName)}}
	testkit.Check(t, d.Write(w.root.Dir))
	reading, err := host.Read(w.root, "")
	testkit.Check(t, err)
	if w.tree, err = kernel.Open(kernel.Options{Dialect: desired.V2, Machine: reading.Machine}); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, w.tree.MkdirAll("kubepods"))
	node := object.Node(nodeName, map[string]string{corev1.LabelArchStable: "amd64"})
	node.UID = "node-uid"
	w.client = fake.NewClientset(node)
	w.client.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha2.GroupVersion().String(),
		APIResources: []metav1.APIResource{{Name: "noderesourcetopologies"}},
	}}
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha2.Resource(): "NodeResourceTopologyList", device.Resource(): "DeviceList",
			slo.NodeSLOs(): "NodeSLOList", slo.NodeMetrics(): "NodeMetricList",
		})
	w.objects.PrependReactor("patch", "noderesourcetopologies", w.apply)
	w.options = app.Options{
		Node: nodeName, Root: w.root, Client: w.client, Dynamic: w.objects, Kubelet: d.Kubelet, Cgroup: w.tree,
		Switches: probe.Switches{QueryKubelet: true, CPUSetAllocator: true}, Resync: 10 * time.Second, Version: "test",
		ServeNRI: nri.Run,
	}
	return w
}

// apply stores what is applied as it is: package report tests the rules of ownership.
func (w *world) apply(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	if patch.GetPatchType() != types.ApplyPatchType {
		return true, nil, fmt.Errorf("patch of type %s, want server-side apply", patch.GetPatchType())
	}
	u := &unstructured.Unstructured{}
	if err := gojson.Unmarshal(patch.GetPatch(), &u.Object); err != nil {
		return true, nil, err
	}
	u.SetResourceVersion(strconv.FormatInt(w.applies.Add(1), 10))
	u.SetUID("nrt-uid")
	if _, err := w.objects.Tracker().Get(patch.GetResource(), "", nodeName); err == nil {
		return true, u, w.objects.Tracker().Update(patch.GetResource(), u, "")
	}
	return true, u, w.objects.Tracker().Create(patch.GetResource(), u, "")
}

// run lets play happen beside a running agent.
func (w *world) run(play func(a *app.Agent)) {
	w.t.Helper()
	a, err := app.New(w.options)
	testkit.Check(w.t, err)
	if !w.unasked {
		a.Attach()
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	later(5 * time.Second)
	play(a)
	cancel()
	if err := <-done; err != nil {
		w.t.Errorf("Run = %v, want nil at the end of its context", err)
	}
}

func later(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's

// published returns an annotation of the object in the API.
func (w *world) published(key string) string {
	w.t.Helper()
	o, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName)
	if err != nil {
		return err.Error()
	}
	return o.(*unstructured.Unstructured).GetAnnotations()[key]
}

func (w *world) condition(kind event.Reason) string {
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	for _, c := range node.Status.Conditions {
		if string(c.Type) == kind.Condition() {
			return string(c.Status)
		}
	}
	return ""
}

func (w *world) label(key, value string) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	node.Labels[key] = value
	if _, err := w.client.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func pod(name, class, cpus, cpuset string) *corev1.Pod {
	return object.Pod(name, object.UID("uid-"+name), object.On(nodeName), object.Class(class), object.CPUs(cpuset),
		object.Both("cpu", cpus, "memory", "1Gi"))
}

func (w *world) create(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods(p.Namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	later(100 * time.Millisecond)
}

// start plays the runtime: sandbox, group, what the agent answers, first process.
func (w *world) start(a *app.Agent, p *corev1.Pod) (hook.Container, error) {
	w.t.Helper()
	c := hook.Container{ID: "c-" + string(p.UID), Name: "main", Pod: hook.Pod{
		ID: "s-" + string(p.UID), UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
		Annotations: p.Annotations, Cgroup: "kubepods/pod" + string(p.UID),
	}}
	c.Cgroup = c.Pod.Cgroup + "/" + c.ID
	testkit.Check(w.t, w.tree.MkdirAll(c.Cgroup))
	runtime := a.Attach()
	if err := runtime.RunPod(w.t.Context(), c.Pod); err != nil {
		return c, err
	}
	answer, _, err := runtime.Create(w.t.Context(), c)
	if err != nil {
		return c, err
	}
	for file, value := range map[string]string{desired.CPUs: answer.CPUs, desired.Mems: answer.Mems} {
		if value == "" {
			continue
		}
		testkit.Check(w.t, w.tree.Write(c.Cgroup, file, value))
	}
	if err := runtime.Start(w.t.Context(), c); err != nil {
		return c, err
	}
	_, err = w.tree.Spawn(c.Cgroup)
	return c, err
}

func (w *world) cpuset(c hook.Container) string {
	w.t.Helper()
	text, err := w.tree.Read(c.Cgroup, desired.CPUs)
	testkit.Check(w.t, err)
	return text
}

func TestAllocationReachesTheCgroupAndThePublishedPools(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			if err := a.Ready(); err != nil {
				t.Fatalf("not ready after 5 s: %v", err)
			}
			ls := pod("ls", "LS", "1500m", "")
			w.create(ls)
			lsGroup, err := w.start(a, ls)
			testkit.Check(t, err)
			lsr := pod("lsr", "LSR", "4", "0-3")
			w.create(lsr)
			lsrGroup, err := w.start(a, lsr)
			testkit.Check(t, err)
			later(2 * time.Second)
			if got := w.cpuset(lsrGroup); got != "0-3" {
				t.Errorf("cpuset of the LSR pod = %q, want 0-3", got)
			}
			if got := w.cpuset(lsGroup); got != "4-63" {
				t.Errorf("cpuset of the LS pod = %q, want what is left of the shared pool", got)
			}
			if got := w.published(annotation.CPUSharedPoolsKey); got != `[{"socket":0,"node":0,"cpuset":"4-63"}]` {
				t.Errorf("published LS pool = %s", got)
			}
			if got := w.published(annotation.PodCPUAllocsKey); !strings.Contains(got,
				`"name":"lsr","uid":"uid-lsr","cpuset":"0-3"`) {
				t.Errorf("published allocations = %s", got)
			}
			testkit.Check(t, w.tree.Kill(lsrGroup.Cgroup))
			a.Attach().Stop(lsrGroup)
			testkit.Check(t, w.client.CoreV1().Pods("default").Delete(t.Context(), "lsr", metav1.DeleteOptions{}))
			later(15 * time.Second)
			if got := w.cpuset(lsGroup); got != "0-63" {
				t.Errorf("cpuset of the LS pod = %q after the LSR pod is gone, want all", got)
			}
			if got := w.published(annotation.CPUSharedPoolsKey); got != `[{"socket":0,"node":0,"cpuset":"0-63"}]` {
				t.Errorf("published LS pool = %s after the LSR pod is gone", got)
			}
			before := w.applies.Load()
			later(5 * time.Minute)
			if now := w.applies.Load(); now != before {
				t.Errorf("%d writes while nothing changed, want none", now-before)
			}
		})
	})
}

func TestMemoryStaysOnTheNUMANodesItWasAllocatedOn(t *testing.T) {
	inWorld(t, "xeon-2s", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			local := pod("local", "LSR", "4", "")
			local.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"24-25,72-73",` +
				`"numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"1Gi"}}]}`
			w.create(local)
			anywhere := pod("anywhere", "LSR", "2", "0,48")
			w.create(anywhere)
			for p, want := range map[*corev1.Pod]string{local: "1", anywhere: ""} {
				c, err := w.start(a, p)
				testkit.Check(t, err)
				if got, err := w.tree.Read(c.Cgroup, desired.Mems); got != want || err != nil {
					t.Errorf("cpuset.mems of pod %s = %q (%v), want %q", p.Name, got, err, want)
				}
			}
		})
	})
}

func TestContainerOfAnUnallocatedLSEPodDoesNotStart(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			lse := pod("lse", "LSE", "2", "")
			w.create(lse)
			if _, err := w.start(a, lse); !errors.Is(err, apply.ErrUnallocated) {
				t.Errorf("start = %v, want %v", err, apply.ErrUnallocated)
			}
		})
	})
}

func TestDriftIsRepairedAndReportedOnThePod(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		w.options.Shared = app.NewShared()
		registry := metrics.NewKubeRegistry()
		w.options.Shared.Metrics.Register(registry.MustRegister, registry.CustomMustRegister)
		w.run(func(a *app.Agent) {
			p := pod("lsr", "LSR", "4", "0-3")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			testkit.Check(t, w.tree.Write(c.Cgroup, desired.CPUs, "0-63"))
			later(15 * time.Second)
			if got := w.cpuset(c); got != "0-3" {
				t.Errorf("cpuset = %q after another program changed it, want 0-3 again", got)
			}
			served := httptest.NewRecorder()
			app.Handler(a.Alive, a.Ready, registry).ServeHTTP(served,
				httptest.NewRequest(http.MethodGet, "/metrics", nil))
			for _, want := range []string{
				`tenon_agent_drift_total{kind="Drifted"} 1`,
				`tenon_agent_enforcement_failures_total{code="EnforcementFailed"} 0`,
				`tenon_agent_apply_seconds_count{path="nri"} 0`, `tenon_topology_age_seconds{node="n0"}`,
			} {
				if !strings.Contains(served.Body.String(), want) {
					t.Errorf("/metrics lacks %s:\n%s", want, served.Body)
				}
			}
			if strings.Contains(served.Body.String(), `tenon_agent_apply_seconds_count{path="reconcile"} 0`) {
				t.Error("/metrics counts no pass over the whole tree")
			}
		})
		close(recorder.Events)
		var reasons []string
		for e := range recorder.Events {
			reasons = append(reasons, strings.Fields(e)[1])
		}
		if want := []string{"TopologyPublished", "Drifted", "DriftRepaired"}; !slices.Equal(reasons, want) {
			t.Errorf("events = %q, want %q", reasons, want)
		}
	})
}

func TestGroupsOfUnknownPodsAndALostCheckpointAreReported(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		orphan := "kubepods/poduid-gone/c1"
		testkit.Check(t, w.tree.MkdirAll(orphan))
		testkit.Check(t, w.tree.Write(orphan, desired.CPUs, "8-9"))
		if _, err := w.tree.Spawn(orphan); err != nil {
			t.Fatal(err)
		}
		w.file("var/lib/tenon-agent/grants.json", `{"version":1,"gra`)
		w.run(func(*app.Agent) {
			later(2 * time.Second)
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"0-63"`) {
				t.Errorf("published pool = %s: what the scheduler may plan with follows from the API alone", got)
			}
		})
		close(recorder.Events)
		var sent []string
		for e := range recorder.Events {
			sent = append(sent, e)
		}
		for _, want := range []string{
			"OrphanHeld cgroup kubepods/poduid-gone of a pod that is not in the API holds CPUs 8-9",
			"CheckpointLost the record of granted CPUs cannot be used",
		} {
			if !slices.ContainsFunc(sent, func(e string) bool { return strings.Contains(e, want) }) {
				t.Errorf("events = %q, want one with %q", sent, want)
			}
		}
	})
}

func TestTakeoverIsReportedOnce(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		for range 2 {
			w.run(func(*app.Agent) { later(time.Minute) })
		}
		close(recorder.Events)
		sent := 0
		for e := range recorder.Events {
			if strings.Contains(e, "TakeoverPhase") {
				sent++
			}
		}
		if sent != 1 {
			t.Errorf("%d Events of the take-over over a restart, want one", sent)
		}
	})
}

func TestFollowModeWritesNoCPUSet(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.label(annotation.TopologyMode, "Follow")
		w.run(func(a *app.Agent) {
			if a.Mode() != annotation.ModeFollow || w.published(annotation.TopologyMode) != "Follow" {
				t.Fatalf("mode = %s, published %s, want Follow", a.Mode(), w.published(annotation.TopologyMode))
			}
			p := pod("static", "", "2", "")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			if err := w.tree.Write(c.Cgroup, desired.CPUs, "5-6"); err != nil { // as the kubelet would
				t.Fatal(err)
			}
			later(time.Minute)
			if got := w.cpuset(c); got != "5-6" {
				t.Errorf("the agent wrote cpuset %q over the kubelet's", got)
			}
			w.label(annotation.TopologyMode, "Own")
			later(15 * time.Second)
			if a.Mode() != annotation.ModeOwn || w.published(annotation.TopologyMode) != "Own" {
				t.Errorf("mode = %s, published %s, want Own", a.Mode(), w.published(annotation.TopologyMode))
			}
		})
	})
}

// TestPodsPinnedBetweenTwoTakeoversKeepTheirCPUs: the second take-over begins when it begins, not when the first did.
func TestPodsPinnedBetweenTwoTakeoversKeepTheirCPUs(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			later(time.Hour)
			w.label(annotation.TopologyMode, "Follow")
			later(time.Hour)
			p := pod("pinned", "", "2", "")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())},
			}}}
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			if err := w.tree.Write(c.Cgroup, desired.CPUs, "5-6"); err != nil { // as the kubelet would
				t.Fatal(err)
			}
			w.state(
				`{"policyName":"static","defaultCpuSet":"0-4,7-63","entries":{"uid-pinned":{"main":"5-6"}},` +
					`"checksum":1}`)
			later(time.Minute)
			w.label(annotation.TopologyMode, "Own")
			later(time.Minute)
			if got := w.cpuset(c); got != "5-6" {
				t.Errorf("cpuset of the pod that the kubelet pinned = %q after the take-over, want 5-6 until it ends",
					got)
			}
			if got := w.published(annotation.PodCPUAllocsKey); !strings.Contains(got,
				`"cpuset":"5-6","managedByKubelet":true`) {
				t.Errorf("published allocations = %s, want the kubelet's", got)
			}
			takeover, _, err := annotation.ParseTakeover(w.published(annotation.TakeoverKey))
			if err != nil || takeover.RemainingPods != 1 || time.Since(takeover.Since.Time) > 2*time.Minute {
				t.Errorf("takeover = %+v, %v, want one that began a minute ago", takeover, err)
			}
		})
	})
}

func TestWishThatCannotBeMetIsACondition(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.label(annotation.TopologyMode, "Follow")
		w.run(func(a *app.Agent) {
			if a.Mode() != annotation.ModeOwn || w.condition(modeConflict) != "True" {
				t.Errorf("mode %s, condition %q: want Own and True", a.Mode(), w.condition(modeConflict))
			}
			w.label(annotation.TopologyMode, "Own")
			later(15 * time.Second)
			if w.condition(modeConflict) != "False" {
				t.Errorf("condition = %q after the wish was changed, want False", w.condition(modeConflict))
			}
		})
	})
}

func TestPhaseOnePublishesTheTopologyAndHoldsNothingBack(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.options.Switches = probe.Switches{}
		w.run(func(a *app.Agent) {
			if w.published(annotation.TopologyMode) != "Blind" ||
				w.published(annotation.KubeletCPUManagerPolicy) != "" {
				t.Errorf("mode %q, kubelet policy %q: want the topology alone", w.published(annotation.TopologyMode),
					w.published(annotation.KubeletCPUManagerPolicy))
			}
			if got := w.published(annotation.TakeoverKey); !strings.HasPrefix(got, `{"phase":1`) {
				t.Errorf("takeover = %s, want phase 1", got)
			}
			lse := pod("lse", "LSE", "2", "")
			w.create(lse)
			if _, err := w.start(a, lse); err != nil {
				t.Errorf("start = %v: an agent that writes no cpusets holds nothing back", err)
			}
		})
	})
}

func TestPodsThatTheKubeletPinnedBeforeTheTakeoverKeepTheirCPUs(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-old":{"main":"4-5"}},"checksum":1}`)
		old := pod("old", "", "2", "")
		old.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))},
		}}}
		testkit.Check(t, w.client.Tracker().Add(old))
		var since string
		w.run(func(*app.Agent) {
			takeover, _, err := annotation.ParseTakeover(w.published(annotation.TakeoverKey))
			if err != nil || takeover.Phase != 2 || takeover.RemainingPods != 1 ||
				takeover.PinnableCPUs != "1-3,6-63" {
				t.Errorf("takeover = %+v, %v", takeover, err)
			}
			since = takeover.Since.String()
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"0-3,6-63"`) {
				t.Errorf("shared pool = %s, want it without the kubelet's CPUs", got)
			}
			w.state(`{"policyName":"sta`)
			later(15 * time.Second)
			if w.condition(unreadable) != "True" {
				t.Errorf("condition = %q for a torn state file, want True", w.condition(unreadable))
			}
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"0-3,6-63"`) {
				t.Errorf("shared pool = %s: a torn state file means that nothing is known, not that nothing is pinned",
					got)
			}
			w.state(`{"policyName":"static","defaultCpuSet":"0-63","entries":{},"checksum":1}`)
			later(15 * time.Second)
			if w.condition(unreadable) != "False" ||
				!strings.Contains(w.published(annotation.CPUSharedPoolsKey), `"0-63"`) {
				t.Errorf("condition %q, pool %s after the last pinned pod ended", w.condition(unreadable),
					w.published(annotation.CPUSharedPoolsKey))
			}
		})
		later(time.Hour)
		w.run(func(*app.Agent) { // a restart
			takeover, _, err := annotation.ParseTakeover(w.published(annotation.TakeoverKey))
			if err != nil || takeover.Since.String() != since {
				t.Errorf("since = %s after a restart, want %s", takeover.Since, since)
			}
		})
	})
}

// state writes the kubelet's record.
func (w *world) state(text string) {
	w.t.Helper()
	w.file("var/lib/kubelet/cpu_manager_state", text)
}

// file writes a file of the node.
func (w *world) file(name, text string) {
	w.t.Helper()
	file := w.root.Path(name)
	testkit.Check(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	testkit.Check(w.t, os.WriteFile(file, []byte(text), 0o644))
}

func TestAgentWaitsForTheDefinitionOfItsObject(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		var served atomic.Bool
		w.client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			if served.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewNotFound(v1alpha2.Resource().GroupResource(), "")
		})
		w.run(func(a *app.Agent) {
			if a.Ready() == nil {
				t.Error("ready without NodeResourceTopology being served")
			}
			served.Store(true)
			later(15 * time.Second)
			if err := a.Ready(); err != nil {
				t.Errorf("not ready after it is served: %v", err)
			}
		})
	})
}

func TestOptionsThatAreIncompleteOrUnsafeAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "arm64-1s")
	for name, test := range map[string]struct {
		change func(*app.Options)
		want   string
	}{
		"no name":    {func(o *app.Options) { o.Node = "" }, "node's name is missing"},
		"no root":    {func(o *app.Options) { o.Root.Dir = "" }, "root directory is missing"},
		"no clients": {func(o *app.Options) { o.Client = nil }, "clients are missing"},
		"a socket of NRI without a server": {
			func(o *app.Options) { o.NRISocket, o.ServeNRI = "/run/nri.sock", nil }, "what serves NRI is missing",
		},
		"query off with allocator on": {
			func(o *app.Options) { o.Switches.QueryKubelet = false },
			"CPUSetAllocator=false",
		},
		"a root that is not a machine": {func(o *app.Options) { o.Root.Dir = t.TempDir() }, "has no folder cpu0"},
		"a machine without any cgroup": {func(o *app.Options) { o.Cgroup = nil }, "no cgroup hierarchy is mounted"},
	} {
		o := w.options
		test.change(&o)
		if _, err := app.New(o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error = %v, want one that says %q", name, err, test.want)
		}
	}
}

func TestAgentsOfEqualMachinesShareOneTopology(t *testing.T) {
	t.Parallel()
	shared := app.NewShared()
	var agents []*app.Agent
	for range 2 {
		w := newWorld(t, "arm64-1s")
		w.options.Shared = shared
		a, err := app.New(w.options)
		testkit.Check(t, err)
		agents = append(agents, a)
	}
	if agents[0].Machine() != agents[1].Machine() {
		t.Error("two agents of equal machines hold two topologies")
	}
}
