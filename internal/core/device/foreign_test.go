package device_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// moved is a node with two GPUs against the order of their ids, one of another vendor, a GPU in MIG mode and a NIC.
func moved(foreign ...device.Foreign) *device.Spec {
	at := func(kind device.Type, id, bus, vendor, parent string) device.Device {
		d := device.Device{Type: kind, ID: id, Vendor: vendor, Parent: parent, Healthy: true}
		d.Bus, d.NUMAID = bus, -1
		return d
	}
	nic := at(device.RDMA, "0000:09:00.0", "0000:09:00.0", "", "")
	nic.VFs = []device.VF{{Bus: "0000:09:00.2"}}
	return &device.Spec{Foreign: foreign, Devices: []device.Device{
		at(device.GPU, "GPU-b", "0000:10:00.0", device.NVIDIAGPU, ""),
		at(device.GPU, "1f3b", "0000:18:00.0", device.AMDGPU, ""),
		at(device.GPU, "GPU-a", "0000:20:00.0", device.NVIDIAGPU, ""),
		at(device.GPU, "GPU-a-7", "0000:30:00.0", device.NVIDIAGPU, ""),
		at(device.GPU, "MIG-1", "0000:30:00.0", "", "GPU-a-7"),
		at(device.GPU, "MIG-2", "0000:30:00.0", "", "GPU-a-7"),
		nic,
	}}
}

// held are the devices of a node that no pod can have because others got them elsewhere.
func held(inv *device.Inventory) (ids []string) {
	for d := range device.NewView(inv, slices.Values([]*device.Holding(nil))).Devices() {
		if len(d.Foreign) > 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func TestNamesOfDevicePlugins(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"GPU-a": {"GPU-a"}, "GPU-a::0": {"GPU-a"}, "GPU-a::12": {"GPU-a"}, "GPU-a-3": {"GPU-a"},
		"GPU-a-7":   {"GPU-a-7", "MIG-1", "MIG-2"}, // an id, though it reads as a replica of another one
		"GPU-a-7-1": {"GPU-a-7", "MIG-1", "MIG-2"}, "MIG-2": {"MIG-2"}, "MIG-1::4": {"MIG-1"},
		"0": {"GPU-b"}, "1": {"GPU-a"}, "2": {"GPU-a-7", "MIG-1", "MIG-2"}, // by address, without other vendors and MIG
		"1f3b": {"1f3b"}, "0000:18:00.0": {"1f3b"},
		"0000:09:00.0": {"0000:09:00.0"}, "0000:09:00.2": {"0000:09:00.0"},
		"3": nil, "-1": nil, "GPU-c": nil, "GPU-": nil, "GPU-a::": nil, "GPU-a::x": nil, "GPU-a-": nil, "gpu-a": nil,
		"GPU": nil, "99999999999": nil, "::": nil, "-": nil, "MIG-GPU-a/1/0": nil, "": nil,
	} {
		inv := inventory(t, moved(device.Foreign{UID: "u", Names: []string{name}}))
		if diff := cmp.Diff(want, held(inv)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
		if known := inv.Resolve(name) != ""; known != (want != nil) || (len(inv.Unknown()) == 0) != known {
			t.Errorf("%q: resolved %t, unknown %v", name, known, inv.Unknown())
		}
	}
}

func TestIndicesNeedEveryAddress(t *testing.T) {
	t.Parallel()
	s := moved()
	s.Devices[2].Bus = ""
	if id := inventory(t, s).Resolve("1"); id != "" {
		t.Errorf("index 1 is %s, while the address of a GPU is not known", id)
	}
}

// TestForeignDevicesAreNeverChosen: whatever another program gave out, no pod gets a device of it, and the account is
// the same however it was come to.
func TestForeignDevicesAreNeverChosen(t *testing.T) {
	t.Parallel()
	chosen, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 5, 3)
		gone := map[string]bool{}
		for i := range 1 + s.rng.IntN(3) {
			d := s.spec.Devices[s.rng.IntN(len(s.spec.Devices))]
			name := []string{d.ID, d.ID + "::1", d.ID + "-12345"}[s.rng.IntN(3)]
			gone[d.ID] = true
			s.spec.Foreign = append(s.spec.Foreign, device.Foreign{UID: fmt.Sprint("f", i), Names: []string{name}})
		}
		inv := inventory(t, &s.spec)
		v := device.NewView(inv, slices.Values([]*device.Holding(nil)))
		for step := range 8 {
			_, r := drawRequest(t, s.rng, dpu())
			c, reason := v.Choose(r, nil)
			if !reason.OK() {
				continue
			}
			for _, g := range c.Grants {
				if gone[g.ID] {
					t.Fatalf("step %d: %s is given, which another program gave out", step, g.ID)
				}
			}
			if len(c.Grants) > 0 {
				h := &device.Holding{UID: strconv.Itoa(step), Grants: c.Grants}
				v = v.With(h)
				chosen++
				h = &device.Holding{UID: "x", Grants: slices.Clone(c.Grants)}
				h.Grants[0].ID = s.spec.Devices[slices.IndexFunc(s.spec.Devices,
					func(d device.Device) bool { return gone[d.ID] })].ID
				if h.Grants[0].Type == s.spec.Devices[0].Type && v.Admits(h).OK() {
					t.Fatalf("step %d: a held device is admitted: %+v", step, h.Grants)
				}
			}
		}
		for d := range v.Devices() {
			if gone[d.ID] {
				taken++
				if d.Free != (device.Vector{}) || d.Used != d.Total || d.Holders != len(d.Foreign) {
					t.Fatalf("%s: free %v, used %v of %v, %d holders", d.ID, d.Free, d.Used, d.Total, d.Holders)
				}
			}
		}
		if !v.Equal(device.NewView(inv, v.Holdings())) || !v.On(inventory(t, &s.spec)).Equal(v) {
			t.Fatal("rebuilt is not live")
		}
		free := s.spec
		free.Foreign = nil
		if v.Equal(v.On(inventory(t, &free))) {
			t.Fatal("an account with foreign devices equals one without")
		}
	})
	if (chosen == 0 || taken == 0) && !testing.Short() {
		t.Errorf("%d devices were chosen beside %d held ones: the generator is too narrow", chosen, taken)
	}
}
