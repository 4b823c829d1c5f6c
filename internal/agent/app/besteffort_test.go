package app_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// use lets the node use some of its CPUs for a time, outside of all pods.
func (w *world) use(used *int64, cpus, seconds int64) {
	w.t.Helper()
	for range seconds * 2 { // a tick, and a glance
		*used += cpus * 50 // the kernel counts in 10 ms
		w.file("proc/stat", stat(*used))
		later(time.Second / 2)
	}
}

// stat is the file of a machine of 64 CPUs that have been used for a time, in 10 ms.
func stat(used int64) string {
	text := fmt.Sprintf("cpu  %d 0 0 0 0 0 0 0 0 0\n", used)
	for i := range 64 {
		text += fmt.Sprintf("cpu%d %d 0 0 0 0 0 0 0 0 0\n", i, used/64)
	}
	return text
}

// newMeasured returns a world whose use is measured, with a NodeSLO.
func newMeasured(t *testing.T, thresholds map[string]any) *world {
	t.Helper()
	w := newWorld(t, "arm64-1s")
	w.client.Resources = append(w.client.Resources, &metav1.APIResourceList{
		GroupVersion: slo.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: "nodeslos"}},
	})
	nodeSLO := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": slo.GroupVersion().String(), "kind": slo.NodeSLOKind,
		"metadata": map[string]any{"name": nodeName, "uid": "slo"},
		"spec": map[string]any{
			"resourceUsedThresholdWithBE": thresholds, "hostApplications": []any{map[string]any{"name": "db"}},
		},
	}}
	testkit.Check(t, w.objects.Tracker().Create(slo.NodeSLOs(), nodeSLO, ""))
	w.file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n")
	w.file("proc/stat", stat(0))
	w.file("proc/meminfo", meminfo(600))
	return w
}

// meminfo is the file of a machine of 1000 KiB.
func meminfo(available int) string {
	return fmt.Sprintf("MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: %d kB\n", available)
}

// TestBestEffortPodsAreEvictedForTheMemoryOfTheNode: the best-effort pod that uses memory goes, with a condition and an
// Event, and the others are left.
func TestBestEffortPodsAreEvictedForTheMemoryOfTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMeasured(t, map[string]any{"enable": true, "memoryEvictThresholdPercent": int64(70)})
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		used := int64(0)
		w.run(func(a *app.Agent) {
			conditions := map[string][]corev1.PodCondition{}
			w.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				name := action.(clienttesting.DeleteAction).GetName()
				found, err := w.client.Tracker().Get(action.GetResource(), action.GetNamespace(), name)
				if err == nil {
					conditions[name] = found.(*corev1.Pod).Status.Conditions
				}
				return false, nil, nil
			})
			for name, class := range map[string]string{"be": "BE", "idle": "BE", "service": "LS"} {
				p := pod(name, class, "", "")
				p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits = nil, nil
				w.create(p)
				c, err := w.start(a, p)
				testkit.Check(t, err)
				kib := map[string]int{"be": 100, "service": 500}[name]
				group := "sys/fs/cgroup/" + c.Pod.Cgroup
				w.file(group+"/cpu.stat", "usage_usec 1\n")
				w.file(group+"/memory.current", fmt.Sprintln(kib<<10))
				w.file(group+"/memory.stat", "inactive_file 0\nactive_file 0\n")
			}
			w.use(&used, 1, 5)
			w.file("proc/meminfo", meminfo(250))
			w.use(&used, 1, 3)
			left, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			testkit.Check(t, err)
			if len(left.Items) != 2 || len(conditions) != 1 {
				t.Fatalf("%d pods are left, evicted %v; want idle and service left", len(left.Items), conditions)
			}
			got := conditions["be"]
			if len(got) != 1 || got[0].Type != corev1.DisruptionTarget || got[0].Reason != "BestEffortEvicted" ||
				!strings.Contains(got[0].Message, "the node uses 75 % of its memory") {
				t.Errorf("the evicted pod says %v", got)
			}
			reported := false
			for len(recorder.Events) > 0 {
				e := <-recorder.Events
				const want = "BestEffortEvicted evicted: the node uses 75 % of its memory"
				reported = reported || strings.Contains(e, want)
			}
			if !reported {
				t.Error("no Event says that the pod was evicted")
			}
		})
	})
}

