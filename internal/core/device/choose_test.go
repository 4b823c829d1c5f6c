package device_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// hgx is a server of eight groups of a GPU and a NIC, each below a root complex of its own, on two NUMA nodes; GPUs
// share a switch with 18 lanes each.
func hgx() device.Spec {
	spec := device.Spec{Switches: []device.Switch{{Type: device.GPU, Lanes: map[string]int64{}}}, LaneBytes: 25e9}
	for i := range 8 {
		gpu, nic := fmt.Sprintf("GPU-%d", i), fmt.Sprintf("0000:%d9:00.0", i)
		root := fmt.Sprintf("pci0000:%d0", i)
		at := func(bus string) device.Location {
			return device.Location{NUMAID: i / 4, PCIe: root, Bus: bus, Bridges: []string{root, root + ".p"}}
		}
		spec.Devices = append(spec.Devices,
			device.Device{
				Type: device.GPU, ID: gpu, Minor: int32(7 - i), Module: int32(i), Healthy: true, Model: "H100",
				Total: device.Vector{device.Bytes: 80 * gib}, Location: at(fmt.Sprintf("0000:%d8:00.0", i)),
			},
			device.Device{
				Type: device.RDMA, ID: nic, Healthy: true, Location: at(nic),
				VFs: []device.VF{
					{Bus: nic + ".3"}, {Bus: nic + ".2"}, {Bus: nic + ".1", Labels: map[string]string{"for": "root"}},
				},
			})
		spec.Switches[0].Lanes[gpu] = 18
	}
	return spec
}

func empty(t testing.TB, spec device.Spec) *device.View {
	t.Helper()
	return device.NewView(inventory(t, &spec), slices.Values([]*device.Holding(nil)))
}

// hold gives devices to a pod, so that they are in use.
func hold(t testing.TB, v *device.View, uid string, p device.Pod) *device.View {
	t.Helper()
	c, reason := v.Choose(read(t, p), nil)
	if !reason.OK() {
		t.Fatalf("%s: %+v", uid, reason)
	}
	return v.With(&device.Holding{UID: uid, Grants: c.Grants})
}

