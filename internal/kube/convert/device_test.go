package convert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// deviceObject reads a Device of node n as informers do.
func deviceObject(tb testing.TB, metadata, devices string) *convert.Devices {
	tb.Helper()
	d, _, err := devicev1alpha1.Decode([]byte(`{"metadata":{"name":"n"` + metadata + `},"spec":{"devices":` +
		`` + devices + `}}`))
	if err != nil {
		tb.Fatal(err)
	}
	return &convert.Devices{Device: d}
}

func devicesOf(d *convert.Devices) (ledger.Facts, []convert.Problem) {
	return new(convert.Known).Read(convert.Sources{Devices: d}, convert.DefaultArgs())
}

// statuses are the devices of a node by id.
func statuses(f ledger.Facts) map[string]device.Status {
	out := map[string]device.Status{}
	if f.Devices == nil {
		return nil
	}
	for s := range ledger.New(f).View().Devices().Devices() {
		out[s.ID] = s
	}
	return out
}

const gib = 1 << 30

func TestDevicesOfAnObject(t *testing.T) {
	t.Parallel()
	facts, problems := devicesOf(deviceObject(t,
		`,"labels":{"node.koordinator.sh/gpu-vendor":"NVIDIA","node.koordinator.sh/gpu-model":"H100"},`+
			`"annotations":{"node.tenon.sh/device-links":"{\"bridges\":{\"0000:3b:00.0\":[\"pci0000:3a\",\"0000:`+
			`3a:01.0\"]}}"}`,
		`[{"type":"gpu","id":"GPU-a","minor":3,"moduleID":7,"health":true,"labels":{"color":"red"},`+
			`"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi",`+
			`"koordinator.sh/gpu-memory-ratio":"100"},`+
			`"topology":{"socketID":0,"nodeID":1,"pcieID":"pci0000:3a","busID":"0000:3b:00.0"}},`+
			`{"deviceType":"gpu","id":"GPU-blind","health":true},`+
			`{"type":"gpu","id":"GPU-sick","resources":{"kubernetes.io/gpu-core":"100","kubernetes.io/gpu-memory":`+
			`"1500m"}},`+
			`{"type":"gpu","id":"GPU-foreign","health":true,"conditions":[{"type":"Foreign","status":"True"}]},`+
			`{"type":"gpu","id":"GPU-amd","health":true,"labels":{"node.koordinator.sh/gpu-vendor":"amd"}},`+
			`{"type":"gpu","id":"GPU-cut","health":true},`+
			`{"type":"gpu","id":"MIG-1","health":true,"resources":{"koordinator.sh/gpu-core":"14",`+
			`"koordinator.sh/gpu-memory":"5Gi"},`+
			`"labels":{"node.tenon.sh/mig-profile":"1g.5gb","node.tenon.sh/parent":"GPU-cut"}},`+
			`{"type":"rdma","id":"0000:09:00.0","health":true,"resources":{"koordinator.sh/rdma":"50"},`+
			`"vfGroups":[{"labels":{"type":"general"},"vfs":[{"minor":-1,"busID":"0000:09:00.2"}]}]},`+
			`{"type":"fpga","id":"0000:0a:00.0","health":true,"resources":{"koordinator.sh/fpga":"0"}},`+
			`{"type":"dpu","id":"dpu-0","health":true,"resources":{"example.com/dpu":"4"}}]`))
	if len(problems) != 0 {
		t.Errorf("problems: %v", problems)
	}
	if !facts.OwnDevices {
		t.Error("the scheduler decides where no mode is written")
	}
	type brief struct {
		Vendor, Profile, Model, Bus, Bridges, VFs string
		NUMAID                                    int
		Minor, Module                             int32
		Total, Free                               device.Vector
		Unknown, Offered                          bool
	}
	whole := device.Vector{device.Cores: 100, device.Bytes: 100, device.Slots: 100}
	big := device.Vector{device.Cores: 100, device.Bytes: 80 * gib, device.Slots: 100}
	slice := device.Vector{device.Cores: 14, device.Bytes: 5 * gib, device.Slots: 100}
	half := device.Vector{device.Share: 50}
	want := map[string]brief{
		"GPU-a": {
			Vendor: "nvidia.com/gpu", Model: "NVIDIA-H100", NUMAID: 1, Minor: 3, Module: 7, Bus: "0000:3b:00.0",
			Bridges: "pci0000:3a 0000:3a:01.0", Total: big, Free: big, Offered: true,
		},
		"GPU-blind": {Vendor: "nvidia.com/gpu", Total: whole, Free: whole, Unknown: true, Offered: true},
		"GPU-sick": {
			Vendor: "nvidia.com/gpu", Total: device.Vector{device.Cores: 100, device.Bytes: 2, device.Slots: 100},
			Offered: true,
		},
		"GPU-foreign": {Vendor: "nvidia.com/gpu", Total: whole, Unknown: true, Offered: true},
		"GPU-amd": {
			Vendor: "amd.com/gpu", Model: "amd-H100", Total: whole, Free: whole, Unknown: true, Offered: true,
		},
		"GPU-cut": {Vendor: "nvidia.com/gpu", Total: whole, Unknown: true},
		"MIG-1":   {Vendor: "nvidia.com/gpu", Profile: "1g.5gb", Total: slice, Free: slice, Offered: true},
		"0000:09:00.0": {
			Bus: "0000:09:00.0", VFs: "0000:09:00.2 general", Total: half, Free: half, Offered: true,
		},
		"0000:0a:00.0": {Bus: "0000:0a:00.0", Total: device.Vector{device.Share: 100}, Offered: true},
		"dpu-0": {
			Bus: "dpu-0", Total: device.Vector{device.Share: 4}, Free: device.Vector{device.Share: 4}, Offered: true,
		},
	}
	for id, w := range want {
		if w.Minor == 0 {
			w.NUMAID, w.Minor, w.Module = -1, -1, -1
		}
		if w.Vendor == "nvidia.com/gpu" {
			w.Model = "NVIDIA-H100"
		}
		want[id] = w
	}
	got := map[string]brief{}
	for id, s := range statuses(facts) {
		b := brief{
			Vendor: s.Vendor, Profile: s.Profile, Model: s.Model, Bus: s.Bus, Bridges: strings.Join(s.Bridges, " "),
			NUMAID: s.NUMAID, Minor: s.Minor, Module: s.Module, Total: s.Total, Free: s.Free,
			Unknown: s.MemoryUnknown, Offered: s.Offered,
		}
		for _, vf := range s.VFs {
			b.VFs += vf.Bus + " " + vf.Labels["type"]
		}
		got[id] = b
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// fourGPUs are healthy, with minors 3 to 0 and, where asked for, modules 0 to 3.
func fourGPUs(modules bool) string {
	var list []string
	for i := range 4 {
		module := ""
		if modules {
			module = fmt.Sprintf(`"moduleID":%d,`, i)
		}
		list = append(list, fmt.Sprintf(`{"type":"gpu","id":"GPU-%d","minor":%d,%s"health":true,`+
			`"topology":{"busID":"0000:%02d:00.0"}}`, i, 3-i, module, i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// TestLinksAndPartitionsDecide: which two of four GPUs a pod gets.
func TestLinksAndPartitionsDecide(t *testing.T) {
	t.Parallel()
	const nvlink = `"node.tenon.sh/device-links":"{\"links\":[{\"ids\":[\"GPU-1\",\"GPU-2\"],\"type\":\"NVLink\",` +
		`\"count\":4}]}"`
	const nvswitch = `"node.tenon.sh/device-links":"{\"switches\":[{\"ids\":[\"GPU-1\",\"GPU-3\"],\"count\":18}]}"`
	const table = `"scheduling.koordinator.sh/gpu-partitions":"{\"2\":[{\"minors\":[0,1],\"allocationScore\":2},` +
		`{\"minors\":[0,2],\"allocationScore\":1}]}"`
	const pairs = `"scheduling.koordinator.sh/gpu-partitions":"{\"4\":[{\"minors\":[0,1,2,3]}]}"`
	const honor = `,"labels":{"node.koordinator.sh/gpu-partition-policy":"Honor"}`
	for name, c := range map[string]struct {
		metadata, devices string
		want              string
	}{
		"nothing distinguishes them": {"", fourGPUs(true), "GPU-0 GPU-1"},
		"a link":                     {`,"annotations":{` + nvlink + `}`, fourGPUs(true), "GPU-1 GPU-2"},
		"a switch":                   {`,"annotations":{` + nvswitch + `}`, fourGPUs(true), "GPU-1 GPU-3"},
		"partitions by module":       {`,"annotations":{` + nvlink + "," + table + `}`, fourGPUs(true), "GPU-0 GPU-1"},
		"partitions by minor":        {`,"annotations":{` + nvlink + "," + table + `}`, fourGPUs(false), "GPU-2 GPU-3"},
		"no partition of two":        {`,"annotations":{` + nvlink + "," + pairs + `}`, fourGPUs(true), "GPU-1 GPU-2"},
		"and none is allowed":        {honor + `,"annotations":{` + nvlink + "," + pairs + `}`, fourGPUs(true), ""},
		"without the table":          {honor, fourGPUs(true), ""},
	} {
		facts, problems := devicesOf(deviceObject(t, c.metadata, c.devices))
		if len(problems) != 0 {
			t.Errorf("%s: problems %v", name, problems)
		}
		asks := map[string]int64{device.NVIDIAGPU: 2}
		r, _ := device.NewRequest(device.Pod{Containers: []device.Container{{Requests: asks, Limits: asks}}}, nil)
		choice, _ := ledger.New(facts).View().Devices().Choose(r, nil)
		var got []string
		for _, g := range choice.Grants {
			got = append(got, g.ID)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}

// TestABandwidthIsThatOfTheLinks of a node without a table: lanes times what each carries.
func TestABandwidthIsThatOfTheLinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		carries string // of a lane
		want    string
		asked   int64
	}{
		"four lanes":           {`,\"laneBandwidth\":\"25G\"`, "GPU-1 GPU-2", 100e9},
		"a byte more":          {`,\"laneBandwidth\":\"25G\"`, "", 100e9 + 1},
		"lanes of unknown use": {"", "", 1},
	} {
		facts, problems := devicesOf(deviceObject(t, `,"annotations":{"node.tenon.sh/device-links":"{\"links\":[`+
			`{\"ids\":[\"GPU-1\",\"GPU-2\"],\"count\":4}]`+c.carries+`}"}`, fourGPUs(true)))
		if len(problems) != 0 {
			t.Errorf("%s: problems %v", name, problems)
		}
		asks := map[string]int64{device.NVIDIAGPU: 2}
		r, _ := device.NewRequest(device.Pod{
			Containers: []device.Container{{Requests: asks, Limits: asks}},
			Partition:  &device.PartitionWish{Bandwidth: c.asked},
		}, nil)
		choice, _ := ledger.New(facts).View().Devices().Choose(r, nil)
		var got []string
		for _, g := range choice.Grants {
			got = append(got, g.ID)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}

func TestWhatCannotBeUsedOfDevicesIsReported(t *testing.T) {
	t.Parallel()
	const gpu = `{"type":"gpu","id":"GPU-0","minor":0,"health":true}`
	for name, c := range map[string]struct {
		metadata, devices string
		field, text       string
		devicesLeft       int
		foreign           bool // not given out by the scheduler
	}{
		"one device of two": {
			"", `[` + gpu + `,{"type":"gpu","id":"GPU-1","resources":{"koordinator.sh/gpu-core":"150"}}]`,
			"spec.devices[1].resources", "must be a whole percentage from 0 to 100", 1, false,
		},
		"two devices of one id": {
			"", `[` + gpu + `,` + gpu + `]`, "spec.devices[1].id", "is also the id of spec.devices[0]", 1, false,
		},
		"the list": {"", `"none"`, "spec.devices", "want a list", 0, false},
		"links": {
			`,"annotations":{"node.tenon.sh/device-links":"{"}`, `[` + gpu + `]`,
			"metadata.annotations[node.tenon.sh/device-links]", "unexpected end of JSON input", 1, false,
		},
		"a link of a device that is not there": {
			`,"annotations":{"node.tenon.sh/device-links":"{\"links\":[{\"ids\":[\"GPU-0\",\"GPU-9\"]}]}"}`,
			`[` + gpu + `]`, "metadata.annotations[node.tenon.sh/device-links]", `"GPU-9" is not a device`, 1, false,
		},
		"partitions": {
			`,"annotations":{"scheduling.koordinator.sh/gpu-partitions":"{\"2\":[{\"minors\":[0]}]}"}`,
			`[` + gpu + `]`, "metadata.annotations[scheduling.koordinator.sh/gpu-partitions]",
			"has a partition of 1 minors", 1, false,
		},
		"a partition of a GPU that is not there": {
			`,"annotations":{"scheduling.koordinator.sh/gpu-partitions":"{\"2\":[{\"minors\":[0,5]}]}"}`,
			`[` + gpu + `]`, "metadata.annotations[scheduling.koordinator.sh/gpu-partitions]",
			"no GPU of the object has the number 5", 1, false,
		},
		"the policy of partitions": {
			`,"labels":{"node.koordinator.sh/gpu-partition-policy":"Sometimes"}`, `[` + gpu + `]`,
			"metadata.labels[node.koordinator.sh/gpu-partition-policy]", "supported Prefer, Honor", 1, false,
		},
		"the mode": {
			`,"annotations":{"node.tenon.sh/device-mode":"Mine"}`, `[` + gpu + `]`,
			"metadata.annotations[node.tenon.sh/device-mode]", "supported Own, Follow, Moving", 1, true,
		},
		"the 65th GPU": {
			"", `[` + strings.TrimSuffix(manyGPUs(65), ",") + `]`, "spec.devices[64]",
			"at most 64 devices of type gpu", 64,
			false,
		},
	} {
		facts, problems := devicesOf(deviceObject(t, c.metadata, c.devices))
		if len(problems) != 1 || problems[0].Object != "Device/n" || problems[0].Field() != c.field ||
			!strings.Contains(problems[0].Text, c.text) {
			t.Errorf("%s: got problems %+v, want one of %s: %s", name, problems, c.field, c.text)
		}
		if got := len(statuses(facts)); got != c.devicesLeft || facts.Devices == nil || facts.OwnDevices == c.foreign {
			t.Errorf("%s: %d devices are left, want %d; own %t", name, got, c.devicesLeft, facts.OwnDevices)
		}
	}
}

func manyGPUs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"type":"gpu","id":"GPU-%02d","health":true},`, i)
	}
	return b.String()
}

func TestWhoDecidesAboutDevices(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"": true, "Own": true, "own": true, "Follow": false, "Moving": true} {
		facts, problems := devicesOf(deviceObject(t, `,"annotations":{"node.tenon.sh/device-mode":"`+mode+`"}`,
			fourGPUs(false)))
		if facts.OwnDevices != want || len(problems) != 0 {
			t.Errorf("mode %q: own %t, want %t; problems %v", mode, facts.OwnDevices, want, problems)
		}
	}
	if facts, _ := devicesOf(deviceObject(t, "", "[]")); facts.Devices != nil || facts.OwnDevices {
		t.Error("an object without devices: the node has some to decide about")
	}
}

func TestEqualFactsShareTheirDevices(t *testing.T) {
	t.Parallel()
	var known convert.Known
	object := deviceObject(t, "", fourGPUs(true))
	read := func(d *convert.Devices, node, topology string) *device.Inventory {
		facts, _ := known.Read(convert.Sources{
			Node:     newNode(map[string]string{"a": node}),
			Topology: newNRT(map[string]string{annotation.CPUTopology: topology}),
			Devices:  d,
		}, convert.DefaultArgs())
		return facts.Devices
	}
	first := read(object, "b", twoNodes)
	if read(object, "c", twoNodes) != first {
		t.Error("a label of the node makes other devices")
	}
	if other := read(object, "c", fourNodes); other == first || other.Equal(first) {
		t.Error("devices on another machine are the same")
	}
	if again := read(object, "c", twoNodes); !again.Equal(first) {
		t.Error("devices of a machine that is back are not equal")
	}
}

func FuzzDevices(f *testing.F) {
	f.Add(fourGPUs(true), `{"links":[{"ids":["GPU-0","GPU-1"]}],"switches":[{"ids":["GPU-0","GPU-1"],"count":3}]}`,
		`{"2":[{"minors":[0,1],"ringBusBandwidth":"1e3"}]}`, "Honor")
	f.Add(`[{"type":"gpu","id":"a","resources":{"koordinator.sh/gpu-memory":"9E","":"1"}}]`, `{"switches":`+
		`[{}]}`, `{}`, "")
	f.Add(`[{"type":"x","id":"a","minor":-7,"moduleID":-9,"topology":{"nodeID":5000}}]`, `null`, `null`, "Prefer")
	f.Fuzz(func(t *testing.T, devices, links, partitions, policy string) {
		d, _, err := devicev1alpha1.Decode([]byte(`{"spec":{"devices":` + devices + `}}`))
		if err != nil {
			return
		}
		d.Annotations = map[string]string{
			annotation.DeviceLinksKey: links, annotation.GPUPartitionsKey: partitions,
		}
		d.Labels = map[string]string{annotation.GPUPartitionPolicyLabel: policy}
		facts, problems := devicesOf(&convert.Devices{Device: d})
		kept := len(statuses(facts))
		if left := len(d.Spec.Devices) - kept; left < 0 || left > len(problems) {
			t.Fatalf("%d devices are left out with problems %v", left, problems)
		}
		for id, s := range statuses(facts) {
			if !s.Free.Within(&s.Total) || s.Used != (device.Vector{}) {
				t.Fatalf("device %s without pods: used %v, free %v of %v", id, s.Used, s.Free, s.Total)
			}
		}
	})
}

// TestWhatAKubeletGaveOutIsHeld: each form of the annotation, under both of its names.
func TestWhatAKubeletGaveOutIsHeld(t *testing.T) {
	t.Parallel()
	const key, older = `"node.koordinator.sh/devices-checkpoints":"`, `"node.koordinator.sh/gpu-checkpoints":"`
	const pod = `[{\"podUID\":\"u\",\"containerName\":\"c\",\"resourceName\":\"nvidia.com/gpu\",\"deviceIDs\":`
	for name, c := range map[string]struct {
		annotations string
		held        []string
		unknown     int
		problem     string
	}{
		"none":           {`"a":"b"`, nil, 0, ""},
		"a list":         {key + pod + `[\"GPU-1\"]}]"`, []string{"GPU-1"}, 0, ""},
		"the older name": {older + pod + `[\"GPU-1\"]}]"`, []string{"GPU-1"}, 0, ""},
		"by NUMA node":   {key + pod + `{\"-1\":[\"GPU-2::3\"]}}]"`, []string{"GPU-2"}, 0, ""},
		"no device":      {key + pod + `[]}]"`, nil, 0, ""},
		"a device that is not there": {
			key + pod + `[\"GPU-9\",\"GPU-0\"]}]"`, []string{"GPU-0"}, 1, "",
		},
		"text that is not JSON": {
			key + `[{"`, nil, 1,
			"metadata.annotations[node.koordinator.sh/devices-checkpoints]",
		},
		"no pod": {
			key + `[{\"deviceIDs\":[\"GPU-0\"]}]"`, nil, 1,
			"metadata.annotations[node.koordinator.sh/devices-checkpoints]",
		},
	} {
		facts, problems := devicesOf(deviceObject(t, `,"annotations":{`+c.annotations+`}`, fourGPUs(false)))
		var held []string
		for id, s := range statuses(facts) {
			if len(s.Foreign) > 0 {
				held = append(held, id)
			}
		}
		if !slices.Equal(held, c.held) || len(facts.Devices.Unknown()) != c.unknown {
			t.Errorf("%s: held %v and unknown %v, want %v and %d", name, held, facts.Devices.Unknown(), c.held,
				c.unknown)
		}
		if (c.problem == "") != (len(problems) == 0) || c.problem != "" && problems[0].Field() != c.problem {
			t.Errorf("%s: got problems %+v, want %q", name, problems, c.problem)
		}
	}
}

// TestPodsThatGotDevicesElsewhere: requests count under every name that a device plugin serves, amounts of 0 do not.
func TestPodsThatGotDevicesElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name, amount string
		allocated    string
		want         bool
	}{
		"a vendor's name":  {name: "nvidia.com/gpu", amount: "1", want: true},
		"a shared name":    {name: "nvidia.com/gpu.shared", amount: "1", want: true},
		"a MIG device":     {name: "nvidia.com/mig-1g.5gb", amount: "1", want: true},
		"a share":          {name: "koordinator.sh/gpu", amount: "50", want: true},
		"a NIC":            {name: "koordinator.sh/rdma", amount: "1", want: true},
		"an amount of 0":   {name: "nvidia.com/gpu", amount: "0"},
		"CPUs":             {name: "cpu", amount: "1"},
		"another plugin's": {name: "example.com/fuse", amount: "1"},
		"with an allocation": {
			name: "nvidia.com/gpu", amount: "1", allocated: `{"gpu":[{"id":"a","resources":{}}]}`,
		},
		"with one that is not JSON": {name: "nvidia.com/gpu", amount: "1", allocated: `{`, want: true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{}}}
		pod.Spec = corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{
				Limits: testobject.List(c.name, c.amount),
			},
		}}}
		if c.allocated != "" {
			pod.Annotations[annotation.DeviceAllocatedKey] = c.allocated
		}
		e, concerns := convert.EntryUnder(convert.DefaultArgs(), pod)
		if e.Unallocated != c.want || c.want && !concerns {
			t.Errorf("%s: unallocated %t, concerns %t, want %t", name, e.Unallocated, concerns, c.want)
		}
		pod.Spec.NodeName = ""
		if e, concerns := convert.EntryUnder(convert.DefaultArgs(), pod); concerns || e.Unallocated {
			t.Errorf("%s: counts before it is bound", name)
		}
	}
}
