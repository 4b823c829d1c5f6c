package cli

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// card is a GPU of 16 GiB, or a NIC, on a NUMA node.
func card(kind string, minor, numa int, more string) string {
	id := fmt.Sprintf("GPU-%d", minor)
	resources := `"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi",` +
		`"koordinator.sh/gpu-memory-ratio":"100"`
	if kind != "gpu" {
		id, resources = fmt.Sprintf("0000:%02x:00.0", minor), fmt.Sprintf(`"koordinator.sh/%s":"100"`, kind)
	}
	return fmt.Sprintf(`{"type":%q,"id":%q,"minor":%d,"health":true,"resources":{%s},"labels":{`+
		`"node.koordinator.sh/gpu-vendor":"nvidia","node.koordinator.sh/gpu-model":"T4"},`+
		`"topology":{"socketID":0,"nodeID":%d,"pcieID":"pci0000:%02x","busID":"0000:%02x:00.%d"}%s}`,
		kind, id, minor, resources, numa, numa+1, minor, len(kind)-3, more)
}

func putDevice(t *testing.T, a *account, node, annotations string, cards ...string) {
	t.Helper()
	d, err := kube.ReadDevice(fmt.Appendf(nil, `{"metadata":{"name":%q,"annotations":{%s}},"spec":{"devices":[%s]}}`,
		node, annotations, strings.Join(cards, ",")))
	testkit.Check(t, err)
	a.store.PutDevice(d)
}

// withDevices is a cluster whose nodes have devices of every condition.
func withDevices(t *testing.T) *account {
	t.Helper()
	holds := func(name, node, cpus, devices string) corev1.Pod {
		p := pod(name, "", cpus, node, "")
		p.Annotations[annotation.DeviceAllocatedKey] = devices
		return p
	}
	share := func(minor int, amounts string) string {
		return fmt.Sprintf(`{"gpu":[{"minor":%d,"id":"GPU-%d","resources":{%s}}]}`, minor, minor, amounts)
	}
	const half = `"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8Gi",` +
		`"koordinator.sh/gpu-memory-ratio":"50"`
	const whole = `"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi",` +
		`"koordinator.sh/gpu-memory-ratio":"100"`
	const memory = `"koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"25"`
	const cores = `"koordinator.sh/gpu-core":"30","koordinator.sh/gpu-memory":"12Gi",` +
		`"koordinator.sh/gpu-memory-ratio":"75"`
	cordoned := node("cordoned", "8", nil)
	cordoned.Spec.Unschedulable = true
	small := node("small", "3", nil)
	small.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("2Gi")
	a := newAccount(
		[]corev1.Node{node("pairs", "64", nil), node("kubelet", "8", nil), cordoned, small, node("bare", "8", nil)},
		[]corev1.Pod{
			holds("half", "pairs", "1", share(0, half)), holds("memory", "pairs", "1", share(0, memory)),
			holds("whole", "pairs", "1", share(1, whole)), holds("full-memory", "pairs", "1", share(2, memory)),
			holds("cores", "pairs", "1", share(2, cores)),
			holds("nic", "pairs", "1",
				`{"rdma":[{"minor":8,"id":"0000:08:00.0","resources":{"koordinator.sh/rdma":"5"}}]}`),
			pod("cpus", "", "1", "small", ""),
		},
		[]v1alpha2.NodeResourceTopology{topology(t, "pairs", shape{2, 1, 16, 2}, nil)})
	own, follow := `"node.tenon.sh/device-mode":"Own"`, `"node.tenon.sh/device-mode":"Follow"`
	links := `,"node.tenon.sh/device-links":"{\"links\":[{\"ids\":[\"GPU-0\",\"GPU-1\"],\"type\":\"NVLink\",` +
		`\"count\":4},{\"ids\":[\"GPU-2\",\"GPU-3\"],\"type\":\"NVLink\",\"count\":2}]}"`
	putDevice(t, a, "pairs", own+links, card("gpu", 0, 0, ""), card("gpu", 1, 0, ""), card("gpu", 2, 1, ""),
		card("gpu", 3, 1, `,"health":false`), card("rdma", 8, 0, ""), card("fpga", 9, -1, ""), card("gpu", 4, 7, ""))
	putDevice(t, a, "kubelet", follow, card("gpu", 0, 0, ""), card("gpu", 1, 0, ""))
	putDevice(t, a, "cordoned", own, card("gpu", 0, 0, ""))
	all := `,"node.tenon.sh/device-links":"{\"switches\":[{\"ids\":[\"GPU-0\",\"GPU-1\",\"GPU-2\",\"GPU-3\"],` +
		`\"count\":6}]}"`
	putDevice(t, a, "small", own+all, card("gpu", 0, 0, ""), card("gpu", 1, 0, ""), card("gpu", 2, 0, ""),
		card("gpu", 3, 0, `,"conditions":[{"type":"Degraded","status":"True","reason":"ResetNeeded"}]`))
	return a
}

func TestDevicesAsGolden(t *testing.T) {
	a := withDevices(t)
	golden(t, "topology-devices.txt", pictures(a, paint{}))
	for name, c := range map[string]struct{ what, format string }{
		"top-gpu.txt": {"gpu", "table"}, "top-gpu.json": {"gpu", "json"},
	} {
		var out strings.Builder
		testkit.Check(t, printTop(&out, a, c.what, c.format, 0))
		golden(t, name, out.String())
	}
	var out strings.Builder
	one := &account{store: a.store, nodes: a.nodes[3:4], pods: a.pods}
	testkit.Check(t, printTopology(&out, one, "pairs", "yaml", paint{}, 0))
	_, devices, _ := strings.Cut(out.String(), "\ndevices:\n")
	devices, _, _ = strings.Cut(devices, "\nkind:")
	golden(t, "topology-devices.yaml", devices)
}

