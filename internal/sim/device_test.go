package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// deviceOf is the Device of a node, with devices in YAML.
func deviceOf(node, devices string) string {
	return "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: " + node +
		", labels: {node.koordinator.sh/gpu-vendor: nvidia}}, spec: {devices: [" + devices + "]}}"
}

const twoGPUs = "{type: gpu, id: GPU-a, minor: 0, health: true, resources: {koordinator.sh/gpu-core: 100, " +
	"koordinator.sh/gpu-memory: 8Gi}}, {deviceType: gpu, id: GPU-b, minor: 1, health: true}, " +
	"{type: rdma, id: '0000:09:00.0', health: true, resources: {koordinator.sh/rdma: 100}}"

// holder is a pod that is on a node already, with devices.
func holder(name, node, allocated string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", annotations: {" + annotation.DeviceAllocatedKey +
		": '" + allocated + "'}}, spec: {nodeName: " + node + ", containers: [{name: c, image: i}]}}"
}

const half = `{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"4Gi",` +
	`"koordinator.sh/gpu-memory-ratio":"50"},"extension":{"containers":{"c":{"koordinator.sh/gpu-core":"50"}}}}`

// TestDevicesOfPodsThatAreThere: what the input says that they hold, in one form.
func TestDevicesOfPodsThatAreThere(t *testing.T) {
	amounts := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out["koordinator.sh/"+pairs[i]] = pairs[i+1]
		}
		return out
	}
	in := strings.Join([]string{
		cpuNode("n0", 4), deviceOf("n0", twoGPUs),
		holder("a", "n0", `{"gpu":[`+half+`]}`),
		holder("b", "n0", `{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":"100",`+
			`"kubernetes.io/gpu-memory-ratio":"100"}},`+
			half+`],"rdma":[{"id":"0000:09:00.0","resources":{"koordinator.sh/rdma":"1"}}]}`),
		holder("bad", "n0", `{"gpu":[{"resources":{}}]}`),
		holder("lost", "gone", `{"gpu":[`+half+`]}`),
		cpuPod("new", 1, "", ""),
	}, "\n---\n")
	r, warn := simulate(t, in, "-")
	shared := view.Device{
		Minor: 0, ID: "GPU-a", Resources: amounts("gpu-core", "50", "gpu-memory", "4Gi", "gpu-memory-ratio", "50"),
	}
	for name, want := range map[string]map[string][]view.Device{
		"a": {"gpu": {shared}},
		"b": {
			"gpu":  {shared, {Minor: 1, Resources: amounts("gpu-core", "100", "gpu-memory-ratio", "100")}},
			"rdma": {{Minor: -1, ID: "0000:09:00.0", Resources: amounts("rdma", "1")}},
		},
		"bad": {}, "lost": {"gpu": {shared}}, "new": {},
	} {
		if diff := cmp.Diff(want, stateOf(r, name).Devices); diff != "" {
			t.Errorf("devices of %s (-want +got):\n%s", name, diff)
		}
	}
	if text := string(printed(t, r, "json")); !strings.Contains(text, `"minor": 0,`) ||
		!strings.Contains(text, `"devices": {}`) {
		t.Errorf("a minor of 0, and no devices, are written:\n%s", text)
	}
	table := string(printed(t, r, "table"))
	for _, want := range []string{
		"NUMA  DEVICES                     REASON", "-     gpu 0,1; rdma 0000:09:00.0", "-     gpu 0\n", "-     -",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if want := "warning: Pod default/lost: Node gone does not exist\n"; warn != want {
		t.Errorf("warnings: got\n%swant\n%s", warn, want)
	}
}

func TestDevicesThatCannotBeUsed(t *testing.T) {
	links := strings.Replace(deviceOf("n0", twoGPUs), "labels:",
		"annotations: {node.tenon.sh/device-links: '{'}, labels:", 1)
	_, warn := simulate(t, strings.Join([]string{cpuNode("n0", 4), links, deviceOf("gone", twoGPUs)}, "\n---\n"), "-")
	for _, want := range []string{
		"warning: Device n0: metadata.annotations[node.tenon.sh/device-links]: byte 1: unexpected end of JSON input",
		"warning: Device gone: no Node has that name",
	} {
		if !strings.Contains(warn, want) {
			t.Errorf("warnings lack %q:\n%s", want, warn)
		}
	}
}