func read(t testing.TB, p device.Pod) *device.Request {
	t.Helper()
	r, faults := device.NewRequest(p, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return r
}

// ids lists the devices of a choice: "GPU-0 GPU-1".
func ids(c device.Choice, kind device.Type) string {
	var list []string
	for _, g := range c.Grants {
		if g.Type == kind {
			list = append(list, g.ID)
		}
	}
	return strings.Join(list, " ")
}

func joined(scope device.JointScope, types ...device.Type) device.Joint {
	return device.Joint{Types: types, Scope: scope}
}

func TestGPUsAndTheirNICs(t *testing.T) {
	t.Parallel()
	nics := func(list ...int) string {
		var names []string
		for _, i := range list {
			names = append(names, fmt.Sprintf("0000:%d9:00.0", i))
		}
		return strings.Join(names, " ")
	}
	p := pod(asks{device.NVIDIAGPU: 4, device.RDMAShare: 1})
	for name, c := range map[string]struct {
		joint device.Joint
		asks  asks
		busy  []int // NICs
		held  []int // GPUs that another pod has
		gpus  string
		nics  string
		code  why.Code
	}{
		"four GPUs have the four NICs beside them": {
			joint: joined(device.SamePCIe, device.GPU, device.RDMA),
			gpus:  "GPU-0 GPU-1 GPU-2 GPU-3", nics: nics(0, 1, 2, 3),
		},
		"GPUs whose NICs are in use are left": {
			joint: joined(device.SamePCIeSwitch, device.GPU, device.RDMA), busy: []int{1, 2, 4, 6},
			gpus: "GPU-0 GPU-3 GPU-5 GPU-7", nics: nics(0, 3, 5, 7),
		},
		"too few pairs are left": {
			joint: joined(device.SamePCIe, device.GPU, device.RDMA), busy: []int{1, 2, 4, 6, 7},
			code: why.DeviceJointAllocation,
		},
		"without a scope there is one NIC for each GPU that has one": {
			joint: joined(device.Anywhere, device.GPU, device.RDMA), busy: []int{1, 2, 4, 6, 7},
			gpus: "GPU-0 GPU-1 GPU-2 GPU-3", nics: nics(0, 3),
		},
		"without a joint allocation there is one NIC, beside a GPU": {
			busy: []int{0}, gpus: "GPU-0 GPU-1 GPU-2 GPU-3", nics: nics(1),
		},
		"a part of a GPU for each of two NICs": {
			joint: joined(device.SamePCIe, device.RDMA, device.GPU),
			asks:  asks{device.GPUPercent: 50, device.RDMAShare: 200}, gpus: "GPU-0 GPU-1", nics: nics(0, 1),
		},
		"a GPU beside the NIC that is free": {
			asks: asks{device.NVIDIAGPU: 1, device.RDMAShare: 100}, busy: []int{0, 1, 2, 3, 4, 6, 7},
			gpus: "GPU-5", nics: nics(5),
		},
		"each GPU has a NIC of its own NUMA node": {
			asks: asks{device.NVIDIAGPU: 2, device.RDMAShare: 200}, busy: []int{4}, held: []int{1, 2, 3, 5, 6, 7},
			gpus: "GPU-0 GPU-4", nics: nics(0, 5),
		},
		"one NIC is primary, and cannot be beside two GPUs": {
			joint: joined(device.SamePCIe, device.RDMA, device.GPU),
			asks:  asks{device.NVIDIAGPU: 2, device.RDMAShare: 100}, code: why.DeviceJointAllocation,
		},
		"NICs are the primary devices, with as many GPUs": {
			joint: joined(device.SamePCIe, device.RDMA, device.GPU),
			asks:  asks{device.NVIDIAGPU: 2, device.RDMAShare: 200}, gpus: "GPU-0 GPU-1", nics: nics(0, 1),
		},
	} {
		v := empty(t, hgx())
		for _, i := range c.busy {
			g := device.Grant{Type: device.RDMA, ID: nics(i), Amount: device.Vector{device.Share: 100}}
			v = v.With(&device.Holding{UID: nics(i), Grants: []device.Grant{g}})
		}
		for _, i := range c.held {
			id := fmt.Sprint("GPU-", i)
			g := device.Grant{Type: device.GPU, ID: id, Ratio: 100, Amount: device.Vector{device.Cores: 100}}
			v = v.With(&device.Holding{UID: id, Grants: []device.Grant{g}})
		}
		q := p
		if q.Joint = c.joint; c.asks != nil {
			q.Containers = pod(c.asks).Containers
		}
		got, reason := v.Choose(read(t, q), nil)
		if ids(got, device.GPU) != c.gpus || ids(got, device.RDMA) != c.nics || reason.Code != c.code {
			t.Errorf("%s: got %s with %s, %+v; want %s with %s, code %d", name, ids(got, device.GPU),
				ids(got, device.RDMA), reason, c.gpus, c.nics, c.code)
		}
		for _, g := range got.Grants {
			if g.Type == device.RDMA && g.Amount[device.Share] != 1 && c.asks == nil {
				t.Errorf("%s: NIC %s gives %d percent, want 1", name, g.ID, g.Amount[device.Share])
			}
		}
	}
}

// TestAJointAllocationWithoutGPUsGoesFirst: it takes the NIC that is in use, and a GPU that has no part in it follows.
func TestAJointAllocationWithoutGPUsGoesFirst(t *testing.T) {
	t.Parallel()
	spec := hgx()
	for i := range 8 {
		at := spec.Devices[2*i].Location
		at.Bus = fmt.Sprintf("0000:%d7:00.0", i)
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.FPGA, ID: fmt.Sprint("fpga-", i), Healthy: true, Location: at,
		})
	}
	g := device.Grant{Type: device.RDMA, ID: "0000:59:00.0", Amount: device.Vector{device.Share: 50}}
	v := empty(t, spec).With(&device.Holding{UID: "a", Grants: []device.Grant{g}})
	p := pod(asks{device.NVIDIAGPU: 1, device.RDMAShare: 50, device.FPGAShare: 50})
	p.Joint = joined(device.Anywhere, device.RDMA, device.FPGA)
	c, reason := v.Choose(read(t, p), nil)
	if ids(c, device.RDMA) != "0000:59:00.0" || ids(c, device.FPGA) != "fpga-5" || ids(c, device.GPU) != "GPU-5" {
		t.Errorf("got %+v, %+v; want the NIC in use and what is beside it", c.Grants, reason)
	}
}

