package probe_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

func gpu(id, minor string, change ...func(*host.Dropped)) host.Dropped {
	d := host.Dropped{
		Type: "gpu", Vendor: "nvidia", Model: "H100", UUID: id, Minor: minor,
		Resources: map[string]string{"gpu-memory": "80Gi"},
		Topology:  host.DroppedTopology{SocketID: "0", NodeID: "0", PCIEID: "pci0000:3a", BusID: "0000:3b:00.0"},
	}
	for _, f := range change {
		f(&d)
	}
	return d
}

func linked(peers string) func(*host.Dropped) {
	return func(d *host.Dropped) {
		d.Topology.P2PLinks = []host.DroppedLink{{PeerMinor: peers, Type: "NVLink", Count: 4}}
	}
}

func TestTheDeviceObject(t *testing.T) {
	t.Parallel()
	in := probe.Input{NodeName: "n0", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "u"}}}
	got, err := probe.Device(in, []host.Dropped{
		gpu("GPU-b", "1", linked("0")), gpu("GPU-a", "0", linked("1")),
		{Type: "dpu", UUID: "0000:01:00.0", Resources: map[string]string{"example.com/dpu": "1"}},
	}, nil, metav1.Now())
	testkit.Check(t, err)
	text, err := yaml.Marshal(map[string]any{
		"labels": got.Labels, "annotations": got.Annotations, "owner": got.OwnerReferences[0].UID, "spec": got.Spec,
	})
	testkit.Check(t, err)
	const card = `
    health: true
    id: GPU-%
    labels:
      node.koordinator.sh/gpu-model: H100
      node.koordinator.sh/gpu-vendor: nvidia
    minor: #
    resources:
      koordinator.sh/gpu-core: "100"
      koordinator.sh/gpu-memory: 80Gi
      koordinator.sh/gpu-memory-ratio: "100"
    topology:
      busID: 0000:3b:00.0
      nodeID: 0
      pcieID: pci0000:3a
      socketID: 0
    type: gpu
`
	list := func(id, minor string) string {
		return strings.Replace(strings.NewReplacer("%", id, "#", minor).Replace(card), "\n    health", "  - health", 1)
	}
	want := `annotations:
  node.tenon.sh/device-links: '` + `{"links":[{"ids":["GPU-b","GPU-a"],"type":"NVLink","count":4}]}` + `'
  node.tenon.sh/device-mode: Own
labels:
  node.koordinator.sh/gpu-model: H100
  node.koordinator.sh/gpu-vendor: nvidia
owner: u
spec:
  devices:
  - health: true
    id: "0000:01:00.0"
    resources:
      example.com/dpu: "1"
    topology:
      nodeID: -1
      pcieID: ""
      socketID: -1
    type: dpu
` + list("a", "0") + list("b", "1")
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLabelsOfTheObjectAreThoseOfAllGPUs(t *testing.T) {
	t.Parallel()
	other := func(d *host.Dropped) { d.Model = "T4" }
	got, _ := probe.Device(probe.Input{}, []host.Dropped{gpu("a", "0"), gpu("b", "1", other)}, nil, metav1.Now())
	if diff := cmp.Diff(map[string]string{"node.koordinator.sh/gpu-vendor": "nvidia"}, got.Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := probe.Device(probe.Input{}, nil, nil, metav1.Now()); got != nil || err != nil {
		t.Errorf("a node without devices gets %+v, %v", got, err)
	}
}

func TestADeviceThatVanishesKeepsItsHolder(t *testing.T) {
	t.Parallel()
	all := []host.Dropped{gpu("a", "0"), gpu("b", "1"), gpu("c", "2")}
	before, _ := probe.Device(probe.Input{}, all, nil, metav1.Now())
	in := probe.Input{Entries: []ledger.Entry{{UID: "p", Devices: []device.Grant{
		{Type: device.GPU, ID: "a"}, {Type: device.GPU, ID: "b"},
	}}}}
	after, err := probe.Device(in, all[:1], before, metav1.Now())
	if err != nil || len(after.Spec.Devices) != 2 || after.Spec.Devices[0].ID != "a" || !after.Spec.Devices[0].Health ||
		after.Spec.Devices[1].ID != "b" || after.Spec.Devices[1].Health {
		t.Errorf("got %+v, %v, want a, and b that does not work", after, err)
	}
}

func TestAConditionKeepsItsTime(t *testing.T) {
	t.Parallel()
	broken := func(d *host.Dropped) {
		d.Status = &host.DroppedStatus{ErrCode: "79", ErrMessage: "GPU has fallen off the bus"}
	}
	first, later := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	one, _ := probe.Device(probe.Input{}, []host.Dropped{gpu("a", "0", broken)}, nil, first)
	c := one.Spec.Devices[0].Conditions[0]
	if one.Spec.Devices[0].Health || c.Type != "Healthy" || c.Status != "False" || c.Reason != "Code79" ||
		c.Message != "GPU has fallen off the bus" || !c.LastTransitionTime.Equal(&first) {
		t.Errorf("got %+v", one.Spec.Devices[0])
	}
	two, _ := probe.Device(probe.Input{}, []host.Dropped{gpu("a", "0", broken)}, one, later)
	if got := two.Spec.Devices[0].Conditions[0].LastTransitionTime; !got.Equal(&first) {
		t.Errorf("the condition is dated %v, want %v", got, first)
	}
}

// TestTheModeOfDevices: what people have chosen counts, and a node whose kubelet gives out GPUs is left to it.
func TestTheModeOfDevices(t *testing.T) {
	t.Parallel()
	withPlugin := &corev1.Node{}
	withPlugin.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(8, resource.DecimalSI)}
	withAdapters := &corev1.Node{}
	withAdapters.Status.Capacity = corev1.ResourceList{"rdma/hca": *resource.NewQuantity(1000, resource.DecimalSI)}
	withSlices := &corev1.Node{}
	withSlices.Status.Capacity = testobject.List("nvidia.com/mig-1g.5gb", "7")
	chosen := &devicev1alpha1.Device{}
	chosen.Annotations = map[string]string{"node.tenon.sh/device-mode": "Moving"}
	for _, test := range []struct {
		node      *corev1.Node
		published *devicev1alpha1.Device
		want      string
	}{
		{&corev1.Node{}, nil, "Own"},
		{withPlugin, nil, "Follow"},
		{withAdapters, nil, "Follow"},
		{withSlices, nil, "Follow"},
		{withPlugin, &devicev1alpha1.Device{}, "Follow"},
		{withPlugin, chosen, "Moving"},
		{nil, chosen, "Moving"},
	} {
		in, found := probe.Input{Node: test.node}, []host.Dropped{gpu("a", "0")}
		got, err := probe.Device(in, found, test.published, metav1.Now())
		if mode := got.Annotations["node.tenon.sh/device-mode"]; err != nil || mode != test.want {
			t.Errorf("mode %q, %v, want %q", mode, err, test.want)
		}
	}
}