// TestAListOfDevices need not name their kind, as of a cluster.
func TestAListOfDevices(t *testing.T) {
	in := cpuNode("n0", 4) + "\n---\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: DeviceList, items: [" +
		"{metadata: {name: n0}, spec: {devices: [" + twoGPUs + "]}}]}\n---\n" + holder("a", "n0", `{"gpu":[`+half+`]}`)
	r, warn := simulate(t, in, "-")
	if got := stateOf(r, "a").Devices["gpu"]; len(got) != 1 || warn != "" {
		t.Errorf("got %+v, warnings %q", got, warn)
	}
}

func dpuPod(name string, n int) string {
	amounts := fmt.Sprintf("{cpu: 1, example.com/dpu: %d}", n)
	return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: i, " +
		"resources: {requests: " + amounts + ", limits: " + amounts + "}}]}}"
}

func dpuNode(n int64) string {
	amounts := fmt.Sprintf("{cpu: 8, memory: 16Gi, pods: 110, example.com/dpu: %d}", n)
	return "{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {capacity: " + amounts + ", allocatable: " +
		amounts + "}}"
}

// reported simulates pods on a node whose devices are those of a machine with files, from what its drivers and drop
// files say over the Device object to the node's capacity. want is all that this has of devices. It returns what the
// machine's containers get with an allocation, too.
func reported(t *testing.T, files map[string]string, want string, pods ...string) (Result, host.Cards) {
	t.Helper()
	root := host.Root{Dir: t.TempDir()}
	for name, text := range files {
		at := root.Path(name)
		testkit.Check(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)))
	}
	o := inventory.Options{Root: root, Drivers: inventory.Sysfs(root), Clock: clock.RealClock{}}
	found, err1 := inventory.New(o)
	_, err2 := found.Refresh(t.Context())
	object, err3 := probe.Device(probe.Input{NodeName: "n0"}, found.Devices(nil), nil, metav1.Now())
	cards, err4 := host.ReadCards(root)
	device, err5 := json.Marshal(object)
	testkit.Check(t, errors.Join(err1, err2, err3, err4, err5))
	var amounts []string
	for name, q := range convert.Capacity(object) {
		amounts = append(amounts, fmt.Sprint(name, ": ", q.String()))
	}
	slices.Sort(amounts)
	list := strings.Join(amounts, ", ")
	if "{"+list+"}" != want {
		t.Fatalf("capacity {%s}, want %s", list, want)
	}
	list = "{cpu: 8, memory: 16Gi, pods: 110, " + list + "}"
	node := "{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {capacity: " + list + ", allocatable: " + list +
		"}}"
	r, warn := simulate(t, strings.Join(append([]string{node, string(device)}, pods...), "\n---\n"), "-")
	if warn != "" {
		t.Errorf("warnings %s", warn)
	}
	return r, cards
}

