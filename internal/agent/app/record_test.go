package app_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/testkit"
)

// message returns the text of a condition of the Node.
func (w *world) message(kind event.Reason) string {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	for _, c := range node.Status.Conditions {
		if string(c.Type) == kind.Condition() {
			return c.Message
		}
	}
	return ""
}

const (
	memoryFile = "var/lib/kubelet/memory_manager_state"
	deviceFile = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

	memoryRecord = `{"policyName":"Static","machineState":{` +
		`"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":8192,"systemReserved":0,"allocatable":8192,` +
		`"reserved":4096,"free":4096}},"cells":[0]}},` +
		`"entries":{"uid-a":{"main":[{"numaAffinity":[0],"type":"memory","size":4096}]}},"checksum":1}`
	deviceRecord = `{"Data":{"PodDeviceEntries":[{"PodUID":"uid-a","ContainerName":"main","ResourceName":"x/gpu",` +
		`"DeviceIDs":{"0":["g0"]},"AllocResp":""}],` +
		`"RegisteredDevices":{"x/gpu":["g0","g1"]}},"Checksum":1}`
)

// TestRecordsOfTheKubeletArePublishedAndTheLastGoodOneStays: torn, impossible and foreign records are reported and
// change nothing; the next good one is used.
func TestRecordsOfTheKubeletArePublishedAndTheLastGoodOneStays(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0,memory-static,restricted", func(t *testing.T, w *world) {
		w.options.AskResources = resources(func(context.Context) (kubeletapi.Resources, error) {
			return kubeletapi.Resources{Devices: []host.Device{
				{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
				{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{0}},
			}}, nil
		})
		w.label(annotation.TopologyMode, "Follow")
		w.file(memoryFile, memoryRecord)
		w.file(deviceFile, deviceRecord)
		w.file("var/lib/kubelet/cpu_manager_state",
			`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-a":{"main":"4-5"}},"checksum":1}`)
		w.create(pod("a", "", "2", ""))
		w.run(func(*app.Agent) {
			later(time.Minute)
			const want = `{"memory":{"0":{"allocatable":{"memory":"8Ki"},"free":{"memory":"4Ki"},"group":[0],` +
				`"assignments":1}},` +
				`"devices":{"x/gpu":[{"numa":[0],"total":2,"free":1}]},` +
				`"pods":{"uid-a":{"main":{"cpus":"4-5","memory":{"0":"4Ki"},"devices":{"x/gpu":{"mask":[0],` +
				`"count":1}}}}}}`
			if got := w.published(annotation.NUMAStateKey); got != want {
				t.Fatalf("numa-state = %s, want %s", got, want)
			}
			for name, bad := range map[string]string{
				memoryFile: memoryRecord[:100], deviceFile: `{"Data":`,
				"var/lib/kubelet/cpu_manager_state": `{"policyName":"none"}`,
			} {
				good, err := os.ReadFile(w.root.Path(name))
				testkit.Check(t, err)
				w.file(name, bad)
				later(time.Minute)
				if got := w.published(annotation.NUMAStateKey); got != want {
					t.Errorf("%s unusable: numa-state = %s, want the last good one", name, got)
				}
				if got := w.condition(unreadable); got != "True" ||
					!strings.Contains(w.message(unreadable), filepath.Base(name)) {
					t.Errorf("%s unusable: condition %q, %q; want one that names the file", name, got,
						w.message(unreadable))
				}
				w.file(name, string(good))
				later(time.Minute)
				if got := w.condition(unreadable); got != "False" {
					t.Errorf("%s usable again: condition = %q", name, got)
				}
			}
			applies := w.applies.Load()
			later(10 * time.Minute)
			if now := w.applies.Load(); now != applies {
				t.Errorf("%d writes while nothing changed", now-applies)
			}
			w.file(memoryFile, strings.Replace(memoryRecord, `"0":{"numberOf`, `"7":{"numberOf`, 1))
			later(time.Minute)
			if got := w.condition(unreadable); got != "True" ||
				w.published(annotation.NUMAStateKey) != want {
				t.Errorf("a record of another machine: condition %q, numa-state %s", got,
					w.published(annotation.NUMAStateKey))
			}
		})
	})
}

