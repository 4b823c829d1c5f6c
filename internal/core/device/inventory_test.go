package device_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func inventory(t interface {
	Helper()
	Fatal(args ...any)
}, spec *device.Spec,
) *device.Inventory {
	t.Helper()
	inv, err := device.NewInventory(spec, nil, nil)
	testkit.Check(t, err)
	return inv
}

// TestLinksAreReadFromTheMachine: lanes by link and switch, in the weaker direction, beside closeness by bridges.
func TestLinksAreReadFromTheMachine(t *testing.T) {
	t.Parallel()
	at := func(id string, node int, bridges ...string) device.Device {
		l := device.Location{Bus: id, NUMAID: node, Bridges: bridges}
		return device.Device{Type: device.GPU, ID: id, Location: l}
	}
	spec := device.Spec{
		Devices: []device.Device{
			at("a", 0, "r0", "p0", "u", "d0"), at("b", 0, "r0", "p0", "u", "d1"),
			at("c", 0, "r0", "p0", "u", "d2", "u2", "x"),
			at("d", 0, "r0", "p1"), at("e", 0, "r1"), at("f", 1, "r2"), at("g", -1),
		},
		Links: []device.Link{
			{Type: device.GPU, A: "a", B: "b", Lanes: 4},
			{Type: device.GPU, A: "b", B: "a", Lanes: 3},
			{Type: device.GPU, A: "a", B: "f", Lanes: 2},
			{Type: device.GPU, A: "a", B: "gone", Lanes: 9},
			{Type: device.GPU, A: "d", B: "f", Lanes: 5},
			{Type: device.GPU, A: "f", B: "d", Lanes: 0}, // said, and so the weaker direction
		},
		Switches: []device.Switch{{Type: device.GPU, Lanes: map[string]int64{"c": 18, "d": 12, "e": 18}}},
	}
	got := inventory(t, &spec).Weights()
	want := []int32{ // a, b, c, d, e, f, g
		0, 350, 40, 30, 20, 210, 10,
		350, 0, 40, 30, 20, 10, 10,
		40, 40, 0, 1230, 1820, 10, 10,
		30, 30, 1230, 0, 1220, 10, 10,
		20, 20, 1820, 1220, 0, 10, 10,
		210, 10, 10, 10, 10, 0, 10,
		10, 10, 10, 10, 10, 10, 0,
	}
	if !slices.Equal(got, want) {
		t.Errorf("links\n%v, want\n%v", got, want)
	}
}

// TestNUMANodesAreThoseOfTheMachine: by its numbers, whatever the kernel's ids are; unknown ones have none.
func TestNUMANodesAreThoseOfTheMachine(t *testing.T) {
	t.Parallel()
	m := grid.Build(t, topo.Spec{
		CPUs: []topo.CPUSpec{{ID: 0, NUMA: 0}, {ID: 1, Core: 1, NUMA: 250}}, NUMA: []topo.NUMASpec{{ID: 8}},
	})
	var spec device.Spec
	for id, node := range map[string]int{"a": 0, "b": 250, "c": -1, "d": 99, "e": 8} {
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.GPU, ID: id, Healthy: true, Location: device.Location{NUMAID: node},
		})
	}
	inv, err := device.NewInventory(&spec, m, nil)
	testkit.Check(t, err)
	for id, want := range map[string]topo.NodeSet{"a": 1, "b": 4, "c": 0, "d": 0, "e": 2, "gone": 0} {
		if got := inv.NodesOf(device.GPU, id); got != want {
			t.Errorf("%s is on %v, want %v", id, got, want)
		}
	}
}

func TestBadDevicesAreRefusedByName(t *testing.T) {
	t.Parallel()
	var many []device.Device
	for i := range device.MaxDevices + 1 {
		many = append(many, device.Device{Type: "x", ID: strconv.Itoa(i)})
	}
	for text, devices := range map[string][]device.Device{
		`device gpu "a" is there twice`: {{Type: device.GPU, ID: "a"}, {Type: device.GPU, ID: "a"}},
		`type and id must not be empty`: {{Type: device.GPU}},
		`device gpu "a": amount -1 in`:  {{Type: device.GPU, ID: "a", Total: device.Vector{device.Bytes: -1}}},
		`65 devices of type x, at most`: many,
	} {
		if _, err := device.NewInventory(&device.Spec{Devices: devices}, nil, nil); err == nil ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

// TestOldAnnotationsNameMinors: GPUs of one card may share a minor; none of them is given twice.
func TestOldAnnotationsNameMinors(t *testing.T) {
	t.Parallel()
	spec := device.Spec{Devices: []device.Device{
		{Type: device.GPU, ID: "a", Minor: 3, Healthy: true},
		{Type: device.GPU, ID: "b", Minor: 3, Healthy: true},
		{Type: device.GPU, ID: "c", Minor: 4, Healthy: true},
	}}
	g := device.Grant{Type: device.GPU, Minor: 3, Ratio: 30, Amount: device.Vector{device.Cores: 50}}
	v := device.NewView(inventory(t, &spec), slices.Values([]*device.Holding{{UID: "p", Grants: []device.Grant{g}}}))
	got := map[string]int64{}
	for d := range v.Devices() {
		got[d.ID] = d.Free[device.Cores] + 1000*d.Free[device.Bytes]
	}
	want := map[string]int64{"a": 70_050, "b": 70_050, "c": 100_100}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("free (-want +got):\n%s", diff)
	}
}

// Other types are asked for by the one resource that their devices have, unless it is another component's.
func TestKindsOfAnInventory(t *testing.T) {
	t.Parallel()
	one := func(kind device.Type, resource string, amount int64) device.Device {
		return device.Device{
			Type: kind, ID: "id-" + resource, Resource: resource, Total: device.Vector{device.Share: amount},
		}
	}
	inv, err := device.NewInventory(&device.Spec{Devices: []device.Device{
		one(device.GPU, "", 0), one(device.RDMA, "koordinator.sh/rdma", 100), one("dpu", "example.com/dpu", 1),
		one("npu", "", 100), one("a", "cpu", 1), one("b", "kubernetes.io/b", 1),
		one("c", "koordinator.sh/batch-cpu", 1),
		one("d", "nvidia.com/gpu", 1), one("e", "example.com/e", 4), one("f", "x.kubernetes.io/f", 4),
	}}, nil, nil)
	testkit.Check(t, err)
	want := device.Kinds{
		{Type: "dpu", Resource: "example.com/dpu", Unit: 1},
		{Type: "e", Resource: "example.com/e", Unit: 4},
		{Type: "npu", Resource: "koordinator.sh/npu", Unit: 100},
	}
	if diff := cmp.Diff(want, inv.Kinds()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if kinds := (*device.Inventory)(nil).Kinds(); kinds != nil {
		t.Errorf("a node without devices has %v", kinds)
	}
}