// The way of MIG devices that exist: they are counted by profile, given each once, and their containers see them by id
// and by the files that open them, and no other one. The GPU that they are slices of is given to no pod.
func TestSlicesReachTheirContainers(t *testing.T) {
	const gpus, gpuA = "proc/driver/nvidia/gpus/", "0000:3b:00.0"
	slice := func(n int) string {
		return fmt.Sprintf(`{"uuid":"MIG-%d","vendor":"nvidia","resources":{"gpu-core":"14","gpu-memory":"5Gi"},
			"labels":{"node.tenon.sh/parent":"GPU-a","node.tenon.sh/mig-profile":"1g.5gb"},
			"deviceFiles":[{"path":"/dev/nvidia-caps/nvidia-cap%[1]d","major":508,"minor":%[1]d}]}`, n)
	}
	asks := func(name, amounts string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: i, " +
			"resources: {requests: {" + amounts + "}, limits: {" + amounts + "}}}]}}"
	}
	const one = "nvidia.com/mig-1g.5gb: 1"
	r, cards := reported(t, map[string]string{
		"proc/devices":                   "Character devices:\n195 nvidia\n508 nvidia-caps\n",
		gpus + gpuA + "/information":     "GPU UUID: GPU-a\nDevice Minor: 0\n",
		host.DropDirs()[0] + "/mig.json": "[" + slice(1) + "," + slice(2) + "]",
	}, "{nvidia.com/mig-1g.5gb: 2}", asks("a", one), asks("b", one), asks("c", one), asks("d", "nvidia.com/gpu: 1"),
		asks("e", "koordinator.sh/gpu: 10"))
	node := &inject.Node{Mode: annotation.DeviceOwn, Types: []string{"gpu"}, Cards: cards}
	seen := map[string]string{}
	for _, pod := range []string{"a", "b"} {
		c := &inject.Container{Name: "c", Annotations: stateOf(r, pod).Annotations, Asks: []string{"gpu"}}
		answer, err := inject.Decide(node, c)
		if err != nil {
			t.Fatalf("pod %s with %v: %v", pod, c.Annotations, err)
		}
		var paths []string
		for _, f := range answer.Files {
			paths = append(paths, f.Path)
		}
		id := answer.Env["NVIDIA_VISIBLE_DEVICES"]
		seen[id] = strings.Join(paths, " ")
		other := host.DeviceFile{Path: "/dev/nvidia-caps/nvidia-cap1", Major: 508, Minor: 1}
		if slices.Contains(paths, other.Path) {
			other = host.DeviceFile{Path: "/dev/nvidia-caps/nvidia-cap2", Major: 508, Minor: 2}
		}
		c.Has.Files = []inject.File{{DeviceFile: other}}
		if _, err := inject.Decide(node, c); !errors.Is(err, inject.ErrConflict) {
			t.Errorf("pod %s with the file of another slice: %v", pod, err)
		}
	}
	if diff := cmp.Diff(map[string]string{
		"MIG-1": "/dev/nvidia-caps/nvidia-cap1 /dev/nvidia0 /dev/nvidiactl",
		"MIG-2": "/dev/nvidia-caps/nvidia-cap2 /dev/nvidia0 /dev/nvidiactl",
	}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, pod := range []string{"c", "d", "e"} {
		if s := stateOf(r, pod); s.State != "Unschedulable" || s.Annotations[annotation.DeviceAllocatedKey] != "" {
			t.Errorf("pod %s is %s with %v", pod, s.State, s.Annotations)
		}
	}
}

// The way of a type that no code knows: from a drop file over the Device object, the node's capacity, the decision and
// its annotation to the device files of the container.
func TestADroppedDeviceReachesItsContainer(t *testing.T) {
	r, cards := reported(t, map[string]string{
		host.DropDirs()[0] + "/dpu.json": `[{"type":"dpu","uuid":"dpu-0","resources":{"example.com/dpu":"1"},
			"deviceFiles":[{"path":"/dev/dpu0","major":240,"minor":0}]},
			{"type":"dpu","uuid":"dpu-1","resources":{"example.com/dpu":"1"},
			"deviceFiles":[{"path":"/dev/dpu1","major":240,"minor":1}]}]`,
	}, "{example.com/dpu: 2}", dpuPod("a", 1), dpuPod("b", 1), dpuPod("c", 1))
	for pod, want := range map[string]string{"a": "/dev/dpu0", "b": "/dev/dpu1"} {
		s := stateOf(r, pod)
		answer, err := inject.Decide(&inject.Node{Mode: annotation.DeviceOwn, Types: []string{"dpu"}, Cards: cards},
			&inject.Container{Name: "c", Annotations: s.Annotations})
		if err != nil || len(answer.Files) != 1 || answer.Files[0].Path != want {
			t.Errorf("pod %s with %v gets %+v, %v, want %s", pod, s.Annotations, answer, err, want)
		}
	}
	if s := stateOf(r, "c"); s.State != "Unschedulable" {
		t.Errorf("the third pod is %s", s.State)
	}
}

// A type of device that no code knows is asked for by the resource that Device objects list it with: as a count where a
// device has 1 of it, as percent where it has 100.
func TestATypeThatNoCodeKnows(t *testing.T) {
	dpus := func(amount string) string {
		var list []string
		for _, id := range []string{"dpu-0", "dpu-1"} {
			list = append(list, "{type: dpu, id: "+id+", health: true, resources: {example.com/dpu: "+amount+"}}")
		}
		return strings.Join(list, ", ")
	}
	asks, node := dpuPod, dpuNode
	hinted := func(name string, n int, kind string) string {
		const key = annotation.DeviceAllocateHintKey
		hint := fmt.Sprintf(`{%s: '{"%s": {"exclusivePolicy": "DeviceLevel"}}'}`, key, kind)
		return strings.Replace(asks(name, n), "}, spec", ", annotations: "+hint+"}, spec", 1)
	}
	for name, test := range map[string]struct {
		node, devices string
		pods          []string
		want          map[string]string // device and amount of each pod, or the first reason
	}{
		"a count": {node(2), dpus("1"), []string{asks("a", 1), asks("b", 1), asks("c", 1)}, map[string]string{
			"a": "dpu-0 1;", "b": "dpu-1 1;", "c": "Insufficient dpu devices",
		}},
		"several": {node(2), dpus("1"), []string{asks("a", 2)}, map[string]string{"a": "dpu-0 1;dpu-1 1;"}},
		"percent": {
			node(200), dpus("100"),
			[]string{asks("a", 60), asks("b", 60), asks("c", 40), asks("d", 50)},
			map[string]string{
				"a": "dpu-0 60;", "b": "dpu-1 60;", "c": "dpu-0 40;", "d": "Insufficient dpu devices",
			},
		},
		"no device has enough": {
			node(200), dpus("100"),
			[]string{asks("a", 60), asks("b", 60), asks("c", 70)},
			map[string]string{"a": "dpu-0 60;", "b": "dpu-1 60;", "c": "Insufficient dpu devices"},
		},
		"a hint": {
			node(200), dpus("100"),
			[]string{asks("a", 60), hinted("b", 10, "dpu"), hinted("c", 10, "dpu")},
			map[string]string{"a": "dpu-0 60;", "b": "dpu-1 10;", "c": "Insufficient dpu devices"},
		},
		"a hint about a type that is not listed": {
			node(200), dpus("100"),
			[]string{hinted("a", 10, "qat")},
			map[string]string{
				"a": "metadata.annotations[scheduling.koordinator.sh/device-allocate-hint]: byte 8: qat: Unsupported " +
					`value "qat": supported gpu, rdma, fpga, dpu`,
			},
		},
		"not a multiple": {node(8), dpus("4"), []string{asks("a", 6), asks("b", 8)}, map[string]string{
			"a": "spec.containers[0].resources.requests[example.com/dpu]: 6 must be at most 4, which one device has, " +
				"or a multiple of it",
			"b": "dpu-0 4;dpu-1 4;",
		}},
	} {
		r, warn := simulate(t, strings.Join(append([]string{test.node, deviceOf("n0", test.devices)}, test.pods...),
			"\n---\n"), "-")
		if warn != "" {
			t.Errorf("%s: warnings %s", name, warn)
		}
		got := map[string]string{}
		for pod := range test.want {
			s := stateOf(r, pod)
			for _, d := range s.Devices["dpu"] {
				got[pod] += d.ID + " " + d.Resources["koordinator.sh/dpu"] + ";"
			}
			if len(s.Reasons) > 0 {
				got[pod] += s.Reasons[0].Message
			}
			if allocated := s.Annotations[annotation.DeviceAllocatedKey]; (allocated != "") != (len(s.Devices) > 0) {
				t.Errorf("%s: pod %s has the annotation %q and devices %+v", name, pod, allocated, s.Devices)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestANodeWithDevicesOfTheKubelet is closed while it is not known what a pod has, and then never gives that away.
func TestANodeWithDevicesOfTheKubelet(t *testing.T) {
	const foreign = "{apiVersion: v1, kind: Pod, metadata: {name: other, uid: u}, spec: {nodeName: n0, containers: [" +
		"{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
	asks := func(name string, gpus int) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i, "+
			"resources: {limits: {nvidia.com/gpu: %d}}}]}}", name, gpus)
	}
	mode := func(mode, checkpoints string) string {
		return strings.Replace(deviceOf("n0", twoGPUs), "name: n0",
			"name: n0, annotations: {node.tenon.sh/device-mode: "+mode+checkpoints+"}", 1)
	}
	checkpoints := func(id string) string {
		return `, node.koordinator.sh/devices-checkpoints: '[{"podUID":"u","resourceName":"nvidia.com/gpu",` +
			`"deviceIDs":["` + id + `"]}]'`
	}
	const closed = "node(s) hold devices allocated outside the scheduler"
	for name, c := range map[string]struct {
		device, got string // the GPU of the pod that asks for one
	}{
		"not reported":         {mode("Moving", ""), closed},
		"not reported, Own":    {mode("Own", ""), closed},
		"an unknown device":    {mode("Own", checkpoints("GPU-z")), closed},
		"reported":             {mode("Moving", checkpoints("GPU-a")), "GPU-b"},
		"a replica":            {mode("Own", checkpoints("GPU-b::1")), "GPU-a"},
		"an index":             {mode("Own", checkpoints("0")), closed},
		"reported without any": {mode("Own", strings.Replace(checkpoints(""), `[""]`, "[]", 1)), "GPU-a"},
	} {
		r, _ := simulate(t, strings.Join([]string{cpuNode("n0", 8), c.device, foreign, asks("one", 1)}, "\n---\n"), "-")
		one := stateOf(r, "one")
		got := ""
		if list := one.Devices["gpu"]; len(list) == 1 {
			got = list[0].ID
		}
		for _, reason := range one.Reasons {
			got += reason.Message
		}
		if !strings.Contains(got, c.got) {
			t.Errorf("%s: got %q, want %q", name, got, c.got)
		}
		r, _ = simulate(t, strings.Join([]string{cpuNode("n0", 8), c.device, foreign, asks("two", 2)}, "\n---\n"), "-")
		if two := stateOf(r, "two"); (two.Node != "") != (name == "reported without any") {
			t.Errorf("%s: a pod that asks for both GPUs is on node %q, with %v", name, two.Node, two.Devices)
		}
	}
}

// TestASharedGPUIsLimitedWhereTheNodeCan: a pod that names what limits it goes to a node that has the same.
func TestASharedGPUIsLimitedWhereTheNodeCan(t *testing.T) {
	const label = "koordinator.sh/gpu-isolation-provider: HAMi-core"
	limited := "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {" + label + "}}, spec: {containers: [{" +
		"name: c, image: i, resources: {limits: {koordinator.sh/gpu: 50}}}]}}"
	in := strings.Join([]string{cpuNode("n0", 4), deviceOf("n0", twoGPUs), limited}, "\n---\n")
	r, warn := simulate(t, in, "-")
	p := stateOf(r, "p")
	if len(p.Reasons) != 1 || p.Reasons[0].Code != why.GPUIsolationMissing || warn != "" {
		t.Errorf("without the node's label: got %s, %+v, warnings %q", p.State, p.Reasons, warn)
	}
	in = strings.Replace(in, "labels: {", "labels: {"+label+", ", 1)
	if r, warn = simulate(t, in, "-"); stateOf(r, "p").Node != "n0" || warn != "" {
		t.Errorf("with it: got %+v, warnings %q", stateOf(r, "p"), warn)
	}
}
