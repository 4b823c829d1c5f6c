package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
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