// TestPartitionsOfLinkedGPUs: eight GPUs that are all linked have the partitions of a server with a switch.
func TestPartitionsOfLinkedGPUs(t *testing.T) {
	t.Parallel()
	npu := func(n int, module, peers string) host.Dropped {
		d := gpu(fmt.Sprint("npu-", n), fmt.Sprint(n))
		d.ModuleID, d.Topology.MustHonorPartition = module, true
		if peers != "" {
			d.Topology.P2PLinks = []host.DroppedLink{{PeerMinor: peers, Type: "HCCS"}}
		}
		return d
	}
	var eight, six []host.Dropped
	for i := range 8 {
		var peers []string
		for j := range 8 {
			if j != i {
				peers = append(peers, fmt.Sprint(j))
			}
		}
		eight = append(eight, npu(i, fmt.Sprint(7-i), strings.Join(peers, ",")))
		if i < 6 {
			six = append(six, npu(i, "", []string{"1,2", "0,2", "0,1", "4", "3", ""}[i]))
		}
	}
	without := npu(0, "", "")
	without.Minor = ""
	for name, test := range map[string]struct {
		found []host.Dropped
		want  map[int]string
		fault string
	}{
		"eight, by module": {eight, map[int]string{
			1: "[0] [1] [2] [3] [4] [5] [6] [7]", 2: "[0 1] [2 3] [4 5] [6 7]", 4: "[0 1 2 3] [4 5 6 7]",
			8: "[0 1 2 3 4 5 6 7]",
		}, ""},
		"three, two and one": {six, map[int]string{
			1: "[0] [1] [2] [3] [4] [5]", 2: "[0 1] [3 4]", 3: "[0 1 2]",
		}, ""},
		"one without a number": {
			[]host.Dropped{without, npu(1, "", "")},
			map[int]string{1: "[1]"},
			`minor: "", want a number, as topology.mustHonorPartition is set`,
		},
		"GPUs without the demand": {[]host.Dropped{gpu("a", "0")}, nil, ""},
	} {
		o, err := probe.Device(probe.Input{}, test.found, nil, metav1.Now())
		if (err != nil) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		}
		table, _, err := annotation.ParseGPUPartitions(o.Annotations[annotation.GPUPartitionsKey])
		if (test.want == nil) != (o.Annotations[annotation.GPUPartitionsKey] == "") || err != nil && test.want != nil {
			t.Errorf("%s: table %v, %v", name, o.Annotations, err)
		}
		var got map[int]string
		for size, sets := range table {
			for _, set := range sets {
				if got == nil {
					got = map[int]string{}
				}
				got[size] = strings.TrimSpace(fmt.Sprint(got[size], " ", set.Minors))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		honor := o.Labels[annotation.GPUPartitionPolicyLabel] == annotation.PartitionHonor
		if honor != (test.want != nil) {
			t.Errorf("%s: labels %v", name, o.Labels)
		}
	}
}

func TestBadDropsAreNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*host.Dropped){
		`device gpu "a": minor: "x", want a whole number from -1`: func(d *host.Dropped) { d.Minor = "x" },
		`device gpu "a": topology.nodeID: "-2", want a whole`:     func(d *host.Dropped) { d.Topology.NodeID = "-2" },
		`device gpu "a": topology.socketID: "4294967296", want`: func(d *host.Dropped) {
			d.Topology.SocketID = "4294967296"
		},
		`device gpu "a": resources[gpu-core]: "-1", want a quantity`:                         core("-1"),
		`device gpu "a": resources[koordinator.sh/gpu-core]: "150", want a whole percentage`: core("150"),
		`device gpu "a": resources[koordinator.sh/gpu-core]: "500m", want a`:                 core("500m"),
		`device gpu "a": vfs: "", want PCI addresses`: func(d *host.Dropped) {
			d.VFs = []string{"0000:01:00.1", "", "0000:01:00.1"}
		},
		`device gpu "a": resources[gpu-core]: "1e999999999", want`:          core("1e999999999"),
		`device gpu "a": topology.p2pLinks[].peerMinor: "7", want the min`:  linked("7"),
		`device gpu "a": topology.p2pLinks[].peerMinor: "0", want the mino`: linked("0"),
		`device gpu "a": topology.p2pLinks[].count: "1001", want 0…1000`: func(d *host.Dropped) {
			d.Topology.P2PLinks = []host.DroppedLink{{PeerUUID: "b", Type: "NVLink", Count: 1001}}
		},
		`device gpu "a": topology.p2pLinks[].peerUUID: "c", want the minor`: func(d *host.Dropped) {
			d.Topology.P2PLinks = []host.DroppedLink{{PeerUUID: "c", Type: "NVLink"}}
		},
		`device gpu "a": topology.switchLanes: "-1", want 0…1000`: func(d *host.Dropped) {
			d.Topology.SwitchLanes = -1
		},
		`device gpu "a": topology.laneBandwidth: "fast", want bytes per second above 0`: func(d *host.Dropped) {
			d.Topology.LaneBandwidth = "fast"
		},
		`device gpu "a": moduleID: "M", want a whole number`: func(d *host.Dropped) { d.ModuleID = "M" },
	} {
		got, err := probe.Device(probe.Input{}, []host.Dropped{gpu("a", "0", change), gpu("b", "1")}, nil, metav1.Now())
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if got == nil || len(got.Spec.Devices) != 2 {
			t.Errorf("%s: got %+v, want two devices all the same", want, got)
		}
	}
}