// TestAllNICs: an amount of every NIC, whatever NUMA nodes they are on.
func TestAllNICs(t *testing.T) {
	t.Parallel()
	p := pod(asks{device.NVIDIAGPU: 1, device.RDMAShare: 10})
	p.Hints = map[device.Type]device.Hint{device.RDMA: {Strategy: device.ApplyForAll}}
	v := empty(t, hgx())
	c, reason := v.Choose(read(t, p), nil)
	if len(c.Grants) != 9 || c.Nodes != 3 || !reason.OK() {
		t.Fatalf("got %+v, %+v", c, reason)
	}
	worn := hgx()
	isNIC := func(d device.Device) bool { return d.Type == device.RDMA }
	worn.Devices[slices.IndexFunc(worn.Devices, isNIC)].Degraded = true
	if c, _ := empty(t, worn).Choose(read(t, p), nil); len(c.Grants) != 9 {
		t.Errorf("with one that is degraded: %d devices, want all NICs and a GPU", len(c.Grants))
	}
	only := func(n topo.NodeSet) bool { return n.Within(1) }
	if c, reason = v.Choose(read(t, p), &device.Options{Accept: only}); reason.Code != why.InsufficientNUMADevices {
		t.Errorf("on one NUMA node: %+v, %+v", c, reason)
	}
	g := device.Grant{Type: device.RDMA, ID: "0000:19:00.0", Amount: device.Vector{device.Share: 95}}
	v = v.With(&device.Holding{UID: "p", Grants: []device.Grant{g}})
	if c, reason = v.Choose(read(t, p), nil); reason.Code != why.InsufficientDevices || reason.Asked != 8 {
		t.Errorf("with one in use: %+v, %+v", c, reason)
	}
	if twice := (&device.Holding{UID: "q", Grants: []device.Grant{
		{Type: device.RDMA, ID: "0000:29:00.0", Amount: device.Vector{device.Share: 60}},
		{Type: device.RDMA, ID: "0000:29:00.0", Amount: device.Vector{device.Share: 60}},
	}}); v.Admits(twice).OK() {
		t.Error("two grants of one NIC are admitted beyond it")
	}
	if gone := (&device.Holding{UID: "q", Grants: []device.Grant{{Type: device.RDMA, ID: "x"}}}); v.Admits(gone).OK() {
		t.Error("a NIC that is not there is admitted")
	}
}

// TestNICsBeforeCloseness: of sets with equal rings and links the one with the nearest NICs is taken, not the closest.
func TestNICsBeforeCloseness(t *testing.T) {
	t.Parallel()
	v := empty(t, hgx())
	for _, id := range []string{"GPU-3", "GPU-6", "GPU-7", "0000:29:00.0"} {
		g := device.Grant{Type: device.GPU, ID: id, Ratio: 100, Amount: device.Vector{device.Cores: 100}}
		if strings.Contains(id, ":") {
			g = device.Grant{Type: device.RDMA, ID: id, Amount: device.Vector{device.Share: 100}}
		}
		v = v.With(&device.Holding{UID: id, Grants: []device.Grant{g}})
	}
	c, _ := v.Choose(read(t, pod(asks{device.NVIDIAGPU: 4, device.RDMAShare: 400})), nil)
	if ids(c, device.GPU) != "GPU-0 GPU-1 GPU-4 GPU-5" || c.Keys.NICs != 0 {
		t.Errorf("with NICs: %s, %+v", ids(c, device.GPU), c.Keys)
	}
	c, _ = v.Choose(read(t, pod(asks{device.NVIDIAGPU: 4})), nil)
	if ids(c, device.GPU) != "GPU-0 GPU-1 GPU-2 GPU-4" {
		t.Errorf("without NICs: %s, %+v", ids(c, device.GPU), c.Keys)
	}
}