// TestPodsBurstAsTheNodeSLOSays also takes the bursts back.
func TestPodsBurstAsTheNodeSLOSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMeasured(t, nil)
		strategy := func(policy any) {
			object, err := w.objects.Tracker().Get(slo.NodeSLOs(), "", nodeName)
			testkit.Check(t, err)
			next := object.(*unstructured.Unstructured).DeepCopy()
			next.Object["spec"] = map[string]any{"cpuBurstStrategy": map[string]any{
				"policy": policy, "cpuBurstPercent": int64(50),
			}}
			testkit.Check(t, w.objects.Tracker().Update(slo.NodeSLOs(), next, ""))
			later(2 * time.Second)
		}
		w.run(func(a *app.Agent) {
			p := pod("service", "LS", "2", "")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			want := func(when, burst string) {
				t.Helper()
				if got, err := w.tree.Read(c.Cgroup, "cpu.max.burst"); got != burst || err != nil {
					t.Errorf("%s: the burst is %s, %v, want %s", when, got, err, burst)
				}
			}
			testkit.Check(t, w.tree.Write(c.Pod.Cgroup, "cpu.max", "200000"))
			testkit.Check(t, w.tree.Write(c.Cgroup, "cpu.max", "200000"))
			want("no strategy", "0")
			strategy("cpuBurstOnly")
			want("a strategy", "100000")
			strategy("none")
			want("policy none", "0")
			strategy("cpuBurstOnly")
			want("the strategy again", "100000")
			strategy(int64(7))
			want("a NodeSLO that cannot be read, so the last one counts", "100000")
			strategy("sometimes")
			want("a policy that does not exist", "0")
			strategy("cpuBurstOnly")
			want("the strategy once more", "100000")
			testkit.Check(t, w.objects.Tracker().Delete(slo.NodeSLOs(), "", nodeName))
			later(2 * time.Second)
			want("without a NodeSLO", "0")
		})
	})
}

// TestServicesBurstBesideSuppressedPods has one NodeSLO for both.
func TestServicesBurstBesideSuppressedPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMeasured(t, map[string]any{"enable": true, "cpuSuppressThresholdPercent": int64(50)})
		stored, err := w.objects.Tracker().Get(slo.NodeSLOs(), "", nodeName)
		testkit.Check(t, err)
		next := stored.(*unstructured.Unstructured).DeepCopy()
		testkit.Check(t, unstructured.SetNestedMap(next.Object, map[string]any{
			"policy": "cpuBurstOnly", "cpuBurstPercent": int64(50),
		}, "spec", "cpuBurstStrategy"))
		testkit.Check(t, w.objects.Tracker().Update(slo.NodeSLOs(), next, ""))
		used := int64(0)
		w.run(func(a *app.Agent) {
			service, be := pod("service", "LS", "2", ""), pod("be", "BE", "", "")
			be.Spec.Containers[0].Resources.Requests, be.Spec.Containers[0].Resources.Limits = nil, nil
			w.create(service)
			w.create(be)
			served, err := w.start(a, service)
			testkit.Check(t, err)
			suppressed, err := w.start(a, be)
			testkit.Check(t, err)
			testkit.Check(t, w.tree.Write(served.Pod.Cgroup, "cpu.max", "200000"))
			testkit.Check(t, w.tree.Write(served.Cgroup, "cpu.max", "200000"))
			w.use(&used, 30, 12)
			if got := w.cpuset(suppressed); got != "0-1" {
				t.Errorf("the best-effort pod has the CPUs %s, want 0-1", got)
			}
			for at, want := range map[string]string{served.Cgroup: "100000", suppressed.Cgroup: "0"} {
				if got, err := w.tree.Read(at, "cpu.max.burst"); got != want || err != nil {
					t.Errorf("the burst of %s is %s, %v, want %s", at, got, err, want)
				}
			}
		})
	})
}

func TestTheNodeSLOOfTheNodeIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newMeasured(t, map[string]any{"enable": true, "cpuSuppressThresholdPercent": int64(50)})
		used := int64(0)
		w.run(func(a *app.Agent) {
			be := pod("be", "BE", "", "")
			be.Spec.Containers[0].Resources.Requests, be.Spec.Containers[0].Resources.Limits = nil, nil
			w.create(be)
			c, err := w.start(a, be)
			testkit.Check(t, err)
			w.use(&used, 30, 3)
			if got := w.cpuset(c); got != "0-1" {
				t.Errorf("beside 30 of 64 CPUs, of 32 that may be in use: %s, want 0-1", got)
			}
			w.use(&used, 20, 40)
			if got := w.cpuset(c); got != "0-11" {
				t.Errorf("beside 20 CPUs: %s, want 0-11", got)
			}
			got, text := w.condition(event.BestEffortSuppressed), w.message(event.BestEffortSuppressed)
			if got != "True" || !strings.Contains(text, "suppressed to 12 of 64 CPUs") {
				t.Errorf("condition %q: %s", got, text)
			}
			// A measurement that fails and a counter that goes back leave the last limit.
			w.file("proc/stat", "cpu\n")
			later(3 * time.Second)
			w.file("proc/stat", stat(5))
			later(time.Second)
			if got := w.cpuset(c); got != "0-11" {
				t.Errorf("without a measurement: %s, want 0-11", got)
			}
			testkit.Check(t, w.objects.Tracker().Delete(slo.NodeSLOs(), "", nodeName))
			later(6 * time.Second) // the condition follows in 5
			if got, status := w.cpuset(c), w.condition(event.BestEffortSuppressed); got != "0-63" || status != "False" {
				t.Errorf("without a NodeSLO: %s, condition %q", got, status)
			}
		})
	})
}