// TestPodsThatHoldVanishedDevicesAreShown also on nodes without a CPU topology, or without any device that is left.
func TestPodsThatHoldVanishedDevicesAreShown(t *testing.T) {
	var pods []corev1.Pod
	for _, node := range []string{"mapped", "bare", "empty"} {
		p := pod("of-"+node, "", "1", node, "")
		p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"minor":0,"id":"GPU-0","resources":{` +
			`"koordinator.sh/gpu-core":"100"}},{"minor":5,"id":"GPU-5","resources":{` +
			`"koordinator.sh/gpu-core":"100"}}],` +
			`"rdma":[{"minor":3,"resources":{"koordinator.sh/rdma":"100"}}]}`
		pods = append(pods, p)
	}
	a := newAccount([]corev1.Node{node("mapped", "64", nil), node("bare", "8", nil), node("empty", "8", nil)}, pods,
		[]v1alpha2.NodeResourceTopology{topology(t, "mapped", shape{2, 1, 16, 2}, nil)})
	for _, node := range []string{"mapped", "bare"} {
		putDevice(t, a, node, `"node.tenon.sh/device-mode":"Own"`, card("gpu", 0, 0, ""))
	}
	for node, want := range map[string]string{
		"mapped": "default/of-mapped holds gpu GPU-5, rdma 3, not in the node's Device object",
		"bare":   "default/of-bare holds gpu GPU-5, rdma 3, not in the node's Device object",
		"empty":  "default/of-empty holds gpu GPU-0, gpu GPU-5, rdma 3, not in the node's Device object",
	} {
		if picture := drawMachine(a.node(node), paint{}, 0); strings.Count(picture, want) != 1 {
			t.Errorf("%s lacks %q:\n%s", node, want, picture)
		}
	}
}

func TestNoDeviceIsDrawnWiderThanTheTerminal(t *testing.T) {
	a := withDevices(t)
	for _, width := range []int{60, 80, 100} {
		for _, ascii := range []bool{false, true} {
			for _, n := range a.nodes {
				for line := range strings.Lines(drawMachine(a.node(n.Name), paint{ascii: ascii}, width)) {
					if got := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); got > width {
						t.Errorf("%s at %d columns: a line has %d: %s", n.Name, width, got, line)
					}
				}
			}
		}
	}
}

// What explain says of devices: the sets that were compared, and what nodes lack.
func TestDevicesInExplanationsAsGolden(t *testing.T) {
	a := withDevices(t)
	ask := func(name string, amounts map[corev1.ResourceName]string) *corev1.Pod {
		p := pod(name, "", "1", "", "")
		for resourceName, amount := range amounts {
			p.Spec.Containers[0].Resources.Requests[resourceName] = resource.MustParse(amount)
			p.Spec.Containers[0].Resources.Limits[resourceName] = resource.MustParse(amount)
		}
		return &p
	}
	args := convert.DefaultArgs()
	args.Devices = true
	var out strings.Builder
	r := renderer{now: born, paint: paint{}}
	for _, c := range []struct {
		pod  *corev1.Pod
		node string
	}{
		{ask("two", map[corev1.ResourceName]string{"nvidia.com/gpu": "2"}), "small"},
		{ask("all", map[corev1.ResourceName]string{"nvidia.com/gpu": "4"}), "small"},
		{ask("share", map[corev1.ResourceName]string{"koordinator.sh/gpu": "20"}), "pairs"},
		{ask("nic", map[corev1.ResourceName]string{"koordinator.sh/rdma": "5"}), "pairs"},
	} {
		request, reason, _ := convert.Request(c.pod, args)
		if !reason.OK() {
			t.Fatalf("%s: %+v", c.pod.Name, reason)
		}
		offer, reason := place.Try(a.view(c.node), request)
		if !reason.OK() {
			t.Fatalf("%s: %+v", c.pod.Name, reason)
		}
		c.pod.Spec.NodeName = c.node
		answer := describe.Pod(c.pod).Head
		answer.Placement = &view.Placement{Node: c.node, Devices: view.DevicesOf(a.view(c.node), offer.Entry.Devices)}
		answer.Placement.Choice = view.DeviceChoiceOf(a.view(c.node), request, offer.Entry.Devices)
		out.WriteString(r.pod(explained{Pod: answer}, corev1.PodRunning))
	}
	for _, amounts := range []map[corev1.ResourceName]string{
		{"nvidia.com/gpu": "8"},
		{"koordinator.sh/gpu-memory": "20Gi"},
		{"koordinator.sh/gpu": "30", "koordinator.sh/rdma": "99"},
	} {
		pending := ask("pending", amounts)
		request, _, _ := convert.Request(pending, args)
		verdict := view.Verdict{Served: true, Nodes: 2}
		for _, node := range []string{"pairs", "small"} {
			if _, reason := place.Try(a.view(node), request); !reason.OK() {
				found := why.Finding{Reason: reason, Phase: why.Filter, Object: node}
				verdict.Findings = append(verdict.Findings, found)
			}
		}
		answer := view.Explain(describe.Pod(pending), verdict, &view.Queue{Attempts: 1})
		for i := range answer.Candidates {
			answer.Candidates[i].Devices = view.DeviceFitOf(a.view(answer.Candidates[i].Node), request)
		}
		out.WriteString(r.pod(explained{Pod: answer}, corev1.PodPending))
	}
	golden(t, "explain-devices.txt", out.String())
}