func TestPartitionsAreTheUnit(t *testing.T) {
	t.Parallel()
	modules := func(list ...int32) []int32 { return list }
	table := []device.Partition{{Modules: modules(0, 1, 2, 3, 4, 5, 6, 7), Score: 1, Bandwidth: 400 * gib}}
	for i := range int32(8) {
		table = append(table, device.Partition{Modules: modules(i), Score: 1})
	}
	for i := int32(0); i < 8; i += 2 {
		table = append(table, device.Partition{Modules: modules(i, i+1), Score: 1, Bandwidth: 100 * gib})
	}
	for i := int32(0); i < 8; i += 4 {
		table = append(table, device.Partition{Modules: modules(i, i+1, i+2, i+3), Score: 1, Bandwidth: 200 * gib})
	}
	table = append(table, device.Partition{Modules: modules(1, 2), Score: 7, Bandwidth: 100 * gib})
	wish := func(restricted bool, bandwidth int64) *device.PartitionWish {
		return &device.PartitionWish{Restricted: restricted, Bandwidth: bandwidth}
	}
	for name, c := range map[string]struct {
		policy device.PartitionPolicy
		table  []device.Partition
		busy   string // GPUs
		n      int64
		wish   *device.PartitionWish
		want   string
		code   why.Code
	}{
		"the best score first": {policy: device.HonorPartitions, table: table, n: 2, want: "GPU-1 GPU-2"},
		"one of a broken pair rather than of a whole one": {
			policy: device.HonorPartitions, table: table, busy: "6", n: 1, want: "GPU-7",
		},
		"a pair beside one in use keeps a four": {
			policy: device.HonorPartitions, table: table[:len(table)-1], busy: "6", n: 2, want: "GPU-4 GPU-5",
		},
		"only sets of the table": {
			policy: device.HonorPartitions, table: table, busy: "1 5", n: 4, code: why.InsufficientPartitions,
		},
		"preferred and not there": {
			policy: device.PreferPartitions, table: table, busy: "1 5", n: 4, want: "GPU-0 GPU-2 GPU-3 GPU-4",
		},
		"no policy": {table: table, busy: "1 5", n: 4, want: "GPU-0 GPU-2 GPU-3 GPU-4"},
		"a pod that asks for partitions": {
			table: table, busy: "1 5", n: 4, wish: wish(false, 0), code: why.InsufficientPartitions,
		},
		"a count that the table does not have": {
			policy: device.HonorPartitions, table: table, n: 3, code: why.PartitionCountUnsupported,
		},
		"no table at all": {policy: device.HonorPartitions, n: 2, code: why.PartitionTableMissing},

		"no table, and only the best will do":     {n: 2, wish: wish(true, 0), code: why.PartitionTableMissing},
		"no table, and any will do":               {n: 2, wish: wish(false, 0), want: "GPU-0 GPU-1"},
		"no table, and the links are fast enough": {n: 2, wish: wish(false, 450e9), want: "GPU-0 GPU-1"},
		"no table, and the links are too slow": {
			n: 2, wish: wish(false, 450e9+1), code: why.InsufficientPartitions,
		},
		"only the best score, which is in use": {
			table: table, busy: "1", n: 2, wish: wish(true, 0), code: why.InsufficientPartitions,
		},
		"a worse score will do": {table: table, busy: "1", n: 2, wish: wish(false, 0), want: "GPU-2 GPU-3"},
		"partitions that are too slow": {
			table: table, n: 4, wish: wish(false, 300*gib), code: why.InsufficientPartitions,
		},
	} {
		spec := hgx()
		spec.Partitions = device.Partitions{Policy: c.policy, Table: c.table}
		v := empty(t, spec)
		for _, i := range strings.Fields(c.busy) {
			g := device.Grant{Type: device.GPU, ID: "GPU-" + i, Ratio: 100, Amount: device.Vector{device.Cores: 100}}
			v = v.With(&device.Holding{UID: i, Grants: []device.Grant{g}})
		}
		p := pod(asks{device.NVIDIAGPU: c.n})
		p.Partition = c.wish
		got, reason := v.Choose(read(t, p), nil)
		if ids(got, device.GPU) != c.want || reason.Code != c.code {
			t.Errorf("%s: got %q, %+v; want %q, code %d", name, ids(got, device.GPU), reason, c.want, c.code)
		}
	}
}