// TestCPUsThatTheKubeletGaveTwiceArePublishedAsTheyAre: on machines whose cores differ in threads the kubelet does so.
// An old record in its place would keep what has long changed.
func TestCPUsThatTheKubeletGaveTwiceArePublishedAsTheyAre(t *testing.T) {
	inWorld(t, "hybrid@static,reserved=0", func(t *testing.T, w *world) {
		w.label(annotation.TopologyMode, "Follow")
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-19","entries":{"uid-a":{"main":"4-5"}},"checksum":1}`)
		w.create(pod("a", "", "2", ""))
		w.create(pod("b", "", "2", ""))
		w.run(func(*app.Agent) {
			later(time.Minute)
			w.state(
				`{"policyName":"static","defaultCpuSet":"0-3,6,8-19","entries":{"uid-a":{"main":"4-6"},` +
					`"uid-b":{"main":"5,7"}},"checksum":1}`)
			later(time.Minute)
			const want = `"pods":{"uid-a":{"main":{"cpus":"4-6"}},"uid-b":{"main":{"cpus":"5,7"}}}`
			if got := w.published(annotation.NUMAStateKey); !strings.Contains(got, want) {
				t.Errorf("numa-state = %s, want it with %s", got, want)
			}
			const message = "cpu_manager_state gives the CPUs 5 to several pods, and gives the CPUs 6 to a pod and " +
				"has them in defaultCpuSet"
			if got := w.message(contradictory); w.condition(contradictory) != "True" ||
				!strings.HasPrefix(got, message) {
				t.Errorf("condition %q, %q; want %q", w.condition(contradictory), got, message)
			}
			if got := w.condition(unreadable); got == "True" {
				t.Error("a record that is in use counts as unreadable")
			}
			w.state(
				`{"policyName":"static","defaultCpuSet":"0-3,6-19","entries":{"uid-a":{"main":"4-5"}},"checksum":1}`)
			later(time.Minute)
			if got := w.condition(contradictory); got != "False" {
				t.Errorf("condition = %q after the other pod left", got)
			}
		})
	})
}

// TestMachineThatShrinksIsPublishedAnew: CPUs that go offline are gone from the report, and the pod that holds them
// gets an Event; files that contradict themselves change nothing.
func TestMachineThatShrinksIsPublishedAnew(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		w.run(func(a *app.Agent) {
			lsr := pod("lsr", "LSR", "2", "4-5")
			w.create(lsr)
			if _, err := w.start(a, lsr); err != nil {
				t.Fatal(err)
			}
			later(time.Minute)
			before := w.published(annotation.CPUTopology)
			if !strings.Contains(before, `{"id":5,`) {
				t.Fatalf("cpu-topology = %s, want one with CPU 5", before)
			}
			w.file("sys/devices/system/cpu/online", "five")
			later(time.Minute)
			if w.condition(sourceDegraded) != "True" || w.published(annotation.CPUTopology) != before {
				t.Errorf("unreadable files: condition %q, the report changed: %v", w.condition(sourceDegraded),
					w.published(annotation.CPUTopology) != before)
			}
			w.file("sys/devices/system/cpu/online", "0-4,6-31")
			later(time.Minute)
			if got := w.condition(sourceDegraded); got != "False" {
				t.Errorf("condition = %q once the files can be read, want False", got)
			}
			if got := w.published(annotation.CPUTopology); strings.Contains(got, `{"id":5,`) ||
				!strings.Contains(got, `{"id":4,`) {
				t.Errorf("cpu-topology = %s, want it without CPU 5", got)
			}
			if online := a.Machine().Online(); online.Len() != 31 {
				t.Errorf("the agent counts %d CPUs, want 31", online.Len())
			}
		})
		close(recorder.Events)
		var changed, unusable bool
		for e := range recorder.Events {
			changed = changed || strings.Contains(e,
				"TopologyChanged the machine has CPUs 0-4,6-31 on 1 NUMA node, it had 0-31")
			unusable = unusable || strings.Contains(e, "AllocationUnusable CPU 5 of the pod's allocation is left out")
		}
		if !changed || !unusable {
			t.Errorf("the change was reported on the Node: %v, on the pod: %v; want both", changed, unusable)
		}
	})
}