func core(amount string) func(*host.Dropped) {
	return func(d *host.Dropped) { d.Resources["gpu-core"] = amount }
}

// What drivers know beyond drop files of Koordinator's format.
func TestWhatDriversKnowIsPublished(t *testing.T) {
	t.Parallel()
	at := func(d *host.Dropped) {
		d.Model, d.ModuleID, d.Topology.SocketID, d.Topology.NodeID = "NVIDIA H100 80GB (HBM3)", "3", "", "1"
		d.Topology.Bridges = []string{"pci0000:3a", "0000:3a:01.0"}
		d.Labels = map[string]string{"node.koordinator.sh/gpu-driver-version": "535.129.03", "a/b/c": "x"}
		d.Status = &host.DroppedStatus{Healthy: true, Degraded: true, ErrCode: "ResetNeeded", ErrMessage: "rows"}
	}
	in := example(t)
	nic := host.Dropped{
		Type: "rdma", UUID: "0000:09:00.0", Resources: map[string]string{"rdma": "100"}, VFs: []string{"0000:09:00.2"},
		Topology: host.DroppedTopology{BusID: "0000:09:00.0", Bridges: []string{"pci0000:00"}},
	}
	got, err := probe.Device(in, []host.Dropped{gpu("a", "0", at), nic}, nil, metav1.NewTime(time.Unix(1000, 0)))
	if err == nil || err.Error() != `device gpu "a": labels: "a/b/c", want the key of a label` {
		t.Errorf("err = %v", err)
	}
	text, err := yaml.Marshal(map[string]any{
		"annotations": got.Annotations, "labels": got.Labels, "devices": got.Spec.Devices,
	})
	testkit.Check(t, err)
	want := `annotations:
  node.tenon.sh/device-links: '{"bridges":{"0000:3b:00.0":["pci0000:3a","0000:3a:01.0"]}}'
  node.tenon.sh/device-mode: Own
devices:
- conditions:
  - lastTransitionTime: "1970-01-01T00:16:40Z"
    message: rows
    reason: ResetNeeded
    status: "True"
    type: Degraded
  health: true
  id: a
  labels:
    node.koordinator.sh/gpu-driver-version: 535.129.03
    node.koordinator.sh/gpu-model: NVIDIA-H100-80GB--HBM3
    node.koordinator.sh/gpu-vendor: nvidia
  minor: 0
  moduleID: 3
  resources:
    koordinator.sh/gpu-core: "100"
    koordinator.sh/gpu-memory: 80Gi
    koordinator.sh/gpu-memory-ratio: "100"
  topology:
    busID: 0000:3b:00.0
    nodeID: 1
    pcieID: pci0000:3a
    socketID: SOCKET
  type: gpu
- health: true
  id: "0000:09:00.0"
  resources:
    koordinator.sh/rdma: "100"
  topology:
    busID: "0000:09:00.0"
    nodeID: -1
    pcieID: ""
    socketID: -1
  type: rdma
  vfGroups:
  - vfs:
    - busID: "0000:09:00.2"
      minor: -1
labels:
  node.koordinator.sh/gpu-driver-version: 535.129.03
  node.koordinator.sh/gpu-model: NVIDIA-H100-80GB--HBM3
  node.koordinator.sh/gpu-vendor: nvidia
`
	n, known := in.Machine.NUMAByID(1)
	if !known {
		t.Fatal("the example has no NUMA node 1")
	}
	want = strings.Replace(want, "SOCKET", strconv.Itoa(in.Machine.SocketID(in.Machine.NUMASocket(n))), 1)
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A node has one bandwidth of lanes: the least of its GPUs.
func TestTheLeastBandwidthCounts(t *testing.T) {
	t.Parallel()
	var found []host.Dropped
	for i, bandwidth := range []string{"25G", "", "20G", "50G"} {
		found = append(found, gpu(strconv.Itoa(i), strconv.Itoa(i), func(d *host.Dropped) {
			d.Topology.LaneBandwidth = bandwidth
		}))
	}
	o, err := probe.Device(probe.Input{}, found, nil, metav1.Now())
	testkit.Check(t, err)
	links, _, err := annotation.ParseDeviceLinks(o.Annotations[annotation.DeviceLinksKey])
	if err != nil || links.LaneBandwidth == nil || links.LaneBandwidth.String() != "20G" {
		t.Errorf("annotations %v, %v; want lanes with 20G", o.Annotations, err)
	}
}

// Two GPUs have as many lanes between them as the one that has fewer to the switch, however many GPUs lack lanes.
func TestLanesToASwitch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var found []host.Dropped
		lanes := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 6).Draw(t, "lanes")
		for i, n := range lanes {
			found = append(found, gpu(strconv.Itoa(i), strconv.Itoa(i), func(d *host.Dropped) {
				d.Topology.SwitchLanes, d.Topology.BusID = n, fmt.Sprintf("0000:%02x:00.0", i)
			}))
		}
		object, err := probe.Device(probe.Input{NodeName: "n"}, found, nil, metav1.Now())
		testkit.Check(t, err)
		facts, problems := new(convert.Known).Read(convert.Sources{Devices: &convert.Devices{Device: object}},
			convert.DefaultArgs())
		if len(problems) > 0 {
			t.Fatalf("the object cannot be used: %v", problems)
		}
		got := facts.Devices.Lanes(device.GPU)
		for i, a := range lanes {
			for j, b := range lanes {
				if want := int64(min(a, b)); i != j && got[i*len(lanes)+j] != want {
					t.Fatalf("%d lanes between GPU %d and %d of %v, want %d", got[i*len(lanes)+j], i, j, lanes, want)
				}
			}
		}
	})
}