func TestContainersOfAPodShareDevices(t *testing.T) {
	t.Parallel()
	half := asks{device.GPUPercent: 50}
	p := pod(half, half)
	v := empty(t, hgx())
	c, _ := v.Choose(read(t, p), nil)
	if len(c.Grants) != 1 || c.Grants[0].Amount[device.Cores] != 100 || len(c.Grants[0].Containers) != 2 ||
		c.Grants[0].Containers[1].Amount[device.Bytes] != 40*gib || c.Grants[0].Containers[1].Ratio != 50 {
		t.Errorf("two halves: %+v", c.Grants)
	}
	for i := range 8 { // a half of each GPU is in use
		g := device.Grant{
			Type: device.GPU, ID: "GPU-" + strconv.Itoa(i), Ratio: 50, Amount: device.Vector{device.Cores: 50},
		}
		v = v.With(&device.Holding{UID: g.ID, Grants: []device.Grant{g}})
	}
	if c, _ = v.Choose(read(t, p), nil); ids(c, device.GPU) != "GPU-0 GPU-1" {
		t.Errorf("two halves of halves: %+v", c.Grants)
	}
	third := asks{device.GPUShared: 8, device.GPURatio: 8 * 30}
	if c, _ = empty(t, hgx()).Choose(read(t, pod(third, third, third)), nil); len(c.Grants) != 8 {
		t.Errorf("three thirds of each GPU: %+v", c.Grants)
	}
	if c, reason := empty(t, hgx()).Choose(read(t, pod(third, third, third, third)), nil); reason.Asked != 9 {
		t.Errorf("four thirds of each GPU: %+v, %+v", c.Grants, reason)
	}
	p = pod(asks{device.NVIDIAGPU: 1}, asks{device.GPUPercent: 30}, asks{device.GPUPercent: 60})
	p.Containers[0].Role, p.Containers[1].Role = device.Init, device.Sidecar
	if c, _ = empty(t, hgx()).Choose(read(t, p), nil); len(c.Grants) != 1 || c.Grants[0].Ratio != 100 {
		t.Errorf("an init container before a sidecar: %+v", c.Grants)
	}
	p.Containers[0], p.Containers[1] = p.Containers[1], p.Containers[0]
	if c, _ = empty(t, hgx()).Choose(read(t, p), nil); len(c.Grants) != 2 {
		t.Errorf("an init container beside a sidecar: %+v", c.Grants)
	}
}

func TestSharesTakeTheFullestDevice(t *testing.T) {
	t.Parallel()
	v := empty(t, hgx())
	use := func(i int, percent int64) {
		g := device.Grant{Type: device.GPU, ID: "GPU-" + strconv.Itoa(i), Ratio: percent}
		g.Amount[device.Cores] = percent
		v = v.With(&device.Holding{UID: g.ID, Grants: []device.Grant{g}})
	}
	use(2, 40)
	use(5, 60)
	use(6, 80)
	share := read(t, pod(asks{device.GPUPercent: 30}))
	if c, _ := v.Choose(share, nil); ids(c, device.GPU) != "GPU-5" {
		t.Errorf("got %s, want the fullest that fits", ids(c, device.GPU))
	}
	worth := func(_ device.Type, id string) int64 {
		if id == "GPU-2" {
			return 1
		}
		return 0
	}
	if c, _ := v.Choose(share, &device.Options{Worth: worth}); ids(c, device.GPU) != "GPU-2" {
		t.Errorf("got %s, want the one of most worth", ids(c, device.GPU))
	}
	only := func(n topo.NodeSet) bool { return n.Within(1) }
	if c, _ := v.Choose(share, &device.Options{Accept: only}); ids(c, device.GPU) != "GPU-2" || c.Nodes != 1 {
		t.Errorf("got %s, want one on NUMA node 0", ids(c, device.GPU))
	}
	nothing := device.Grant{Type: device.GPU, ID: "GPU-0", Containers: []device.ContainerGrant{{Name: "c"}}}
	v = empty(t, hgx()).With(&device.Holding{UID: "x", Grants: []device.Grant{nothing}})
	if c, _ := v.Choose(read(t, pod(asks{device.NVIDIAGPU: 1})), nil); ids(c, device.GPU) != "GPU-1" {
		t.Errorf("got %s, want one without holders", ids(c, device.GPU))
	}
	v = empty(t, hgx())
	small := read(t, pod(asks{device.GPUMemory: 1}))
	without := device.Selector{{Key: "x", Operator: device.DoesNotExist}}
	small.Hints = map[device.Type]device.Hint{device.GPU: {Selector: without}}
	for i := range 100 {
		c, _ := v.Choose(small, nil)
		if v = v.With(&device.Holding{UID: strconv.Itoa(i), Grants: c.Grants}); ids(c, device.GPU) != "GPU-0" {
			t.Fatalf("sharer %d is on %s", i, ids(c, device.GPU))
		}
	}
	if c, _ := v.Choose(small, nil); ids(c, device.GPU) != "GPU-1" {
		t.Errorf("a hundred sharers, and one more on %s", ids(c, device.GPU))
	}
}

func TestReasonsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	scoped := func(level device.Level) map[device.Type]device.Hint {
		return map[device.Type]device.Hint{device.GPU: {Scope: level}}
	}
	nic := func(h device.Hint) map[device.Type]device.Hint { return map[device.Type]device.Hint{device.RDMA: h} }
	for what, c := range map[string]struct {
		asks    asks
		hints   map[device.Type]device.Hint
		options device.Options
		want    device.Reason
	}{
		"no device of the type": {
			asks: asks{device.FPGAShare: 1}, want: device.Reason{Code: why.DeviceMissing, Type: device.FPGA},
		},
		"too few devices": {
			asks: asks{device.NVIDIAGPU: 8},
			want: device.Reason{Code: why.InsufficientDevices, Type: device.GPU, Asked: 8, Free: 6, Whole: 6},
		},
		"too few in one scope": {
			asks: asks{device.NVIDIAGPU: 2}, hints: scoped(device.PCIeLevel),
			want: device.Reason{
				Code: why.InsufficientScopedDevices, Type: device.GPU, Asked: 2, Free: 6, Whole: 6, InScope: 1,
			},
		},
		"too few on NUMA nodes": {
			asks:    asks{device.NVIDIAGPU: 5},
			options: device.Options{Accept: func(n topo.NodeSet) bool { return n.Len() < 2 }},
			want:    device.Reason{Code: why.InsufficientNUMADevices, Type: device.GPU},
		},
		"no virtual function that matches": {
			asks:  asks{device.RDMAShare: 1},
			hints: nic(device.Hint{VF: &device.Selector{{Key: "for", Operator: device.In, Values: []string{"x"}}}}),
			want:  device.Reason{Code: why.VirtualFunctionsMissing, Type: device.RDMA, Asked: 1, Whole: 8},
		},
		"no template": {
			asks: asks{device.NPUCore: 1, device.GPURatio: 20},
			want: device.Reason{Code: why.SharedTemplateMissing, Type: device.GPU, Asked: 1, Whole: 6},
		},
		"a model that is not shared": {
			asks: asks{device.GPUPercent: 20}, options: device.Options{WholeOnly: []string{"H100"}},
			want: device.Reason{Code: why.DeviceShareUnsupported, Type: device.GPU, Asked: 1, Whole: 6},
		},
	} {
		v := hold(t, empty(t, hgx()), "a", pod(asks{device.NVIDIAGPU: 2}))
		p := pod(c.asks)
		p.Hints = c.hints
		_, reason := v.Choose(read(t, p), &c.options)
		if reason.Model != "H100" && reason.Model != "" {
			t.Errorf("%s: model %q, want H100", what, reason.Model)
		}
		reason.Best, reason.Model = device.Vector{}, ""
		if diff := cmp.Diff(c.want, reason); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestVirtualFunctions(t *testing.T) {
	t.Parallel()
	p := pod(asks{device.RDMAShare: 1})
	general := device.Selector{{Key: "for", Operator: device.DoesNotExist}}
	p.Hints = map[device.Type]device.Hint{device.RDMA: {VF: &general}}
	v := empty(t, hgx())
	var got []string
	for _, uid := range []string{"a", "b", "c"} {
		v = hold(t, v, uid, p)
		g := v.HoldingOf(uid).Grants[0]
		got = append(got, g.VFs...)
	}
	want := []string{"0000:09:00.0.2", "0000:09:00.0.3", "0000:19:00.0.2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("VFs (-want +got):\n%s", diff)
	}
	p.Hints[device.RDMA] = device.Hint{Exclusive: device.DeviceLevel, Strategy: device.RequestsAsCount}
	if c, _ := v.Choose(read(t, p), nil); ids(c, device.RDMA) != "0000:29:00.0" ||
		c.Grants[0].Amount[device.Share] != 100 {
		t.Errorf("an untouched NIC: %+v", c.Grants)
	}
}

func TestTemplatesMatchExactly(t *testing.T) {
	t.Parallel()
	spec := device.Spec{Devices: []device.Device{{
		Type: device.GPU, ID: "npu", Healthy: true, Model: "huawei-310P",
		Total: device.Vector{device.Bytes: 24 * gib, device.NPUCores: 8, device.NPUCPUs: 7, device.NPUDVPPs: 100},
	}}}
	ask := asks{device.GPUShared: 1, device.NPUCore: 2, device.NPUCPU: 1, device.GPUMemory: 6 * gib}
	o := device.Options{Templates: []device.Template{
		{Name: "vir01", Model: "huawei-310P", Amount: device.Vector{device.NPUCores: 1}, Ratio: 25},
		{
			Name: "vir02_1c", Model: "huawei-310P",
			Amount: device.Vector{device.NPUCores: 2, device.NPUCPUs: 1, device.Bytes: 6 * gib},
		},
	}}
	v := empty(t, spec)
	for i := range 4 {
		c, reason := v.Choose(read(t, pod(ask)), &o)
		if !reason.OK() || c.Grants[0].Template != "vir02_1c" {
			t.Fatalf("template %d: %+v %+v", i, c.Grants, reason)
		}
		v = v.With(&device.Holding{UID: strconv.Itoa(i), Grants: c.Grants})
	}
	if _, reason := v.Choose(read(t, pod(ask)), &o); reason.Code != why.InsufficientDevices {
		t.Errorf("a fifth of four: %+v", reason)
	}
	ask[device.NPUCPU] = 2
	o.Templates = append(o.Templates, device.Template{Name: "vir02", Model: "huawei-910B"})
	if _, reason := v.Choose(read(t, pod(ask)), &o); reason.Code != why.SharedTemplateMissing ||
		reason.Model != "vir01, vir02_1c" {
		t.Errorf("no such template: %+v", reason)
	}
}

// TestOfEqualDevicesTheFirstShowsWhatIsFree: equal are those with as many cores and bytes, whatever else they have.
func TestOfEqualDevicesTheFirstShowsWhatIsFree(t *testing.T) {
	t.Parallel()
	npu := func(id string, cores int64) device.Device {
		return device.Device{
			Type: device.GPU, ID: id, Healthy: true, Model: "huawei-310P",
			Total: device.Vector{device.Bytes: 24 * gib, device.NPUCores: cores},
		}
	}
	v := empty(t, device.Spec{Devices: []device.Device{npu("npu-0", 8), npu("npu-1", 6)}})
	_, reason := v.Choose(read(t, pod(asks{device.GPUCore: 300, device.GPURatio: 300})), nil)
	if reason.Code != why.InsufficientDevices || reason.Best[device.NPUCores] != 8 {
		t.Errorf("three of two: %+v, want the 8 cores of npu-0", reason)
	}
}

// TestManyDevicesAreApproximate: more sets than are looked at give a good one, and say so.
func TestManyDevicesAreApproximate(t *testing.T) {
	t.Parallel()
	var spec device.Spec
	for i := range 40 {
		id := fmt.Sprintf("%02d", i)
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.GPU, ID: id, Healthy: true,
			Location: device.Location{Bus: id, NUMAID: i / 20, PCIe: "pci" + strconv.Itoa(i/4)},
		})
		spec.Links = append(spec.Links, device.Link{
			Type: device.GPU, A: id, B: fmt.Sprintf("%02d", i^1), Lanes: int64(i / 10),
		})
	}
	v := empty(t, spec)
	c, reason := v.Choose(read(t, pod(asks{device.NVIDIAGPU: 8})), nil)
	if !reason.OK() || !c.Approximate || c.Keys.Links != 4*300 || c.Keys.Nodes != 1 {
		t.Errorf("8 of 40: %+v %+v", c, reason)
	}
	only := func(n topo.NodeSet) bool { return n.Within(1) }
	if c, reason = v.Choose(read(t, pod(asks{device.NVIDIAGPU: 20})), &device.Options{Accept: only}); !reason.OK() ||
		c.Nodes != 1 {
		t.Errorf("20 of 40 on one NUMA node: %+v %+v", c, reason)
	}
	for i := range spec.Links { // the best links lead to the other NUMA node
		spec.Links[i].B, spec.Links[i].Lanes = fmt.Sprintf("%02d", (i+20)%40), 9
	}
	scoped := read(t, pod(asks{device.NVIDIAGPU: 20}))
	scoped.Hints = map[device.Type]device.Hint{device.GPU: {Scope: device.NUMALevel}}
	if c, reason = empty(t, spec).Choose(scoped, nil); !reason.OK() || c.Nodes.Len() != 1 {
		t.Errorf("20 of 40 in one NUMA node: %+v %+v", c, reason)
	}
}