// TestNUMANodeWithoutCPUsAndABadDistanceRow.
func TestNUMANodeWithoutCPUsAndABadDistanceRow(t *testing.T) {
	inWorld(t, "epyc-2s", func(t *testing.T, w *world) {
		w.file("sys/devices/system/node/node4/cpulist", "\n")
		w.file("sys/devices/system/node/node4/meminfo", "Node 4 MemTotal: 1048576 kB\n")
		for _, n := range []string{"0", "1", "2", "3", "4"} {
			w.file("sys/devices/system/node/node"+n+"/distance", "10 20 20 20") // four distances, five nodes
		}
		w.run(func(*app.Agent) {
			object, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName)
			testkit.Check(t, err)
			o := &v1alpha2.NodeResourceTopology{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(
				object.(*unstructured.Unstructured).Object, o); err != nil {
				t.Fatal(err)
			}
			if len(o.Zones) != 5 || o.Zones[4].Name != "node-4" {
				t.Fatalf("zones = %+v, want five", o.Zones)
			}
			for _, r := range o.Zones[4].Resources {
				if r.Name == "cpu" || r.Name == "memory" && r.Capacity.String() != "1Gi" {
					t.Errorf("zone of a NUMA node without CPUs: %+v", r)
				}
			}
			if len(o.Zones[4].Costs) != 5 || o.Zones[4].Costs[4].Value != 10 || o.Zones[4].Costs[0].Value != 20 {
				t.Errorf("costs = %+v, want 10 to itself and 20 to the others where the row has the wrong size",
					o.Zones[4].Costs)
			}
		})
	})
}

func TestDuplicateCPUIDsAreRefusedWithTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "epyc-2s")
	w.file("sys/devices/system/node/node1/cpulist", "0-31")
	_, err := app.New(w.options)
	if err == nil || !strings.Contains(err.Error(), "sys/devices/system/node/node1: names CPU") {
		t.Errorf("New = %v, want a refusal that names the file and the CPU", err)
	}
}

// writes counts what reaches the cgroup tree.
type writes struct {
	apply.Cgroup
	paths []string
}

func (w *writes) Write(group, file, value string) error {
	w.paths = append(w.paths, group+"/"+file)
	return w.Cgroup.Write(group, file, value)
}

// TestNoValueReachesTheCgroupTreeWhileTheAgentDoesNotWrite: in Follow mode, and where the feature gate is off, whatever
// pods come and go.
func TestNoValueReachesTheCgroupTreeWhileTheAgentDoesNotWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		machine  string
		switches probe.Switches
		label    string
	}{
		"the label says Follow": {
			"arm64-1s@static,reserved=0",
			probe.Switches{QueryKubelet: true, CPUSetAllocator: true},
			"Follow",
		},
		"the gate is off beside static":      {"arm64-1s@static,reserved=0", probe.Switches{QueryKubelet: true}, ""},
		"the gate is off beside policy none": {"arm64-1s", probe.Switches{QueryKubelet: true}, ""},
		"phase 1":                            {"arm64-1s@static,reserved=0", probe.Switches{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.machine)
				tree := &writes{Cgroup: w.tree}
				w.options.Cgroup, w.options.Switches = tree, tt.switches
				if tt.label != "" {
					w.label(annotation.TopologyMode, tt.label)
				}
				w.run(func(a *app.Agent) {
					for _, p := range []*corev1.Pod{
						pod("pinned", "", "2", ""), pod("ls", "LS", "1500m", ""),
						pod("lsr", "LSR", "2", "8-9"),
					} {
						w.create(p)
						if _, err := w.start(a, p); err != nil {
							t.Errorf("%s is held back: %v", p.Name, err)
						}
					}
					w.state(
						`{"policyName":"static","defaultCpuSet":"0-4,7-63","entries":{"uid-pinned":{"main":"5-6"}},` +
							`"checksum":1}`)
					later(10 * time.Minute)
				})
				if len(tree.paths) > 0 {
					t.Errorf("written: %q", slices.Compact(tree.paths))
				}
			})
		})
	}
}

// TestPodsAreForgottenWhileTheAgentDoesNotWrite: once they are gone from the API and their processes have died.
func TestPodsAreForgottenWhileTheAgentDoesNotWrite(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.label(annotation.TopologyMode, "Follow")
		tree := &writes{Cgroup: w.tree}
		w.options.Cgroup = tree
		w.run(func(a *app.Agent) {
			p := pod("ls", "LS", "1500m", "")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			knows := func() bool {
				later(15 * time.Second)
				return slices.ContainsFunc(a.Table().Rows, func(r desired.Row) bool { return r.UID == string(p.UID) })
			}
			testkit.Check(t, w.client.CoreV1().Pods("default").Delete(t.Context(), "ls", metav1.DeleteOptions{}))
			if !knows() {
				t.Error("a pod that lives is forgotten")
			}
			testkit.Check(t, w.tree.Kill(c.Cgroup))
			if knows() {
				t.Error("a dead pod is not forgotten")
			}
		})
		if len(tree.paths) > 0 {
			t.Errorf("written: %q", tree.paths)
		}
	})
}