func TestALostDeviceIsListedFromWhatIsPublished(t *testing.T) {
	t.Parallel()
	all := []host.Dropped{gpu("a", "0"), gpu("b", "1")}
	before, _ := probe.Device(probe.Input{}, all, nil, metav1.Now())
	lost := host.Dropped{Type: "gpu", UUID: "b", IsLost: true, Status: host.Fails("Lost", "gone")}
	after, err := probe.Device(probe.Input{}, []host.Dropped{all[0], lost}, before, metav1.Now())
	if err != nil || len(after.Spec.Devices) != 2 {
		t.Fatalf("got %+v, %v, want both", after, err)
	}
	b, want := after.Spec.Devices[1], before.Spec.Devices[1].DeepCopy()
	if len(b.Conditions) != 1 || b.Conditions[0].Reason != "Lost" || b.Conditions[0].Message != "gone" {
		t.Errorf("conditions %+v, want one that says that it is lost", b.Conditions)
	}
	want.Health, want.Conditions = false, b.Conditions
	if diff := cmp.Diff(*want, b); diff != "" {
		t.Errorf("the lost device (-want +got):\n%s", diff)
	}
	never, err := probe.Device(probe.Input{}, []host.Dropped{all[0], lost}, nil, metav1.Now())
	if err != nil || len(never.Spec.Devices) != 1 {
		t.Errorf("a lost device that was never published: %+v, %v, want the other one alone", never, err)
	}
}

func TestTheModeThatTheAgentIsConfiguredFor(t *testing.T) {
	t.Parallel()
	const own, follow, moving = annotation.DeviceOwn, annotation.DeviceFollow, annotation.DeviceMoving
	for _, c := range []struct {
		wish, now string
		held      bool
		want      string
	}{
		{"", follow, true, follow},
		{"", moving, false, moving},
		{follow, own, true, follow},
		{moving, own, false, moving},
		{own, follow, true, moving},
		{own, moving, true, moving},
		{own, moving, false, own},
		{own, follow, false, own},
		{own, own, true, own}, // its containers are not created: it needs no way in
	} {
		if got := probe.DeviceModeOf(c.wish, c.now, c.held); got != c.want {
			t.Errorf("DeviceModeOf(%q, %q, %t) = %s, want %s", c.wish, c.now, c.held, got, c.want)
		}
	}
}