func TestApplicationsOfTheHostAreMeasuredWhereTheirCgroupIs(t *testing.T) {
	t.Parallel()
	at := func(base slo.CgroupBase, parent, relative string) *slo.CgroupPath {
		return &slo.CgroupPath{Base: base, ParentDir: parent, RelativePath: relative}
	}
	for name, c := range map[string]struct {
		at   *slo.CgroupPath
		want string
	}{
		"below the root":               {at("", "a", "b"), "a/b"},
		"below the root, by name":      {at(slo.BaseRoot, "/a/", ""), "a"},
		"beside the classes of pods":   {at(slo.BaseKubepods, "", "b"), "kubepods/b"},
		"beside burstable pods":        {at(slo.BaseBurstable, "a", "b"), "kubepods/burstable/a/b"},
		"beside best-effort pods":      {at(slo.BaseBesteffort, "a", ""), "kubepods/besteffort/a"},
		"the group of all pods":        {at(slo.BaseKubepods, "", ""), ""},
		"the root":                     {at("", "", "/"), ""},
		"a path that leaves the tree":  {at("", "..", "../a"), "a"},
		"an application without group": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodeSLO := &slo.NodeSLO{Spec: slo.NodeSLOSpec{HostApplications: []slo.HostApplicationSpec{
				{Name: "db", Priority: "koord-batch", QoS: "BE", CgroupPath: c.at},
			}}}
			var want []usage.Host
			if c.want != "" {
				want = []usage.Host{{Name: "db", Priority: "koord-batch", QoS: "BE", Group: c.want}}
			}
			got := app.HostsOf(nodeSLO, func(class string) string { return path.Join("kubepods", class) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// zoneBatch returns what the published topology says of batch-cpu, by zone; "" where it says nothing.
func (w *world) zoneBatch() (text string) {
	w.t.Helper()
	got, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName)
	testkit.Check(w.t, err)
	o := &v1alpha2.NodeResourceTopology{}
	testkit.Check(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(
		got.(*unstructured.Unstructured).Object, o))
	for _, z := range o.Zones {
		for _, r := range z.Resources {
			if r.Name == "kubernetes.io/batch-cpu" {
				text += z.Name + "=" + r.Allocatable.String() + " "
			}
		}
	}
	return text
}

func TestBatchAmountsAreInTheZonesOfANodeThatAlignsPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "epyc-2s")
		w.run(func(*app.Agent) {
			grant := func(milli string) {
				node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
				testkit.Check(t, err)
				node.Status.Allocatable = object.List("kubernetes.io/batch-cpu", milli,
					"kubernetes.io/batch-memory", "4Gi")
				_, err = w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
				testkit.Check(t, err)
				later(20 * time.Second)
			}
			want := func(when, want string) {
				t.Helper()
				if got := w.zoneBatch(); got != want {
					t.Errorf("%s: %q, want %q", when, got, want)
				}
			}
			grant("8000")
			want("a Node that aligns nothing", "")
			w.label(annotation.NodeNUMATopologyPolicy, "SingleNUMANode")
			later(20 * time.Second)
			want("four NUMA nodes of equal size", "node-0=2k node-1=2k node-2=2k node-3=2k ")
			writes := w.applies.Load()
			later(10 * time.Minute)
			if got := w.applies.Load(); got != writes {
				t.Errorf("%d writes without a change, want none", got-writes)
			}
			grant("4000")
			want("the manager grants half", "node-0=1k node-1=1k node-2=1k node-3=1k ")
			grant("0")
			want("it grants nothing more of CPU", "node-0=0 node-1=0 node-2=0 node-3=0 ")
			grant("4000")
		})
		writes := w.applies.Load()
		w.run(func(*app.Agent) {
			later(time.Minute)
			const want = "node-0=1k node-1=1k node-2=1k node-3=1k "
			if got, n := w.zoneBatch(), w.applies.Load()-writes; got != want || n > 1 {
				t.Errorf("the next agent: %q in %d writes, want %q in at most one", got, n, want)
			}
		})
	})
}
