package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// machineWithCard is the account of a node with NUMA nodes 0 and 1, and GPU-1 on NUMA node 1.
func machineWithCard(t *testing.T) *ledger.View {
	t.Helper()
	machine, err := topo.New(topo.Spec{CPUs: []topo.CPUSpec{{ID: 0}, {ID: 1, Core: 1, NUMA: 1, Socket: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := device.NewInventory(&device.Spec{Devices: []device.Device{{
		Type: device.GPU, ID: "GPU-1", Healthy: true,
		Location: device.Location{NUMAID: 1, PCIe: "pci0000:80", Bus: "0000:81:00.0"},
	}}}, machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.New(ledger.Facts{Machine: machine, Devices: inventory}).View()
}

// TestPlacesOfDevices has the attributes that drivers publish.
func TestPlacesOfDevices(t *testing.T) {
	t.Parallel()
	number := func(n int64) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValue: &n} }
	numbers := func(n ...int64) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValues: n} }
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	type attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	v := machineWithCard(t)
	for name, tt := range map[string]struct {
		attributes attributes
		capacity   string
		counters   []string
		want       claim.Device
		card       int
	}{
		"NVIDIA": {
			attributes: attributes{
				"resource.kubernetes.io/numaNode": number(0), "resource.kubernetes.io/pcieRoot": text("pci0000:00"),
				"type": text("gpu"), "productName": text("H"), "uuid": text("GPU-9"), "driverVersion": text("1"),
			},
			capacity: "80Gi",
			want:     claim.Device{Nodes: 1, Root: "pci0000:00", Sort: "x type=gpu productName=H memory=80Gi"},
			card:     -1,
		},
		"NVIDIA, a MIG device": {
			attributes: attributes{
				"resource.kubernetes.io/numaNode": number(1), "type": text("mig"), "parentUUID": text("GPU-1"),
				"profile": text("1g"),
			},
			counters: []string{"gpu-0-counter-set"},
			want: claim.Device{
				Nodes: 2, Root: "pci0000:80", Sort: "x type=mig profile=1g", Counted: true, Card: "gpu-0-counter-set ",
			},
		},
		"the example driver, with the Device of the node": {
			attributes: attributes{"index": number(1), "uuid": text("GPU-1"), "model": text("M")},
			want:       claim.Device{Nodes: 2, Root: "pci0000:80", Sort: "x model=M"},
		},
		"the example driver alone": {
			attributes: attributes{"index": number(1), "uuid": text("GPU-9")}, want: claim.Device{Sort: "x"}, card: -1,
		},
		"a driver that contradicts the Device": {
			attributes: attributes{"uuid": text("GPU-1"), "numaNode": number(0)},
			want:       claim.Device{Root: "pci0000:80", Sort: "x"},
		},
		"DraNet, a list": {
			attributes: attributes{
				"resource.kubernetes.io/numaNode": numbers(1, 0), "dra.net/numaNode": number(1),
				"dra.net/pciAddress": text("0000:99:00.0"),
			},
			want: claim.Device{Nodes: 2, Sort: "x"}, card: -1,
		},
		"the driver for CPUs": {
			attributes: attributes{
				"dra.cpu/numaNodeID": number(1), "dra.cpu/socketID": number(1),
				"resource.kubernetes.io/pcieRoot": {StringValues: []string{"pci0000:80", "pci0000:a0"}},
			},
			want: claim.Device{Nodes: 2, Root: "pci0000:80", Sort: "x"}, card: -1,
		},
		"an older driver": {
			attributes: attributes{"numa": number(1)}, want: claim.Device{Nodes: 2, Sort: "x"}, card: -1,
		},
		"-1": {attributes: attributes{"numaNode": number(-1)}, want: claim.Device{Sort: "x"}, card: -1},
		"a NUMA node as a text": {
			attributes: attributes{"numaNode": text("1")}, want: claim.Device{Sort: "x"}, card: -1,
		},
		"nothing": {want: claim.Device{Sort: "x"}, card: -1},
	} {
		s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "x", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "p"},
		}}
		d := resourcev1.Device{Name: "d", Attributes: tt.attributes}
		if tt.capacity != "" {
			d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: resource.MustParse(tt.capacity)},
			}
		}
		for _, set := range tt.counters {
			d.ConsumesCounters = append(d.ConsumesCounters, resourcev1.DeviceCounterConsumption{CounterSet: set})
		}
		s.Spec.Devices = []resourcev1.Device{d}
		tt.want.Pool = "x/p/"
		sites, cards := convert.SitesOf(s, "n", v)
		if len(sites) != 1 || cards[0] != tt.card {
			t.Errorf("%s: got %+v, cards %v", name, sites, cards)
			continue
		}
		if diff := cmp.Diff(tt.want, sites[0].Device); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDevicesOfOtherNodesHaveNoPlace: of several nodes, of another one, and one device of a slice for each node.
func TestDevicesOfOtherNodesHaveNoPlace(t *testing.T) {
	t.Parallel()
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{
		{Name: "a", NodeName: new("m")}, {Name: "b", NodeName: new("n")}, {Name: "c", AllNodes: new(true)},
	}}}
	for name, tt := range map[string]struct {
		change func(*resourcev1.ResourceSliceSpec)
		want   []int
	}{
		"all nodes":    {func(s *resourcev1.ResourceSliceSpec) { s.AllNodes = new(true) }, nil},
		"another node": {func(s *resourcev1.ResourceSliceSpec) { s.NodeName = new("m") }, nil},
		"each device":  {func(s *resourcev1.ResourceSliceSpec) { s.PerDeviceNodeSelection = new(true) }, []int{1}},
		"the node":     {func(s *resourcev1.ResourceSliceSpec) { s.NodeName = new("n") }, []int{0, 1, 2}},
	} {
		changed := s.DeepCopy()
		tt.change(&changed.Spec)
		var got []int
		sites, _ := convert.SitesOf(changed, "n", nil)
		for i := range sites {
			got = append(got, sites[i].Index)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