// TestNumbersAndOrderDecideNothing is P5.
func TestNumbersAndOrderDecideNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 6, 4)
		v := inUse(t, s)
		_, r := drawRequest(t, s.rng, dpu())
		other := s.spec
		other.Devices = slices.Clone(s.spec.Devices)
		s.rng.Shuffle(len(other.Devices), func(i, j int) {
			other.Devices[i], other.Devices[j] = other.Devices[j], other.Devices[i]
		})
		for i := range other.Devices {
			other.Devices[i].Minor += 64
		}
		want, reason := v.Choose(r, nil)
		got, otherReason := v.On(inventory(t, &other)).Choose(r, nil)
		for i := range got.Grants {
			got.Grants[i].Minor -= 64
		}
		if diff := cmp.Diff(want, got); diff != "" || reason != otherReason {
			t.Fatalf("renumbered: reasons %+v and %+v (-want +got):\n%s", reason, otherReason, diff)
		}
	})
}

func TestEqualServersShareAClass(t *testing.T) {
	t.Parallel()
	var classes device.Classes
	a, b := hgx(), hgx()
	for i := range b.Devices {
		b.Devices[i].Minor += 3
	}
	one, err := device.NewInventory(&a, nil, &classes)
	testkit.Check(t, err)
	two, err := device.NewInventory(&b, nil, &classes)
	testkit.Check(t, err)
	if &one.Weights()[0] != &two.Weights()[0] {
		t.Error("equal servers have tables of their own")
	}
}

// TestLogicalGPUsAreExact: 64 of them on 8 cards are more than 16 devices, but few different ones.
func TestLogicalGPUsAreExact(t *testing.T) {
	t.Parallel()
	var spec device.Spec
	for i := range 64 {
		card := strconv.Itoa(i / 8)
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.GPU, ID: fmt.Sprintf("%02d", i), Healthy: true,
			Location: device.Location{
				NUMAID: i / 32, Bus: card, PCIe: "pci" + card, Bridges: []string{"pci" + card, "port" + card},
			},
		})
	}
	v := empty(t, spec)
	for _, id := range []string{"00", "11", "12"} {
		g := device.Grant{Type: device.GPU, ID: id, Ratio: 10, Amount: device.Vector{device.Cores: 10}}
		v = v.With(&device.Holding{UID: id, Grants: []device.Grant{g}})
	}
	for n, want := range map[int64]string{
		1: "01", 2: "01 02", 7: "01 02 03 04 05 06 07", 8: "16 17 18 19 20 21 22 23",
	} {
		c, reason := v.Choose(read(t, pod(asks{device.NVIDIAGPU: n})), nil)
		if ids(c, device.GPU) != want || c.Approximate {
			t.Errorf("%d: got %s, approximate %t, %+v; want %s", n, ids(c, device.GPU), c.Approximate, reason, want)
		}
	}
}
